"""A lineage as an SVG drawing: columns from inputs to results.

It is readable without colour: each box has its kind in words, claims have a dashed border and
unrecorded inputs a dotted one, each with a label.  Screen readers get the same relations as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape as escape_markup

from packager.core.text import escape
from packager.images.lineage.graph import LineageGraph, LineageNode, layers_of
from packager.images.lineage.report import described

MOST_DRAWN = 300  # boxes; a larger drawing is unreadable
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 210, 54, 60, 18, 16
_LETTERS = 30  # that fit into a box
_INK, _PAPER = "#1a1a1a", "#ffffff"
_BORDERS = {"claimed": ' stroke-dasharray="6 3"', "unknown": ' stroke-dasharray="2 2"', "": ""}


@dataclass(frozen=True, slots=True)
class _Place:
    x: int
    y: int


def lineage_svg(graph: LineageGraph) -> str:
    """Return the graph as one SVG document that loads nothing and runs nothing."""
    columns = [column for column in layers_of(graph) if column]
    places, left_out = _places(graph, columns)
    left_out += graph.left_out
    width = max((place.x for place in places.values()), default=0) + _WIDTH + _MARGIN
    height = max((place.y for place in places.values()), default=0) + _HEIGHT + _MARGIN
    note = f"{left_out:,} more are not drawn" if left_out else ""
    height += 24 if note else 0
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="lineage-title '
        f'lineage-desc" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="12" fill="{_INK}">',
        f'<title id="lineage-title">{_text(_title(graph))}</title>',
        f'<desc id="lineage-desc">{_text(_told(graph, places))}</desc>',
        f'<rect width="{width}" height="{height}" fill="{_PAPER}"/>',
        '<defs><marker id="lineage-end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z"/>'
        "</marker></defs>",
    ]
    parts += [
        _line(places[edge.source], places[edge.target])
        for edge in graph.edges
        if edge.source in places and edge.target in places
    ]
    parts += [
        _box(
            graph.nodes[one],
            place,
            is_subject=one in graph.subjects,
            is_first=one == graph.subjects[0],
        )
        for one, place in places.items()
    ]
    if note:
        parts.append(f'<text x="{_MARGIN}" y="{height - _MARGIN}">{_text(note)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _places(graph: LineageGraph, columns: list[list[str]]) -> tuple[dict[str, _Place], int]:
    """Place the nodes, those nearest to the subjects first; return how many are left out."""
    drawn = set(list(dict.fromkeys((*graph.subjects, *graph.nodes)))[:MOST_DRAWN])
    places: dict[str, _Place] = {}
    for at, column in enumerate(columns):
        rows = sorted(one for one in column if one in drawn)
        rows.sort(key=lambda one: (_height_of(graph, one, places), graph.nodes[one].label))
        for row, one in enumerate(rows):
            x = _MARGIN + at * (_WIDTH + _GAP_X)
            places[one] = _Place(x, _MARGIN + row * (_HEIGHT + _GAP_Y))
    return places, len(graph.nodes) - len(places)


def _height_of(graph: LineageGraph, node: str, places: Mapping[str, _Place]) -> float:
    """Return the mean height of a node's inputs: fewer lines cross."""
    above = [places[edge.source].y for edge in graph.edges
             if edge.target == node and edge.source in places]  # fmt: skip
    return sum(above) / len(above) if above else 0.0


def _box(node: LineageNode, place: _Place, *, is_subject: bool, is_first: bool) -> str:
    standing = described(node)
    border = f'stroke-width="{3 if is_subject else 1}"{_BORDERS[standing]}'
    mark = ' id="lineage-subject"' if is_first else ""  # pages scroll to it
    kind = f"{node.kind}{f' ({standing})' if standing else ''}"
    title = "\n".join((node.label, *(f"{name}: {value}" for name, value in node.facts.items())))
    return (
        f"<g><title>{_text(f'{kind}: {title}')}</title>"
        f'<rect{mark} x="{place.x}" y="{place.y}" rx="4" width="{_WIDTH}" height="{_HEIGHT}" '
        f'fill="{_PAPER}" stroke="{_INK}" {border}/>'
        f'<text font-weight="bold" x="{place.x + 8}" y="{place.y + 20}">{_text(kind)}</text>'
        f'<text x="{place.x + 8}" y="{place.y + 40}">{_text(_short(node.label))}</text></g>'
    )


def _line(source: _Place, target: _Place) -> str:
    x, y = source.x + _WIDTH, source.y + _HEIGHT // 2
    to_x, to_y = target.x, target.y + _HEIGHT // 2
    middle = (x + to_x) // 2
    return (
        f'<path fill="none" stroke="{_INK}" marker-end="url(#lineage-end)" '
        f'd="M{x} {y}C{middle} {y} {middle} {to_y} {to_x} {to_y}"/>'
    )


def _title(graph: LineageGraph) -> str:
    return "Lineage of " + ", ".join(
        f"{graph.nodes[one].kind} {graph.nodes[one].label}" for one in graph.subjects
    )


def _told(graph: LineageGraph, places: Mapping[str, _Place]) -> str:
    """Return the relations as sentences."""
    named = {one: f"{node.kind} {node.label}" for one, node in graph.nodes.items()}
    return " ".join(
        f"{named[edge.source]} went into {named[edge.target]}."
        for edge in graph.edges
        if edge.source in places and edge.target in places
    )


def _short(text: str) -> str:
    return text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…"


def _text(text: str) -> str:
    """Escape untrusted text for XML; a line feed stays only between our own lines."""
    return escape_markup("\n".join(map(escape, text.split("\n"))), quote=True)
