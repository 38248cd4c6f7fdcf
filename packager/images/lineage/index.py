"""An index of the documents of this machine, for fast queries over ten thousand records.

It holds only what the documents state, and is rebuilt when it is damaged.  Records that
are deleted are forgotten; entries that left the artifact cache are remembered, as they still say
how an image came to be.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from artifact_cache.sqlite_files import open_derived
from packager.core.documents import NotStrict
from packager.core.errors import OutputFailed, PackagerError
from packager.images.lineage.graph import (
    MOST_NODES,
    Edge,
    Fragment,
    LineageGraph,
    LineageNode,
    merged,
    reach,
)
from packager.images.lineage.records import NAMED_IMAGE

_VERSION = 2
_SCHEMA = """
CREATE TABLE documents
    (id INTEGER PRIMARY KEY, place TEXT UNIQUE, stamp TEXT, fault TEXT);
CREATE TABLE nodes
    (document INTEGER, id TEXT, kind TEXT, label TEXT, facts TEXT, known INTEGER);
CREATE TABLE edges (document INTEGER, source TEXT, target TEXT);
CREATE TABLE aliases (document INTEGER, name TEXT, node TEXT);
CREATE INDEX nodes_id ON nodes (id);
CREATE INDEX aliases_name ON aliases (name);
CREATE INDEX nodes_document ON nodes (document);
CREATE INDEX edges_document ON edges (document);
CREATE INDEX aliases_document ON aliases (document)
"""
_PATIENCE_S = 60.0  # for another process that reads thousands of documents
_TABLES = ("nodes", "edges", "aliases")
_SHORTEST_PREFIX = 6  # of a key or a digest


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageDocument:
    """A document that says where something came from."""

    place: str  # names it; a path
    stamp: str  # changes when the document does
    read: Callable[[], Fragment]  # raises `NotStrict`, `PackagerError` or `OSError`
    is_kept: bool = False  # remembered after it is gone


class LineageIndex:
    """Fragments of documents, in SQLite.  `place` None: in memory, for this process."""

    def __init__(self, place: Path | None) -> None:
        self._place = place
        self._memory = None if place else _open(None)

    def update(self, documents: Iterable[LineageDocument]) -> tuple[str, ...]:
        """Read what is new or changed, forget what is gone; return what cannot be read."""
        listed = {document.place: document for document in documents}
        with self._opened() as base:
            base.execute("BEGIN IMMEDIATE")  # another process may be reading the same documents
            rows = base.execute("SELECT place, stamp, id FROM documents").fetchall()
            known = {place: (stamp, number) for place, stamp, number in rows}
            for place, (stamp, number) in known.items():
                document = listed.get(place)
                if document is None and place.startswith("kept:"):
                    continue
                if document is None or document.stamp != stamp:
                    _forget(base, number)
            for place, document in listed.items():
                if place not in known or known[place][0] != document.stamp:
                    _take_in(base, document)
            faults = base.execute("SELECT place, fault FROM documents WHERE fault != ''")
            return tuple(f"{place}: {fault}" for place, fault in faults if place in listed)

    def find(self, name: str) -> tuple[str, ...]:
        """Return the nodes of a name, a digest or the beginning of a digest."""
        bare = name.removeprefix("sha256:")
        is_prefix = len(bare) >= _SHORTEST_PREFIX and all(one in "0123456789abcdef" for one in bare)
        with self._opened() as base:
            found = [
                one
                for (one,) in base.execute(
                    "SELECT DISTINCT node FROM aliases WHERE name = ? "
                    "UNION SELECT id FROM nodes WHERE id = ?",
                    (name, name),
                )
            ]
            if not found and is_prefix:
                found = [
                    one
                    for (one,) in base.execute(
                        "SELECT DISTINCT node FROM aliases WHERE name >= ? AND name < ? "
                        "OR name >= ? AND name < ? LIMIT 100",
                        (bare, bare + "g", f"sha256:{bare}", f"sha256:{bare}g"),
                    )
                ]
        return tuple(sorted(found))

    def labels(self, ids: Sequence[str]) -> dict[str, LineageNode]:
        """Return the nodes of these ids, as far as they are known."""
        with self._opened() as base:
            return {node.id: node for one in ids for node in _nodes(base, one)}

    def graph(
        self, subjects: Sequence[str], more: Sequence[Fragment] = (), most: int = MOST_NODES
    ) -> LineageGraph:
        """Return all inputs of the subjects and all results made from them.

        `more` are fragments from elsewhere, such as records attached to images.
        """
        with self._opened() as base:
            same = _same(base, more)
            into: dict[str, set[str]] = defaultdict(set)
            out: dict[str, set[str]] = defaultdict(set)
            for source, target in _edges(base, more):
                one, other = same.get(source, source), same.get(target, target)
                if one != other:
                    into[other].add(one)
                    out[one].add(other)
            start = tuple(dict.fromkeys(same.get(one, one) for one in subjects))
            before, missing = reach(start, lambda node: into.get(node, ()), most)
            after, beyond = reach(start, lambda node: out.get(node, ()), most)
            kept = dict.fromkeys((*before, *after))
            nodes = {one: _found(base, one, more) for one in kept}
        edges = sorted(
            Edge(source, target)
            for source in kept
            for target in out.get(source, ())
            if target in kept
        )
        return LineageGraph(
            subjects=start, nodes=nodes, edges=tuple(edges), left_out=missing + beyond
        )

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        if self._memory is not None:
            with self._memory:
                yield self._memory
            return
        try:
            with closing(_open(self._place)) as base, base:
                yield base
        except sqlite3.Error as error:
            raise OutputFailed(
                f"the index {str(self._place)!r} cannot be used: {error}",
                hint="remove the file: it is made again from the documents",
            ) from error


def _open(place: Path | None) -> sqlite3.Connection:
    return open_derived(place, _SCHEMA, _VERSION, wait_s=_PATIENCE_S)


def _take_in(base: sqlite3.Connection, document: LineageDocument) -> None:
    fault, fragment = "", Fragment()
    try:
        fragment = document.read()
    except (NotStrict, PackagerError, OSError, RecursionError) as error:
        fault = str(error)[:500]
    row = (document.place, document.stamp, fault)
    number = base.execute(
        "INSERT INTO documents (place, stamp, fault) VALUES (?, ?, ?)", row
    ).lastrowid
    base.executemany(
        "INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?)",
        [
            (number, one.id, one.kind, one.label, json.dumps(dict(one.facts)), one.known)
            for one in fragment.nodes
        ],
    )
    base.executemany(
        "INSERT INTO edges VALUES (?, ?, ?)",
        [(number, edge.source, edge.target) for edge in fragment.edges],
    )
    base.executemany(
        "INSERT INTO aliases VALUES (?, ?, ?)",
        [(number, name, node) for name, node in fragment.aliases if name],
    )


def _forget(base: sqlite3.Connection, number: int) -> None:
    for table in _TABLES:
        base.execute(f"DELETE FROM {table} WHERE document = ?", (number,))
    base.execute("DELETE FROM documents WHERE id = ?", (number,))


def _edges(base: sqlite3.Connection, more: Sequence[Fragment]) -> Iterator[tuple[str, str]]:
    yield from base.execute("SELECT DISTINCT source, target FROM edges")
    yield from ((edge.source, edge.target) for one in more for edge in one.edges)


def _same(base: sqlite3.Connection, more: Sequence[Fragment]) -> dict[str, str]:
    """Return which nodes are another one: what an earlier step left, an image by its name.

    A name of several images identifies none of them.
    """
    rows = base.execute(
        "SELECT name, MIN(node), MIN(node) = MAX(node) FROM aliases "
        "WHERE name LIKE 'model:%' OR name LIKE 'image:name:%' GROUP BY name"
    )
    found = {
        name: node for name, node, is_only in rows if is_only or not name.startswith(NAMED_IMAGE)
    }
    for fragment in more:
        found |= {name: node for name, node in fragment.aliases if name.startswith("model:")}
    return found


def _nodes(base: sqlite3.Connection, node: str) -> list[LineageNode]:
    rows = base.execute(
        "SELECT DISTINCT id, kind, label, facts, known FROM nodes WHERE id = ?", (node,)
    )
    found: dict[str, LineageNode] = {}
    for name, kind, label, facts, known in rows:
        one = LineageNode(
            id=name, kind=kind, label=label, facts=json.loads(facts), known=bool(known)
        )
        found[name] = merged(found[name], one) if name in found else one
    return list(found.values())


def _found(base: sqlite3.Connection, node: str, more: Sequence[Fragment]) -> LineageNode:
    """Return a node as all documents describe it."""
    found = _nodes(base, node)
    found += [one for fragment in more for one in fragment.nodes if one.id == node]
    if not found:
        kind = node.partition(":")[0]
        return LineageNode(id=node, kind=kind, label="not recorded", known=False)  # type: ignore[arg-type]
    whole = found[0]
    for other in found[1:]:
        whole = merged(whole, other)
    return whole
