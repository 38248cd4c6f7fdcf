"""A lineage as a page of HTML: the drawing, and the same as tables."""

from __future__ import annotations

from markupsafe import Markup

from packager.core.reports.page import render_page
from packager.images.lineage.drawing import lineage_svg
from packager.images.lineage.graph import KINDS, LineageGraph
from packager.images.lineage.report import described


def lineage_html(graph: LineageGraph) -> str:
    """Return a self-contained page; untrusted text is escaped."""
    order = sorted(
        graph.nodes.values(), key=lambda node: (KINDS.index(node.kind), node.label, node.id)
    )
    rows = [
        {
            "kind": node.kind,
            "label": node.label,
            "standing": described(node) or "recorded",
            "facts": ", ".join(f"{name} {value}" for name, value in sorted(node.facts.items())),
            "before": ", ".join(f"{one.kind} {one.label}" for one in graph.before(node.id)),
        }
        for node in order
    ]
    subjects = [graph.nodes[one] for one in graph.subjects]
    page = {
        "title": "Lineage of " + ", ".join(node.label for node in subjects),
        "drawing": Markup(lineage_svg(graph)),  # escaped where it is made
        "rows": rows,
        "left_out": graph.left_out,
        "claimed": any(node.claimed for node in graph.nodes.values()),
    }
    return render_page("lineage.html.j2", page)
