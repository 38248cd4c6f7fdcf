"""Values of a YAML document, as JSON has them.

A plain word is what YAML 1.2 says that it is: `64:32`, `yes` and `010` are texts, which readers of
YAML 1.1 take for a number of minutes, a truth and the number eight.
"""

from __future__ import annotations

import re
from typing import Any

from artifact_cache.strict_json import parse_finite
from packager.core.documents import NotStrict, shorten
from packager.core.yaml_nodes import MERGE, YamlNode, parse_yaml

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,18})", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\d{1,40}\.\d{0,40}|\.\d{1,40}|\d{1,40})([eE][-+]?\d{1,3})?", re.ASCII)
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}


def parse_yaml_table(data: bytes) -> dict[str, Any]:
    """Parse a document that is one mapping; raise `NotStrict` with a reason.

    Tags, merged mappings and a key that is given twice are refused or mean nothing.
    """
    try:
        documents = parse_yaml(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise NotStrict(f"byte {error.start} is not UTF-8") from None
    if len(documents) != 1 or documents[0].type != "mapping":
        raise NotStrict("it is not one mapping of names to values")
    return _mapping(documents[0])


def parse_yaml_values(data: bytes) -> list[Any]:
    """Parse every document of a stream; raise `NotStrict` with a reason, for tags, too."""
    try:
        documents = parse_yaml(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise NotStrict(f"byte {error.start} is not UTF-8") from None
    for document in documents:
        _refuse_tags(document)
    return [_value(document) for document in documents]


def _refuse_tags(document: YamlNode) -> None:
    waiting = [document]
    while waiting:
        node = waiting.pop()
        if node.tag:
            raise NotStrict(f"line {node.line}: the tag {shorten(node.tag, 40)} means nothing here")
        waiting += [*node.items, *(one for pair in node.pairs for one in pair)]


def _mapping(node: YamlNode) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in node.pairs:
        if key.type in ("list", "mapping") or (key.text == MERGE and not key.style):
            raise NotStrict(f"line {key.line}: a key must be a word")
        if key.text in found:
            raise NotStrict(f"line {key.line}: {shorten(key.text, 80)} is given twice")
        found[key.text] = _value(value)
    return found


def _value(node: YamlNode) -> Any:
    if node.type == "mapping":
        return _mapping(node)
    if node.type == "list":
        return [_value(item) for item in node.items]
    if node.type == "text" or node.style:
        return node.text
    text = node.text
    if text.lower() in _WORDS and text in (text.lower(), text.title(), text.upper()):
        return _WORDS[text.lower()]
    if node.type == "int" and _INTEGER.fullmatch(text):
        return int(text)
    if node.type in ("int", "float") and _FLOAT.fullmatch(text) and not _has_leading_zero(text):
        return parse_finite(text)
    return text


def _has_leading_zero(text: str) -> bool:
    return bool(re.match(r"[-+]?0\d", text))
