"""Untrusted YAML as nodes with places: bounded in depth and count, aliases included.

The parser's events are put together here, one after another: its own composer recurses, and
an alias to an alias to an alias would stand for more values than a machine has memory.
Nothing is constructed: a node is text, a list or a mapping.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.resolver import Resolver

from packager.core.documents import NotStrict, shorten
from packager.core.positions import Place, Span, spans_of

MAX_DEPTH = 64
MAX_NODES = 100_000  # with every alias counted as its value
MERGE = "<<"
TYPES = {
    "tag:yaml.org,2002:null": "null",
    "tag:yaml.org,2002:bool": "bool",
    "tag:yaml.org,2002:int": "int",
    "tag:yaml.org,2002:float": "float",
}
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True, kw_only=True)
class YamlNode:
    """One value. `type` is `null`, `bool`, `int`, `float`, `text`, `list` or `mapping`."""

    type: str
    line: int
    column: int
    text: str = ""
    style: str = ""  # of text: `|`, `>`, a quote, or "" for plain
    tag: str = ""  # that the file gives it, such as `!reset`
    begins: tuple[int, int] = (0, 0)  # line and column of its text, if its lines are the file's
    items: list[YamlNode] = field(default_factory=list)
    pairs: list[tuple[YamlNode, YamlNode]] = field(default_factory=list)
    size: int = 1  # nodes in it, aliases as what they stand for

    def get(self, *path: str) -> YamlNode | None:
        """Return the value under a path of keys; the last of a key that is given twice wins."""
        node: YamlNode | None = self
        for key in path:
            node = node.entries().get(key) if node is not None else None
        return node

    def entries(self) -> dict[str, YamlNode]:
        """Return a mapping's values by key, those of merged mappings (`<<`) below its own."""
        merged: dict[str, YamlNode] = {}
        own: dict[str, YamlNode] = {}
        for key, value in self.pairs:
            if key.text == MERGE and not key.style:
                for base in value.items or [value]:
                    merged = {**base.entries(), **merged}
            else:
                own[key.text] = value
        return {**merged, **own}

    def listed(self, *path: str) -> list[YamlNode]:
        """Return the elements of the list under a path; empty where there is no list."""
        node = self.get(*path)
        return node.items if node is not None else []

    def value(self, *path: str) -> str:
        """Return the text under a path; "" where there is none."""
        node = self.get(*path)
        return node.text if node is not None else ""


def spans_in(node: YamlNode, file: str) -> tuple[Span, ...]:
    """Return where the lines of a node's text stand; none where they are not the file's."""
    line, column = node.begins
    return spans_of(node.text, Place(file, line, column)) if line else ()


def parse_yaml(text: str) -> list[YamlNode]:
    """Parse every document of a stream; raise `NotStrict` with a reason."""
    try:
        return [document for document in _documents(text) if document.type != "null"]
    except NotStrict:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise NotStrict(f"it is not YAML: {where}{shorten(str(error.problem), 120)}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise NotStrict(f"it is not YAML: {shorten(str(error), 120)}") from None


def _documents(text: str) -> Iterator[YamlNode]:
    resolver, lines = Resolver(), text.split("\n")
    anchors: dict[str, YamlNode] = {}
    open_nodes: list[YamlNode] = []
    count = 0
    for event in yaml.parse(text, Loader=LOADER):
        if isinstance(event, yaml.DocumentStartEvent):
            anchors, open_nodes = {}, []
            continue
        if isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            done = open_nodes.pop()
            _pair_up(done)
            if not open_nodes:
                yield done
            else:
                open_nodes[-1].size += done.size
            continue
        node = _node_of(event, anchors, resolver, open_nodes)
        if node is None:
            continue
        if isinstance(event, yaml.ScalarEvent):
            node.begins = _begins(event, lines)
        count += node.size
        if count > MAX_NODES:
            raise NotStrict(f"it has more than {MAX_NODES} values, aliases counted as their text")
        if open_nodes:
            open_nodes[-1].items.append(node)
        if isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            open_nodes.append(node)
            if len(open_nodes) > MAX_DEPTH:
                raise NotStrict(f"it is nested deeper than {MAX_DEPTH}")
        elif open_nodes:
            open_nodes[-1].size += node.size
        else:
            yield node


def _node_of(
    event: Any, anchors: dict[str, YamlNode], resolver: Resolver, open_nodes: list[YamlNode]
) -> YamlNode | None:
    mark = event.start_mark
    line, column = mark.line + 1, mark.column + 1
    if isinstance(event, yaml.AliasEvent):
        if event.anchor not in anchors:
            raise NotStrict(f"line {line}: no anchor is called {shorten(event.anchor, 40)}")
        meant = anchors[event.anchor]
        if any(meant is node for node in open_nodes):
            raise NotStrict(
                f"line {line}: {shorten(event.anchor, 40)} is an alias of what it is in"
            )
        return meant
    if isinstance(event, yaml.ScalarEvent):
        type_ = "text"
        if event.implicit[0] and not event.style:
            tag = resolver.resolve(yaml.ScalarNode, event.value, event.implicit)
            type_ = TYPES.get(tag, "text")
        node = YamlNode(
            type=type_, line=line, column=column, text=event.value, style=event.style or ""
        )
    elif isinstance(event, yaml.SequenceStartEvent):
        node = YamlNode(type="list", line=line, column=column)
    elif isinstance(event, yaml.MappingStartEvent):
        node = YamlNode(type="mapping", line=line, column=column)
    else:
        return None
    node.tag = event.tag or ""
    if event.anchor:
        anchors[event.anchor] = node
    return node


def _begins(event: Any, lines: list[str]) -> tuple[int, int]:
    start, end = event.start_mark, event.end_mark
    if event.style == "|":
        for number in range(start.line + 1, min(end.line + 1, len(lines))):
            bare = lines[number].lstrip(" ")
            if bare:
                return start.line + 2, len(lines[number]) - len(bare) + 1
    if start.line == end.line and event.style != ">":
        return start.line + 1, start.column + 1 + (1 if event.style else 0)
    return (0, 0)


def _pair_up(node: YamlNode) -> None:
    """Pair a mapping's keys and values, which arrive one after another."""
    if node.type == "mapping":
        flat, node.items = node.items, []
        node.pairs = list(zip(flat[::2], flat[1::2], strict=True))
