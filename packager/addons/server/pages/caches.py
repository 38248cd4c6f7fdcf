"""The page of the artifact cache: the output of `packager cache ls` and `stats`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from packager.addons.server.pages.job_views import duration, minute
from packager.addons.server.pages.numbered import turn
from packager.addons.server.pages.site import ROOT, Site
from packager.core.reports.report import (
    Command,
    Pair,
    Report,
    Row,
    Section,
    Table,
    Words,
    number_columns,
    word_columns,
)
from packager.core.units import counted, decimal, percent

ROWS = 100  # of a page
_COLUMNS = (
    *word_columns("key", "kind", "model"),
    *number_columns("size, MB", "took, s"),
    *word_columns("built, UTC", "last used, UTC", "held"),
)
_EMPTY = (
    "the cache is empty: what jobs quantize, compile and train is kept here, and found by the next "
    "one"
)


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
        table = Table(
            columns=_COLUMNS,
            rows=tuple(map(row_of, shown)),
            caption=f"{len(entries):,} {'entry' if len(entries) == 1 else 'entries'}",
            is_sorted=True,
        )
        parts = (table if shown else Words(_EMPTY), Command("packager cache ls", "lists the cache"))
        report = Report(
            title="Artifact cache",
            origin=(totals["place"], totals["capability"]),
            tiles=tiles_of(totals),
            sections=(Section(key="entries", title="Entries", parts=parts),),
        )
        values = {"report": report, "wide": True, **links}
        return self.site.page(request, "shown.html.j2", values, section="caches")


def tiles_of(totals: Mapping[str, Any]) -> tuple[Pair, ...]:
    """Return the figures above the table."""
    events: dict[str, int] = {}
    spent = 0.0
    for one in totals["totals"]:
        events[one["event"]] = events.get(one["event"], 0) + one["count"]
        if one["event"] == "hit":
            spent += one["seconds"]
    hits, misses = events.get("hit", 0), events.get("miss", 0)
    return (
        Pair("entries", f"{totals['entries']:,}"),
        Pair("on the disk", decimal(totals["bytes"])),
        Pair(f"of {counted(hits + misses, 'lookup')} were hits", _rate(totals)),
        Pair("saved by hits", duration(spent)),
        Pair("failed builds are remembered", f"{totals['failures']:,}"),
    )


def row_of(entry: Mapping[str, Any]) -> Row:
    """Return a row of the table."""
    return Row(
        (
            *(entry["shown"], entry["kind"], entry["model"]),
            f"{entry['bytes'] / 1e6:,.1f}",
            f"{entry['build_s']:,.1f}",
            *(minute(datetime.fromtimestamp(entry[of], UTC)) for of in ("built_at", "used_at")),
            ", ".join(word for word in ("pinned", "signed") if entry.get(word)),
        )
    )


def _rate(totals: Mapping[str, Any]) -> str:
    rate = totals.get("hit_rate")
    return percent(rate) if isinstance(rate, int | float) else "none"
