"""Text that is safe to print, and JSON that is. See `artifact_cache.printable` for the rules."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from artifact_cache.printable import (
    QUOTED_BYTES,
    escape,
    hide_userinfo,
    quote_answer,
    quoted_lines,
)
from artifact_cache.secrets import (
    hide_secrets,
    remember_headers,
    remember_secret,
    remember_user,
    remember_variables,
    repeats_secret,
)

__all__ = [
    "QUOTED_BYTES",
    "escape",
    "escape_json",
    "escape_text",
    "hide_secrets",
    "hide_userinfo",
    "joined",
    "json_text",
    "quote_answer",
    "quoted_lines",
    "remember_headers",
    "remember_secret",
    "remember_user",
    "remember_variables",
    "repeats_secret",
]

_ORDINARY = re.compile(r"[\n -~]*")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


def joined(lines: Iterable[str]) -> str:
    """Join lines to a text, each escaped so that it cannot start another line."""
    return "\n".join(map(escape, lines))


def escape_text(text: str) -> str:
    """Escape a text of several lines, such as a page or a file; its line feeds stay."""
    return joined(text.split("\n"))


def json_text(document: Any) -> str:
    """Write a document for programs: indented, in the order it was made, safe to print."""
    return escape_json(json.dumps(document, indent=2, ensure_ascii=False))


def escape_json(text: str, *, ascii_only: bool = False) -> str:
    r"""Write what a terminal would obey or hide in a JSON text as JSON's own `\uXXXX`.

    The document stays the same, as such characters stand only inside its strings; but for secrets
    that were sent, which become `***`.
    """
    text = hide_secrets(text)
    if _ORDINARY.fullmatch(text):
        return text
    return _NOT_ASCII.sub(
        lambda found: _unit(found[0]) if ascii_only or escape(found[0]) != found[0] else found[0],
        text.replace("\x7f", "\\u007f"),
    )


def _unit(letter: str) -> str:
    return json.dumps(letter, ensure_ascii=True)[1:-1]
