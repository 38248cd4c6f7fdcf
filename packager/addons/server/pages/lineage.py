"""The page of lineage: the sources of an artifact, and its uses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from aiohttp import web
from markupsafe import Markup

from packager.addons.server.pages.guard import is_foreign
from packager.addons.server.pages.site import ROOT, Site
from packager.core.command_line import command_text
from packager.core.errors import PackagerError
from packager.core.values import dataclass

MOST_REF = 4096


@dataclass(frozen=True, slots=True)
class LineagePages:
    """Handlers of the page."""

    site: Site

    async def show(self, request: web.Request) -> web.Response:
        """Show the graph for the form's name, drawn and as a table."""
        ref = request.query.get("ref", "").strip()[:MOST_REF]
        values: dict[str, Any] = {
            "values": {"ref": ref},
            "errors": {},
            "drawing": None,
            "rows": [],
            "command_words": command_text(("packager", "lineage", "--", ref)),
            "wide": True,
        }
        status = 200
        if ref and not is_foreign(request):  # it may contact a registry that the other site chose
            try:
                values |= await self._graph(ref)
            except PackagerError as error:
                hint = f": {error.hint}" if error.hint else ""
                values["errors"] = {"ref": f"{error}{hint}"}
                status = 400
        return self.site.page(
            request, "lineage_of.html.j2", values, section="lineage", status=status
        )

    async def _graph(self, ref: str) -> dict[str, Any]:
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
        return {
            "drawing": Markup(drawn.stdout.decode()),  # escaped where it is made
            "rows": [row_of(node, before.get(node["id"], [])) for node in document["nodes"]],
        }


def row_of(node: Mapping[str, Any], before: list[str]) -> dict[str, Any]:
    """Return a row of the table, with where its name leads to."""
    standing = "claimed" if node["claimed"] else "" if node["known"] else "unknown"
    facts = node["facts"]
    return {
        "kind": node["kind"],
        "label": node["label"],
        "link": _link(node),
        "standing": standing or "recorded",
        "facts": ", ".join(f"{name} {text}" for name, text in facts.items() if text),
        "before": ", ".join(before) or "nothing that is recorded",
    }


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
