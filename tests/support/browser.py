"""Headless Chromium for tests of pages: sizes, colours, print, faults and barriers."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Elements whose content is wider than they are, and that nobody can scroll.
CLIPPED = """
return [...document.querySelectorAll("body *")].filter((one) => {
  if (one.closest("svg") || one.classList.contains("hear") || !one.clientWidth) return false;
  const style = getComputedStyle(one);
  return style.display !== "inline" && one.scrollWidth > one.clientWidth + 1
    && !(["auto", "scroll"].includes(style.overflowX) && one.tabIndex === 0);
}).map((one) => `${one.tagName} ${one.className} ${one.textContent.slice(0, 80)}`)
"""
# Texts of drawings that lie over each other or leave their drawing, as they are really drawn.
OVERLAPPING = """
const found = [];
for (const drawing of document.querySelectorAll("svg.chart")) {
  const texts = [...drawing.querySelectorAll("text")];
  const boxes = texts.map((one) => one.getBoundingClientRect());
  const frame = drawing.getBoundingClientRect();
  boxes.forEach((a, at) => {
    if (a.left < frame.left - 1 || a.right > frame.right + 1) found.push(texts[at].textContent);
    boxes.slice(at + 1).forEach((b, more) => {
      if (a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)
        found.push(texts[at].textContent + " / " + texts[at + 1 + more].textContent);
    });
  });
}
return found
"""
# Rules of the W3C's guidelines, levels A and AA, and what is good practice besides.
BARRIERS = """
const done = arguments[arguments.length - 1];
axe.run(document, { resultTypes: ["violations"] }).then(
  (found) => done(found.violations.map((one) =>
    `${one.id}: ${one.nodes.map((node) => node.target.join(" ")).slice(0, 5).join(", ")}`)),
  (error) => done([String(error)]));
"""


@dataclass(frozen=True)
class Browser:
    """One window. Pages are files: nothing is served."""

    driver: Any
    axe: str

    def show(
        self, page: Path, *, width: int = 1280, dark: bool = False, media: str = "screen"
    ) -> None:
        """Open a page in a window of this width, in these colours."""
        self.look(width=width, dark=dark, media=media)
        self.driver.get(page.as_uri())

    def look(self, *, width: int = 1280, dark: bool = False, media: str = "screen") -> None:
        """Set width and colours of the page that is open, or show it as on paper."""
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        colours = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        emulated = {"media": media, "features": [colours]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", emulated)

    @contextlib.contextmanager
    def without_script(self) -> Iterator[None]:
        """Open pages as a browser without JavaScript does."""
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        try:
            yield
        finally:
            self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})

    def clipped(self) -> list[str]:
        """List what is cut off, and the page itself where it is wider than its window."""
        wider = self.driver.execute_script(
            "const page = document.documentElement;"
            "return page.scrollWidth > page.clientWidth ? ['the page'] : []"
        )
        return [*wider, *self.driver.execute_script(CLIPPED)]

    def overlapping(self) -> list[str]:
        """List texts of charts that lie over each other."""
        found: list[str] = self.driver.execute_script(OVERLAPPING)
        return found

    def barriers(self) -> list[str]:
        """List what axe finds; it is evaluated outside of the page's policy."""
        self.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": self.axe})
        found: list[str] = self.driver.execute_async_script(BARRIERS)
        return found

    def faults(self) -> list[str]:
        """Return what the console was told since the last time."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def pdf(self) -> bytes:
        """Print the page on A4."""
        paper = {"paperWidth": 8.27, "paperHeight": 11.69, "preferCSSPageSize": True}
        printed = self.driver.execute_cdp_cmd("Page.printToPDF", paper)
        return base64.b64decode(printed["data"])

    def picture(self) -> bytes:
        """Draw the whole page as PNG."""
        asked = {"captureBeyondViewport": True}
        drawn = self.driver.execute_cdp_cmd("Page.captureScreenshot", asked)
        return base64.b64decode(drawn["data"])


@contextlib.contextmanager
def opened(chromium: str, chromedriver: str, axe: str) -> Iterator[Browser]:
    """Start the browser; end it, and whatever it started."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    # Containers have no user namespaces for its sandbox; only our own pages are shown.
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(chromedriver))
    try:
        driver.set_script_timeout(60)
        yield Browser(driver, axe)
    finally:
        driver.quit()
