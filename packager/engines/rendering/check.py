"""Verification of rendered files: they are parsed and compared with the intended values.

A template that drops a line, or a value that ends one, would silently change a server's
configuration.  Here it stops the build.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from packager.core.errors import PackagerError

ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def render_mismatch(file: str, key: str, reader: str) -> PackagerError:
    """Return an error: a rendered file does not say what was meant.

    Always a bug in a template or filter.
    """
    return PackagerError(
        f"{file}: {key!r} does not parse back to its intended value, by {reader}",
        code="RenderMismatch",
    )


def check_json(file: str, text: str, meant: Mapping[str, Any]) -> None:
    """Raise `render_mismatch` unless `text` is `meant`, key by key."""
    try:
        read = json.loads(text)
    except ValueError:
        raise render_mismatch(file, "", "json") from None
    if not isinstance(read, dict):
        raise render_mismatch(file, "", "json")
    _compare(file, read, meant, "json")


def check_pair_template(file: str, text: str, instruction: str) -> None:
    """Raise `render_mismatch` unless `text` prints an instruction and a pair."""
    from jinja2 import Environment

    pair = [{"role": role, "content": role} for role in ("query", "document")]
    shape = Environment(trim_blocks=True, lstrip_blocks=True, autoescape=False)
    said = shape.from_string(text).render(messages=pair)
    if f"<Instruct>: {instruction}\n<Query>: query\n<Document>: document<" not in said:
        raise render_mismatch(file, "instruction", "jinja2")


def check_properties(file: str, text: str, meant: Mapping[str, str]) -> None:
    """Raise `render_mismatch` unless Java and a naive reader both read `meant`, in its order."""
    _compare(file, read_java_properties(text), meant, "Java")
    _compare(file, read_naive_properties(text), meant, "split('=', 1)")


def read_java_properties(text: str) -> dict[str, str]:
    """Read a .properties file as `java.util.Properties.load` does."""
    read: dict[str, str] = {}
    for line in _logical_lines(text):
        match = re.match(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", line, re.DOTALL)
        if match:
            read[_unescape(match[1])] = _unescape(match[2])
    return read


def read_naive_properties(text: str) -> dict[str, str]:
    """Read a .properties file as Python scripts do that split each line at the first `=`."""
    read: dict[str, str] = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            key, _, value = line.strip().partition("=")
            read[key.strip()] = value.strip()
    return read


def _compare(file: str, read: Mapping[str, Any], meant: Mapping[str, Any], reader: str) -> None:
    for key in (*meant, *read):
        if key not in meant or key not in read or read[key] != meant[key]:
            raise render_mismatch(file, key, reader)
    if list(read) != list(meant):
        raise render_mismatch(file, "order of keys", reader)


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    continued = False
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(" \t\f")
        if continued:
            lines[-1] += line
        elif not line or line[0] in "#!":
            continue
        else:
            lines.append(line)
        trailing = len(line) - len(line.rstrip("\\"))
        continued = trailing % 2 == 1
        if continued:
            lines[-1] = lines[-1][:-1]
    return [line for line in lines if line]


def _unescape(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return ESCAPES.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9A-Fa-f]{4})|(.))", replaced, text, flags=re.DOTALL)
