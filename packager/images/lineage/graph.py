"""Lineage as a directed graph without cycles, from inputs to results; pure values.

A node is identified by the digest of its contents, if known: two directories of one name are two
models.  Unrecorded inputs are nodes marked so; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, get_args

NodeKind = Literal[
    "data", "model", "adapter", "draft", "base", "step", "artifact",
    "image", "tree", "job", "endpoint", "benchmark", "evaluation",
]  # fmt: skip
KINDS: tuple[NodeKind, ...] = get_args(NodeKind)
MOST_NODES = 2_000  # of one graph; beyond it the farthest are left out


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageNode:
    """One thing, and what is known of it."""

    id: str  # `KIND:…`, such as `image:sha256:…`
    kind: NodeKind
    label: str  # a few words for people
    facts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    claimed: bool = False  # claimed by a document attached to the image
    known: bool = True  # False: a placeholder for an unrecorded input


@dataclass(frozen=True, slots=True, order=True)
class Edge:
    """`source` is an input of `target`."""

    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """What one document says: nodes, edges, and other names of nodes."""

    nodes: tuple[LineageNode, ...] = ()
    edges: tuple[Edge, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()  # (name, id of a node)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageGraph:
    """All inputs of some nodes, and all results made from them."""

    subjects: tuple[str, ...]  # ids of the requested nodes
    nodes: Mapping[str, LineageNode]
    edges: tuple[Edge, ...]
    left_out: int = 0  # nodes beyond `MOST_NODES`, at least

    def before(self, node: str) -> tuple[LineageNode, ...]:
        """Return a node's direct inputs."""
        return self._sorted(edge.source for edge in self.edges if edge.target == node)

    def after(self, node: str) -> tuple[LineageNode, ...]:
        """Return a node's direct results."""
        return self._sorted(edge.target for edge in self.edges if edge.source == node)

    def _sorted(self, ids: Iterable[str]) -> tuple[LineageNode, ...]:
        found = (self.nodes[one] for one in set(ids))
        return tuple(sorted(found, key=lambda node: (KINDS.index(node.kind), node.label, node.id)))


Neighbours = Callable[[str], Iterable[str]]


def reach(start: Iterable[str], neighbours: Neighbours, most: int) -> tuple[list[str], int]:
    """Return the nodes that are reached, nearest first, and how many more are next to them."""
    found = dict.fromkeys(start)
    waiting, beyond = list(found), set[str]()
    for node in waiting:
        for other in sorted(neighbours(node)):
            if other in found:
                continue
            if len(found) >= most:
                beyond.add(other)
                continue
            found[other] = None
            waiting.append(other)
    return waiting, len(beyond)


def merged(one: LineageNode, other: LineageNode) -> LineageNode:
    """Return what two documents say of one node; what we recorded wins over a claim."""
    first, second = sorted((one, other), key=lambda node: (not node.known, node.claimed))
    if first.claimed or not second.claimed:
        return replace(first, facts=MappingProxyType({**second.facts, **first.facts}))
    return first


def layers_of(graph: LineageGraph) -> list[list[str]]:
    """Return the nodes in columns: each one right of all of its inputs.

    Hostile documents may contain cycles: their edges end the search.
    """
    into: dict[str, list[str]] = {node: [] for node in graph.nodes}
    for edge in graph.edges:
        into[edge.target].append(edge.source)
    depth: dict[str, int] = {}
    for start in graph.nodes:
        stack: list[tuple[str, bool]] = [(start, False)]
        open_: set[str] = set()
        while stack:
            node, is_done = stack.pop()
            if is_done:
                open_.discard(node)
                depth[node] = 1 + max((depth.get(one, -1) for one in into[node]), default=-1)
            elif node not in depth and node not in open_:
                open_.add(node)
                stack.append((node, True))
                stack += [(one, False) for one in into[node] if one not in depth]
    columns: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in graph.nodes:
        columns[depth[node]].append(node)
    return columns
