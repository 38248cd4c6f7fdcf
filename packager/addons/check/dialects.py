"""What shells write otherwise than POSIX's: continuations, quotes, variables, comments."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDialect:
    """What a shell writes otherwise than POSIX's."""

    escape: str  # takes a character, or a line's end, for itself
    quotes: str  # begin and end a word of several
    escaped: str = ""  # what `escape` takes for itself inside double quotes; "": any
    variable: re.Pattern[str]  # its name is the one group that matched
    sets: re.Pattern[str] | None = None  # what sets a variable for the commands behind it
    comment: re.Pattern[str]


NAME = r"([A-Za-z_][A-Za-z0-9_]*)"
POSIX = ConfigDialect(
    escape="\\",
    quotes="'\"",
    escaped='"\\$`',
    variable=re.compile(rf"\$(?:\{{{NAME}\}}|{NAME})", re.ASCII),
    comment=re.compile("#"),
)
POWERSHELL = ConfigDialect(
    escape="`",
    quotes="'\"",
    variable=re.compile(rf"\$(?:\{{(?:env:)?{NAME}\}}|(?:env:)?{NAME})", re.ASCII | re.I),
    sets=re.compile(rf"\$(?:env:)?{NAME}[ \t]*=[ \t]*", re.ASCII | re.I),
    comment=re.compile("#"),
)
CMD = ConfigDialect(
    escape="^",
    quotes='"',
    variable=re.compile(rf"%{NAME}%", re.ASCII),
    sets=re.compile(rf"set[ \t]+\"?{NAME}=", re.ASCII | re.I),
    comment=re.compile(r"(?:rem\b|::)", re.I),
)
CONTINUED = re.compile(r"(?m)\\[ \t]*$")
CONTINUED_BY: tuple[tuple[re.Pattern[str], ConfigDialect], ...] = (
    (re.compile(r"(?m)\S[ \t]+`[ \t]*$|^[ \t]*\$env:\w+[ \t]*="), POWERSHELL),
    (re.compile(r"(?mi)\S[ \t]+\^[ \t]*$|^[ \t]*@?echo off\b"), CMD),
)
SUFFIXES = {".ps1": POWERSHELL, ".bat": CMD, ".cmd": CMD}


def dialect_of(text: str, suffix: str = "") -> ConfigDialect:
    """Return the shell that a text is for: by its file's suffix, else by how lines go on."""
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    if CONTINUED.search(text):
        return POSIX
    return next((dialect for found, dialect in CONTINUED_BY if found.search(text)), POSIX)
