"""A serving.properties as Java reads it, with the places of its keys."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packager.addons.check.values import DescribedServer, Remark, Setting
from packager.core.findings import Finding
from packager.core.positions import Place

SPACE = " \t\f"
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
PAIR = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*([=:]?)[ \t\f]*(.*)", re.DOTALL)
ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)


def read_properties(file: str, text: str) -> tuple[DescribedServer, tuple[Remark, ...]]:
    """Read the settings of a server; remarks are of lines that its readers take differently."""
    settings, remarks = read_settings(file, text)
    return DescribedServer(place=Place(file), properties=settings), remarks


def read_settings(
    file: str, text: str, *, line: int = 1, column: int = 1
) -> tuple[tuple[Setting, ...], tuple[Remark, ...]]:
    """Read every key in its order. `line` and `column` are where the text begins in the file."""
    settings: list[Setting] = []
    remarks: list[Remark] = []
    for number, indent, logical, is_joined in _logical_lines(text):
        place = Place(file, line + number, column + indent)
        match = PAIR.fullmatch(logical)
        if match is None or not match[1]:
            message = "the line has no key: Java's reader takes it for one without a name"
            hint = "write KEY=VALUE, or take the line out"
            remarks.append(Remark(place, Finding("error", "line-unreadable", message, hint)))
            continue
        key, value = _unescape(match[1]), _unescape(match[3]).rstrip()
        settings.append(Setting(key, value, place))
        remarks += _differences(place, key, match, is_joined=is_joined)
    return tuple(settings), tuple(remarks)


def _differences(
    place: Place, key: str, match: re.Match[str], *, is_joined: bool
) -> Iterator[Remark]:
    """Find what Java and LMI's scripts, which split a line at its first `=`, read differently."""
    if not match[2]:
        message = f"{key!r} has no `=`: Java reads an empty value or splits at the space"
        hint = f"write {key}=VALUE"
    elif match[2] == ":":
        message = f"{key!r} is set with `:`, which LMI's scripts do not split at"
        hint = f"write {key}=VALUE"
    elif is_joined or "\\" in match[0]:
        message = f"{key!r} has a backslash, which Java takes for an escape and scripts do not"
        hint = "write the value on one line, without backslashes"
    else:
        return
    yield Remark(place, Finding("warning", "readers-differ", message, hint))


def _logical_lines(text: str) -> Iterator[tuple[int, int, str, bool]]:
    """Yield each line's number and indent, its text with continuations, and whether it has any."""
    begun: tuple[int, int, str] | None = None
    joined = False
    for number, natural in enumerate(re.split(r"\n|\r", text)):
        line = natural.lstrip(SPACE)
        if begun is None and (not line or line[0] in "#!"):
            continue
        if begun is None:
            begun, joined = (number, len(natural) - len(line), line), False
        else:
            begun, joined = (begun[0], begun[1], begun[2] + line), True
        if (len(line) - len(line.rstrip("\\"))) % 2:
            begun = (begun[0], begun[1], begun[2][:-1])
            continue
        yield (*begun, joined)
        begun = None
    if begun is not None:
        yield (*begun, joined)


def _unescape(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return ESCAPES.get(match[2], match[2])

    return ESCAPE.sub(replaced, text)
