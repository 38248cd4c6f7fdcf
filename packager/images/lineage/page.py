"""A lineage as a page: the drawing, and the same as a table."""

from __future__ import annotations

from packager.core.reports.report import (
    Drawing,
    Report,
    Row,
    Section,
    Table,
    Words,
    word_columns,
)
from packager.core.units import counted
from packager.core.version import __version__
from packager.images.lineage.drawing import lineage_svg
from packager.images.lineage.graph import KINDS, LineageGraph
from packager.images.lineage.report import described

CLAIMED = (
    "what is claimed comes from a record that is attached to the image; whoever may push there may "
    "attach one"
)
COLUMNS = word_columns("what", "kind", "standing", "made from", "facts")


def lineage_page(graph: LineageGraph) -> Report:
    """Return the graph, drawn and as a table."""
    order = sorted(
        graph.nodes.values(), key=lambda node: (KINDS.index(node.kind), node.label, node.id)
    )
    rows = (
        Row(
            (
                node.label,
                node.kind,
                described(node) or "recorded",
                ", ".join(f"{one.kind} {one.label}" for one in graph.before(node.id)),
                ", ".join(f"{name} {value}" for name, value in sorted(node.facts.items())),
            )
        )
        for node in order
    )
    notes = []
    if graph.left_out:
        many = counted(graph.left_out, "more thing")
        notes.append(Words(f"at least {many} are left out: the graph is too large"))
    if any(node.claimed for node in graph.nodes.values()):
        notes.append(Words(CLAIMED))
    return Report(
        kind="Lineage",
        title="Lineage of " + ", ".join(graph.nodes[one].label for one in graph.subjects),
        sections=(
            Section(key="drawing", title="Drawing", parts=(Drawing(lineage_svg(graph)), *notes)),
            Section(
                key="table",
                title="Everything in it",
                parts=(Table(columns=COLUMNS, rows=tuple(rows), caption="The same as a table"),),
            ),
        ),
        footer="Made of build records, the artifact cache, jobs and endpoints; what nobody "
        "recorded is shown as unknown.",
        packager=__version__,
        is_wide=True,
    )
