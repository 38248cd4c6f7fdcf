"""A lineage as text and as a document."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from packager.core.text import escape
from packager.images.lineage.graph import LineageGraph, LineageNode

SCHEMA = 1
MOST_LINES = 400  # of each half of the text
_SHOWN = ("digest", "key", "engine", "versions", "took", "workload", "status", "names")
_LONGEST = 100


def lineage_document(graph: LineageGraph) -> dict[str, Any]:
    """Return the graph for programs: nodes by id, edges from inputs to results."""
    return {
        "schema": SCHEMA,
        "subjects": list(graph.subjects),
        "nodes": [
            {
                "id": node.id,
                "kind": node.kind,
                "label": node.label,
                "facts": dict(sorted(node.facts.items())),
                "claimed": node.claimed,
                "known": node.known,
            }
            for node in sorted(graph.nodes.values(), key=lambda one: one.id)
        ],
        "edges": [{"from": edge.source, "to": edge.target} for edge in graph.edges],
        "left_out": graph.left_out,
    }


def lineage_lines(graph: LineageGraph) -> list[str]:
    """Return two trees for each subject: its inputs, and the results made from it."""
    lines: list[str] = []
    for subject in graph.subjects:
        node = graph.nodes[subject]
        lines += [_line(node), *(f"  {fact}" for fact in _facts(node))]
        lines += _half("made from", node, graph.before)
        lines += _half("went into", node, graph.after)
    if graph.left_out:
        lines.append(f"at least {graph.left_out:,} more are not shown: the graph is too large")
    if any(node.claimed for node in graph.nodes.values()):
        lines.append("(claimed): by a record attached to the image; nothing here proves it")
    return [escape(line) for line in lines]


def described(node: LineageNode) -> str:
    """Return a node's standing in words; "" for what was recorded here."""
    return "unknown" if not node.known else "claimed" if node.claimed else ""


def _half(
    title: str, node: LineageNode, neighbours: Callable[[str], tuple[LineageNode, ...]]
) -> Iterator[str]:
    found = list(_tree(node, neighbours))
    if not found:
        yield f"{title}: nothing that is recorded"
        return
    yield title
    yield from found[:MOST_LINES]
    if len(found) > MOST_LINES:
        yield f"… and {len(found) - MOST_LINES:,} lines more; --format json has all"


def _tree(
    start: LineageNode, neighbours: Callable[[str], tuple[LineageNode, ...]]
) -> Iterator[str]:
    """Yield the lines of a tree; repeated nodes are named without their subtree."""
    seen = {start.id}
    waiting = [(one, "", is_last) for one, is_last in _with_last(neighbours(start.id))][::-1]
    while waiting:
        node, indent, is_last = waiting.pop()
        again = node.id in seen
        yield f"{indent}{'└─' if is_last else '├─'} {_line(node)}{' (above)' if again else ''}"
        if again:
            continue
        seen.add(node.id)
        deeper = f"{indent}{'   ' if is_last else '│  '}"
        yield from (f"{deeper}   {fact}" for fact in _facts(node))
        waiting += [(one, deeper, last) for one, last in _with_last(neighbours(node.id))][::-1]


def _with_last(nodes: tuple[LineageNode, ...]) -> list[tuple[LineageNode, bool]]:
    return [(node, at == len(nodes) - 1) for at, node in enumerate(nodes)]


def _line(node: LineageNode) -> str:
    standing = described(node)
    return f"{node.kind:<10} {_short(node.label)}{f' ({standing})' if standing else ''}"


def _facts(node: LineageNode) -> list[str]:
    return [f"{name} {_short(node.facts[name])}" for name in _SHOWN if node.facts.get(name)]


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
