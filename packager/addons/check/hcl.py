"""HCL, as Nomad and Terraform write jobs, as the nodes that YAML has; no expression is evaluated.

A block is a mapping under its type, its labels are left out.  A call's words are those of its
arguments.  Any other value than a text, number, list or mapping is an empty text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator

from packager.core.documents import NotStrict
from packager.core.yaml_nodes import MAX_DEPTH, MAX_NODES, YamlNode

TOKEN = re.compile(
    r"(?P<space>[ \t\r\n]+|#[^\n]*|//[^\n]*|/\*.*?(?:\*/|\Z))"
    r"|<<-?(?P<heredoc>[A-Za-z_]\w*)[ \t]*\n"
    r'|"(?P<text>(?:\\.|[^"\\\n])*)"'
    r"|(?P<number>-?\d+(?:\.\d+)?)"
    r"|(?P<word>[A-Za-z_][\w.-]*(?:\[[\w\"*]*\][\w.]*)*)"
    r"|(?P<mark>[{}\[\]()=:,])"
    r"|(?P<other>.)",
    re.DOTALL,
)
TO_CLOSE = re.compile(r'(?:\\.|[^"\\\n])*', re.DOTALL)
END_MARK = re.compile(r"^[ \t]*(?P<name>[A-Za-z_]\w*)$", re.MULTILINE)
ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
OPENS = {"{": "}", "[": "]", "(": ")"}


def parse_hcl(text: str) -> list[YamlNode]:
    """Parse a file; raise `NotStrict` with a reason where brackets do not match."""
    root = YamlNode(type="mapping", line=1, column=1)
    open_nodes, closing = [root], [""]
    key: list[YamlNode | None] = [None]
    last: YamlNode | None = None
    for count, (token, kind, line, column) in enumerate(_tokens(text)):
        if count > MAX_NODES:
            raise NotStrict(f"it has more than {MAX_NODES} words")
        inner = open_nodes[-1]
        if token in OPENS and kind == "mark":
            # A call's parentheses stand for their contents.
            node = (
                inner
                if token == "("
                else YamlNode(type="list" if token == "[" else "mapping", line=line, column=column)
            )
            if token != "(":
                _put(inner, key, node)
            open_nodes.append(node)
            closing.append(OPENS[token])
            key.append(key[-1] if token == "(" else None)
            if len(open_nodes) > MAX_DEPTH:
                raise NotStrict(f"it is nested deeper than {MAX_DEPTH}")
        elif kind == "mark" and token in closing[-1:]:
            open_nodes.pop(), closing.pop(), key.pop()
        elif kind == "mark" and token in "}])":
            raise NotStrict(f"line {line}: {token!r} closes nothing")
        elif token in "=:" and kind == "mark" and inner.pairs and inner.pairs[-1][1] is last:
            key[-1] = inner.pairs.pop()[1]  # a name in quotes
        elif kind != "mark":
            last = _value(inner, key, token, kind, line, column)
    if len(open_nodes) > 1:
        raise NotStrict(f"{closing[-1]!r} is missing at its end")
    return [root]


def _value(
    inner: YamlNode, key: list[YamlNode | None], token: str, kind: str, line: int, column: int
) -> YamlNode:
    type_ = {"number": "float" if "." in token else "int"}.get(kind, "text")
    node = YamlNode(type=type_, line=line, column=column, text=token)
    if kind == "text":
        node.begins, node.style = (line, column + 1), '"'
    elif kind == "heredoc":
        node.begins, node.style = (line + 1, 1), "|"
    elif kind == "word" and token in {"true", "false", "null"}:
        node.type = "null" if token == "null" else "bool"
    if inner.type == "mapping" and ((kind == "word" and node.type == "text") or key[-1] is None):
        key[-1] = node  # the last name before a value; an expression's own words are passed over
    else:
        _put(inner, key, node)
    return node


def _put(inner: YamlNode, key: list[YamlNode | None], node: YamlNode) -> None:
    if inner.type == "list":
        inner.items.append(node)
        inner.size += 1
    elif key[-1] is not None:
        inner.pairs.append((key[-1], node))
        inner.size += 2
        if node.type in {"list", "mapping"}:
            key[-1] = None


def _tokens(text: str) -> Iterator[tuple[str, str, int, int]]:
    line, begun, at = 1, 0, 0
    ends, unclosed = _EndMarks(text), 0
    while (found := TOKEN.match(text, at)) is not None:
        if found[0] == '"':
            # What follows is not text either, up to the place where this one should have ended.
            unclosed = TO_CLOSE.match(text, at + 1).end()  # type: ignore[union-attr]
        column, end = found.start() - begun + 1, found.end()
        if found["heredoc"]:
            body = end
            last, end = ends.behind(found["heredoc"], end)
            yield text[body : max(body, last)], "heredoc", line, column
        elif found["text"] is not None:
            text_ = re.sub(r"\\(.)", lambda one: ESCAPES.get(one[1], one[1]), found["text"])
            yield text_, "text", line, column
        elif found.lastgroup in {"number", "word", "mark"}:
            yield found[0], str(found.lastgroup), line, column
        if newlines := text.count("\n", at, end):
            line += newlines
            begun = text.rfind("\n", at, end) + 1
        at = end
        while at < unclosed and text[at] == '"':
            at += 1


class _EndMarks:
    """Lines that may end a heredoc, found once: there may be as many that begin one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._places: dict[str, list[tuple[int, int]]] | None = None

    def behind(self, name: str, start: int) -> tuple[int, int]:
        """Return where the body ends that begins at `start`, and where its end mark does.

        Raises `NotStrict` where there is none.
        """
        if self._places is None:
            self._places = {}
            for mark in END_MARK.finditer(self._text):
                places = self._places.setdefault(mark["name"], [])
                places.append((mark.start() - 1, mark.end()))
        places = self._places.get(name, [])
        place = bisect_left(places, (start - 1, 0))
        if place == len(places):
            raise NotStrict(f"a text that begins with <<{name[:40]} has no end")
        return places[place]
