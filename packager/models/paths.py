"""Valid paths in a model: the same file on every system, safe in shells and logs."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from packager.models.refusals import unsafe_name

MAX_COMPONENT_BYTES = 255  # what Linux file systems hold
_UNPRINTABLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # controls, text direction, half surrogates, breaks


def check_path(path: str) -> None:
    """Refuse a path that is not plain, relative and printable."""
    if path.startswith("/"):
        raise unsafe_name(path, "it is absolute")
    for component in path.split("/"):
        why = _objection(component)
        if why:
            raise unsafe_name(path, why)


def check_distinct(paths: Iterable[str]) -> None:
    """Refuse two paths that some file systems take for one.

    Directories count too: `A/x` and `a/y` would merge two directories.
    """
    seen: dict[str, str] = {}
    for path in paths:
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            prefix = "/".join(parts[:depth])
            folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", prefix).casefold())
            other = seen.setdefault(folded, prefix)
            if other != prefix:
                raise unsafe_name(path, f"it differs from {other!r} only in case or in accents")


def _objection(component: str) -> str:
    if component in ("", ".", ".."):
        return f"{component!r} is not a name"
    if "\\" in component:
        return "it holds a backslash"
    try:
        encoded = component.encode("utf-8")
    except UnicodeEncodeError:
        return "it is not UTF-8"
    if len(encoded) > MAX_COMPONENT_BYTES:
        return f"a part of it is longer than {MAX_COMPONENT_BYTES} bytes"
    if any(unicodedata.category(character) in _UNPRINTABLE for character in component):
        return "it holds a control character"
    return ""
