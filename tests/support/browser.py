"""Headless Chromium for tests of pages: sizes, colours, print, faults and barriers."""

from __future__ import annotations

import base64
import contextlib
import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.places import DATA


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
        return [*wider, *self.driver.execute_script(_script("clipped"))]

    def overlapping(self) -> list[str]:
        """List texts of charts that lie over each other."""
        found: list[str] = self.driver.execute_script(_script("overlapping"))
        return found

    def barriers(self) -> list[str]:
        """List what axe finds; it is evaluated outside of the page's policy."""
        self.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": self.axe})
        found: list[str] = self.driver.execute_async_script(_script("barriers"))
        return found

    def check_whole(self) -> None:
        """Fail where the page is cut off or overlaps at some width or on paper."""
        for width in (1280, 800, 400, 320):
            self.look(width=width)
            assert (width, self.clipped(), self.overlapping()) == (width, [], [])
        self.look(width=703, media="print")  # A4 between its margins
        assert self.clipped() == []

    def check_barriers(self) -> None:
        """Fail where the page has barriers, wide in light colours or narrow in dark ones."""
        for width, dark in ((1280, False), (400, True)):
            self.look(width=width, dark=dark)
            assert (width, self.barriers()) == (width, [])

    def faults(self) -> list[str]:
        """Return what the console was told since the last time."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def pdf(self) -> bytes:
        """Print the page on A4."""
        paper = {"paperWidth": 8.27, "paperHeight": 11.69, "preferCSSPageSize": True}
        printed = self.driver.execute_cdp_cmd("Page.printToPDF", paper)
        return base64.b64decode(printed["data"])

    def check_printed(self, page: Path, least: int, most: int) -> None:
        """Fail where a page, seen in dark colours, is not printed on so many sheets."""
        self.show(page, dark=True)
        pdf = self.pdf()
        assert pdf.startswith(b"%PDF")
        assert least <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= most

    def shown_without_script(self, page: Path, rows: str) -> list[bool]:
        """Fail where dead buttons show without script; return of each row whether it shows."""
        with self.without_script():
            self.show(page)
            controls = self.find_all("button, form")
            assert [one.tag_name for one in controls if one.is_displayed()] == []
            return [row.is_displayed() for row in self.find_all(rows)]

    def find(self, selector: str) -> Any:
        """Return the first element of a CSS selector."""
        return self.driver.find_element("css selector", selector)

    def find_all(self, selector: str) -> list[Any]:
        """Return the elements of a CSS selector."""
        found: list[Any] = self.driver.find_elements("css selector", selector)
        return found

    def wait_for(self, what: Callable[[], object], seconds: float = 60) -> None:
        """Wait until something is so."""
        from selenium.common.exceptions import StaleElementReferenceException
        from selenium.webdriver.support.wait import WebDriverWait

        ignored = (StaleElementReferenceException,)
        WebDriverWait(self.driver, seconds, ignored_exceptions=ignored).until(lambda _: what())

    def wait_for_text(self, place: str, text: str) -> None:
        """Wait until the element of an id has a text, seen or only heard."""
        self.wait_for(lambda: text in self.find(f"#{place}").get_attribute("textContent"))

    def press(self, key: str) -> None:
        """Press a key, by selenium's name for it, wherever the focus is."""
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.keys import Keys

        ActionChains(self.driver).send_keys(getattr(Keys, key)).perform()

    def choose(self, name: str, text: str) -> None:
        """Choose what a field of choices shows as a text."""
        from selenium.webdriver.support.ui import Select

        Select(self.find(f"[name={name}]")).select_by_visible_text(text)

    def picture(self) -> bytes:
        """Draw the whole page as PNG."""
        asked = {"captureBeyondViewport": True}
        drawn = self.driver.execute_cdp_cmd("Page.captureScreenshot", asked)
        return base64.b64decode(drawn["data"])


def written_once(place: Path, render: Callable[[str], str]) -> Callable[[str], Path]:
    """Return a function that writes the page of a name, once, and gives its place."""

    @functools.cache
    def write(name: str) -> Path:
        page = place / f"{re.sub(r'[^a-z]', '-', name.lower())}.html"
        page.write_text(render(name), encoding="utf-8")
        return page

    return write


def _script(name: str) -> str:
    return (DATA / "browser" / f"{name}.js").read_text(encoding="utf-8")


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
