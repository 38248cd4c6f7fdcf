"""Pages of what was built here: a list with what can be done next, and two side by side."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from packager.addons.server.pages.numbered import links_of, page_number
from packager.addons.server.pages.recorded import BuildRow, RecordedBuilds
from packager.addons.server.pages.site import ROOT, Site
from packager.core.errors import UsageError

ROWS = 20  # of a page: each record is read whole


@dataclass(frozen=True, slots=True)
class ImagePages:
    """Handlers of the pages."""

    site: Site
    builds: RecordedBuilds

    async def list(self, request: web.Request) -> web.Response:
        """Show a page of the builds, the newest first."""
        number = page_number(request)
        rows, has_more = await asyncio.to_thread(self.builds.rows, (number - 1) * ROWS, ROWS)
        values = {
            "rows": [{"build": row, "does": actions_of(row)} for row in rows],
            "wide": True,
            **links_of(f"{ROOT}/images", number, has_more=has_more),
        }
        return self.site.page(request, "images.html.j2", values, section="images")

    async def compare(self, request: web.Request) -> web.Response:
        """Show what a node that has the first of two images pulls for the second."""
        chosen = request.query.getall("of", [])
        if len(chosen) != 2:
            raise UsageError(
                f"{len(chosen)} images are chosen", hint="choose two: the first is there already"
            )

        def read() -> list[str]:
            return [image_name(self.builds, digest) for digest in chosen]

        names = await asyncio.to_thread(read)
        output = await self.site.commands.run_far("diff", "--format", "html", "--", *names)
        if not output.stdout.startswith(b"<!doctype"):
            raise output.failure()
        return self.site.whole(output.stdout.decode())


def image_name(builds: RecordedBuilds, digest: str) -> str:
    """Return the name of a build's image; raises `UsageError` for one that wrote files alone."""
    record = builds.find(digest)
    if not record.images:
        raise UsageError(
            f"{record.served_name!r} was written as files, without an image",
            hint="choose two images",
        )
    return record.images[0].target


def actions_of(row: BuildRow) -> tuple[tuple[str, str], ...]:
    """Return the names and addresses of what can be done with a build."""
    again = {"model": row.model, "instance": row.instance, "quantize": row.quantize}
    found: list[tuple[str, str, dict[str, Any]]] = [
        ("Plan or build again", "jobs/new", {name: text for name, text in again.items() if text})
    ]
    if row.runs_here:
        found.append(("Deploy", "endpoints/new", {"build": row.digest}))
    found.append(("Lineage", "lineage", {"ref": row.digest}))
    return tuple((name, f"{ROOT}/{place}?{urlencode(query)}") for name, place, query in found)
