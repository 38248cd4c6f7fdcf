"""The page of the artifact cache: the output of `packager cache ls` and `stats`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from packager.addons.server.pages.job_views import duration, minute
from packager.addons.server.pages.numbered import turn
from packager.addons.server.pages.site import ROOT, Site
from packager.core.units import counted, decimal, percent
from packager.core.values import dataclass

ROWS = 100  # of a page


@dataclass(frozen=True, slots=True)
class CachePages:
    """Handlers of the page."""

    site: Site

    async def show(self, request: web.Request) -> web.Response:
        """Show a page of the entries, the last used first, and the totals."""
        run = self.site.commands.document
        entries, totals = await asyncio.gather(
            run("cache", "ls", "--sort", "used"), run("cache", "stats")
        )
        shown, links = turn(request, entries, ROWS, f"{ROOT}/caches")
        values = {
            "place": totals["place"],
            "capability": totals["capability"],
            "tile_values": list(tiles_of(totals)),
            "counted": f"{len(entries):,} {'entry' if len(entries) == 1 else 'entries'}",
            "rows": [row_of(one) for one in shown],
            "wide": True,
            **links,
        }
        return self.site.page(request, "caches.html.j2", values, section="caches")


def tiles_of(totals: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the figures above the table."""
    events: dict[str, int] = {}
    spent = 0.0
    for one in totals["totals"]:
        events[one["event"]] = events.get(one["event"], 0) + one["count"]
        if one["event"] == "hit":
            spent += one["seconds"]
    hits, misses = events.get("hit", 0), events.get("miss", 0)
    return [
        {"name": "entries", "value": f"{totals['entries']:,}"},
        {"name": "on the disk", "value": decimal(totals["bytes"])},
        {"name": f"of {counted(hits + misses, 'lookup')} were hits", "value": _rate(totals)},
        {"name": "saved by hits", "value": duration(spent)},
        {"name": "failed builds are remembered", "value": f"{totals['failures']:,}"},
    ]


def row_of(entry: Mapping[str, Any]) -> dict[str, str]:
    """Return a row of the table."""
    held = [word for word in ("pinned", "signed") if entry.get(word)]
    return {
        "shown": entry["shown"],
        "kind": entry["kind"],
        "model": entry["model"],
        "size": f"{entry['bytes'] / 1e6:,.1f}",
        "took": f"{entry['build_s']:,.1f}",
        "built": minute(datetime.fromtimestamp(entry["built_at"], UTC)),
        "used": minute(datetime.fromtimestamp(entry["used_at"], UTC)),
        "held": ", ".join(held),
    }


def _rate(totals: Mapping[str, Any]) -> str:
    rate = totals.get("hit_rate")
    return percent(rate) if isinstance(rate, int | float) else "none"
