"""Pages that are kept, mailed and printed: whole, quiet, and with a policy for their own script."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser


class Outline(HTMLParser):
    """Collects tags and attributes, and checks that what is opened is closed."""

    VOID = frozenset({"meta", "line", "circle", "polyline", "br", "input"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close a tag; one that closes itself is opened first, unless it is never open."""
        assert tag in self.VOID or self.open.pop() == tag


def check_page(page: str) -> None:
    """Fail where a page is not whole, fetches anything, or lets more run than its own script."""
    outline = Outline(page)
    keys = {key for key, _ in outline.attributes}
    assert outline.open == []
    assert not {"link", "img", "iframe", "object"} & set(outline.tags)
    assert not {key for key in keys if key in ("src", "style") or key.startswith("on")}
    assert all((value or "").startswith("#") for key, value in outline.attributes if key == "href")
    assert "url(" not in page
    assert "@import" not in page
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy.startswith("default-src &#39;none&#39;; ")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src &#39;sha256-{digest}&#39;" in policy
