"""The page of lineage: the sources of an artifact, and its uses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from aiohttp import web

from packager.addons.server.pages.guard import is_foreign
from packager.addons.server.pages.recorded import RecordedBuilds
from packager.addons.server.pages.site import ROOT, Site
from packager.core.command_line import command_text
from packager.core.errors import PackagerError
from packager.core.reports.report import Command, Drawing, Report, Row, Section, Table, Words
from packager.images.lineage.page import COLUMNS

MOST_REF = 4096
_BORDERS = "Dashed: claimed by a record attached to the image. Dotted: nobody recorded it"


@dataclass(frozen=True, slots=True)
class LineagePages:
    """Handlers of the page."""

    site: Site
    builds: RecordedBuilds

    async def show(self, request: web.Request) -> web.Response:
        """Show the graph for the form's name, or for the newest build, drawn and as a table."""
        ref = request.query.get("ref", "").strip()[:MOST_REF]
        if not ref:
            newest, _ = await asyncio.to_thread(self.builds.rows, 0, 1)
            ref = newest[0].digest if newest else ""
        values: dict[str, Any] = {"values": {"ref": ref}, "errors": {}, "wide": True}
        values |= {"first": "", "more": "", "report": Report(title="Lineage", sections=())}
        status = 200
        if ref and not is_foreign(request):  # it may contact a registry that the other site chose
            try:
                values["report"] = await self._graph(ref)
            except PackagerError as error:
                hint = f": {error.hint}" if error.hint else ""
                values["errors"] = {"ref": f"{error}{hint}"}
                status = 400
        return self.site.page(request, "shown.html.j2", values, section="lineage", status=status)

    async def _graph(self, ref: str) -> Report:
        drawn, graph = await asyncio.gather(
            self.site.commands.run_far("lineage", "--format", "svg", "--", ref),
            self.site.commands.run_far("lineage", "--format", "json", "--", ref),
        )
        for output in (drawn, graph):
            if output.status:
                raise output.failure()
        document = graph.document()
        names = {node["id"]: f"{node['kind']} {node['label']}" for node in document["nodes"]}
        before: dict[str, list[str]] = {}
        for edge in document["edges"]:
            before.setdefault(edge["to"], []).append(names.get(edge["from"], edge["from"]))
        rows = tuple(row_of(node, before.get(node["id"], [])) for node in document["nodes"])
        command = command_text(("packager", "lineage", "--", ref))
        subjects = ", ".join(names.get(one, ref) for one in document.get("subjects", ()))
        return Report(
            title=f"Lineage of {subjects or ref}",
            sections=(
                Section(
                    key="graph",
                    title="From what went in to what came out",
                    parts=(Drawing(drawn.stdout.decode()), Words(_BORDERS)),
                ),
                Section(
                    key="parts",
                    title="The same as a table",
                    parts=(
                        Table(columns=COLUMNS, rows=rows, caption="Everything in it"),
                        Command(command, "shows the lineage"),
                    ),
                ),
            ),
        )


def row_of(node: Mapping[str, Any], before: list[str]) -> Row:
    """Return a row of the table, with where its name leads to."""
    standing = "claimed" if node["claimed"] else "" if node["known"] else "unknown"
    facts = ", ".join(f"{name} {text}" for name, text in node["facts"].items() if text)
    made_from = ", ".join(before) or "nothing that is recorded"
    cells = (node["label"], node["kind"], standing or "recorded", made_from, facts)
    return Row(cells, href=_link(node))


def _link(node: Mapping[str, Any]) -> str:
    of, _, name = str(node["id"]).partition(":")
    if of == "job" and "/" in name:
        kind, _, name = name.partition("/")
        return f"{ROOT}/jobs/{quote(kind, safe='')}/{quote(name, safe='')}"
    if of == "endpoint":
        return f"{ROOT}/endpoints/{quote(name, safe='')}"
    facts = node["facts"]
    found = facts.get("digest") or facts.get("key")
    return f"{ROOT}/lineage?{urlencode({'ref': found})}" if isinstance(found, str) else ""
