"""Objects as YAML documents, read back and compared with what was meant."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import yaml

from packager.core.deployment import DeployFile
from packager.core.errors import UsageError
from packager.engines.rendering.environment import render_template

Object: TypeAlias = Mapping[str, Any]

# Keys that YAML 1.1 reads as text without quotes; `on` and `y` it would not.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9]{2,}", re.ASCII)
_WORDS = frozenset({"yes", "true", "false", "off", "null", "nan", "inf"})


def not_read_back(path: str) -> UsageError:
    """Return an error: a rendered document does not say what was meant: a value has what YAML reads

    otherwise.
    """
    return UsageError(
        f"the rendered file {path!r} does not read back as it was meant",
        hint="leave emoji and other characters above U+FFFF out of names and variables",
        code="NotReadBack",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One line: a key, a value, or both; `item` where it starts an entry of a list."""

    indent: tuple[int, ...]
    key: str | None
    value: Any = None
    leaf: bool = False
    item: bool = False

    @property
    def plain(self) -> bool:
        key = self.key
        return key is not None and bool(_PLAIN.fullmatch(key)) and key.lower() not in _WORDS


def render_object(path: str, document: Object) -> DeployFile:
    """Return a document as a file; raise `UsageError` where YAML reads another value."""
    text = render_template("deploy/document.yaml.j2", rows=list(_rows(document, 0)))
    if list(yaml.safe_load_all(text)) != [_plain(document)]:
        raise not_read_back(path)
    return DeployFile(path, text)


def _rows(found: Object, depth: int) -> Iterator[_Row]:
    indent = tuple(range(depth))
    for key, value in found.items():
        if isinstance(value, Mapping) and value:
            yield _Row(indent=indent, key=key)
            yield from _rows(value, depth + 1)
        elif isinstance(value, list | tuple) and any(isinstance(one, Mapping) for one in value):
            yield _Row(indent=indent, key=key)
            for one in value:
                yield from _entry(one, depth)
        else:
            yield _Row(indent=indent, key=key, value=_plain(value), leaf=True)


def _entry(found: Any, depth: int) -> Iterator[_Row]:
    """Yield an entry of a list: the mark takes the place of two columns of its first key."""
    indent = tuple(range(depth))
    if not isinstance(found, Mapping) or not found:
        yield _Row(indent=indent, key=None, value=_plain(found), leaf=True, item=True)
        return
    for number, row in enumerate(_rows(found, depth + 1)):
        yield replace(row, indent=indent, item=True) if number == 0 else row


def _plain(value: Any) -> Any:
    """Return a value as JSON and YAML have it."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(one) for one in value]
    return value
