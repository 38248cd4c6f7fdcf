"""What all pages have in common: their frame, their headers, and how refusals look."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from aiohttp import web

from packager.addons.server.pages.commands import CommandRunner
from packager.addons.server.pages.guard import COOKIE, FormGuard, PageRefused
from packager.addons.server.refusals import BodyTooLarge, BodyTooSlow
from packager.addons.server.services import ServeServices
from packager.core.errors import NotFound, PackagerError
from packager.core.reports.page import compact_script, compact_style, page_templates
from packager.core.share import share_dir
from packager.core.version import __version__

ROOT = "/ui"
POLICY = "; ".join(
    (
        "default-src 'none'",
        "style-src 'self'",
        "script-src 'self'",
        "connect-src 'self'",
        "img-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
# No `no-referrer`: browsers then send forms without their origin, which is checked.
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
SECTIONS = (
    ("home", "Home"),
    ("jobs", "Jobs"),
    ("new", "New job"),
    ("images", "Images"),
    ("benchmarks", "Benchmarks"),
    ("lineage", "Lineage"),
    ("caches", "Cache"),
    ("endpoints", "Endpoints"),
)
_META_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">')

Call = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What pages are made of; one a server."""

    services: ServeServices
    call: Call  # an operation of the API, by its name: checks its body as the API does
    guard: FormGuard = field(default_factory=FormGuard)
    commands: CommandRunner = field(default_factory=CommandRunner)
    ending: asyncio.Event = field(default_factory=asyncio.Event)  # of the server

    def page(
        self,
        request: web.Request,
        template: str,
        values: Mapping[str, Any],
        *,
        section: str,
        status: int = 200,
    ) -> web.Response:
        """Print a page within the frame of all."""
        session = self.guard.session(request)
        frame = {
            "root": ROOT,
            "section": section,
            "sections": SECTIONS,
            "token": self.guard.token(session),
            "version": __version__,
            "assets": {name: f"{ROOT}/{name}?{_asset(name)[1]}" for name in ("ui.css", "ui.js")},
            "refresh_s": 0,
        }
        text = page_templates("serve").get_template(template).render({**frame, **values})
        response = web.Response(text=text, content_type="text/html", status=status)
        response.headers["Content-Security-Policy"] = POLICY
        response.headers.update(HEADERS)
        response.set_cookie(
            COOKIE,
            session,
            path=ROOT,
            httponly=True,
            samesite="Strict",
            secure=request.scheme == "https",
        )
        return response

    def whole(self, page: str) -> web.Response:
        """Return a report's page as it is; the policy that is written in it becomes a header."""
        found = _META_POLICY.search(page)
        policy = found[1].replace("&#39;", "'") if found else "default-src 'none'"
        response = web.Response(text=page, content_type="text/html")
        response.headers["Content-Security-Policy"] = f"{policy}; frame-ancestors 'none'"
        response.headers.update(HEADERS)
        return response

    def guarded(self, handler: Handler) -> Handler:
        """Return the handler behind the checks of all pages; refusals are pages, too."""

        @functools.wraps(handler)
        async def answer(request: web.Request) -> web.StreamResponse:
            try:
                self.guard.check(request)
                return await handler(request)
            except PackagerError as error:
                return self.refused(request, error)

        return answer

    def refused(self, request: web.Request, error: PackagerError) -> web.Response:
        """Return the page of an error."""
        values = {"message": str(error), "hint": error.hint or ""}
        return self.page(request, "refused.html.j2", values, section="", status=status_of(error))

    def see(self, place: str) -> web.Response:
        """Send the browser to another page, after a form was taken."""
        return web.Response(status=303, headers={**HEADERS, "Location": f"{ROOT}/{place}"})


def status_of(error: PackagerError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, PageRefused):
        return error.status
    if isinstance(error, BodyTooLarge | BodyTooSlow):
        return error.http_status
    if isinstance(error, NotFound) or getattr(error, "type", "") == "ResourceNotFound":
        return 404
    return 400 if error.exit_code == 2 else 500


async def asset(request: web.Request) -> web.Response:
    """Return the style sheet, the script or the icon of all pages."""
    name = request.match_info["asset"]
    text, _ = _asset(name)
    kinds = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    headers = {**HEADERS, "Cache-Control": "max-age=31536000, immutable"}
    return web.Response(text=text, content_type=kinds[name.rpartition(".")[2]], headers=headers)


@cache
def _asset(name: str) -> tuple[str, str]:
    """Return a file of the pages and its mark, which its address changes with."""
    places = share_dir("templates")
    if name == "ui.css":
        files = [places / "report" / "page.css", places / "serve" / "ui.css"]
        text = compact_style(*files)
    elif name == "ui.js":
        text = compact_script(places / "report" / "page.js", places / "serve" / "ui.js")
    else:
        text = (places / "serve" / name).read_text(encoding="utf-8")
    return text, hashlib.sha256(text.encode()).hexdigest()[:12]
