"""Requests as a command line, ready to paste into a shell.

Only fields that a request sets are written; the planner chooses the rest.  Spellings come from the
request's fields, as those of the options do.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, get_args

from packager.core.fields import CommandOption
from packager.core.request import BuildRequest


def request_words(request: BuildRequest, *, leave_out: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the options of a request in the order of its fields, without `leave_out`'s."""
    skipped = set(leave_out)
    return tuple(
        word
        for name, info in BuildRequest.model_fields.items()
        if name not in skipped and (value := getattr(request, name)) != info.default
        for word in _option(flag_of(name), value)
    )


@cache
def flag_of(name: str) -> str:
    """Return how the command line spells a field of a request, such as `--tp-degree`."""
    info = BuildRequest.model_fields[name]
    found = (one for one in _spellings(info.annotation, info.metadata) if one.flag)
    return next(found, CommandOption()).flag_of(name)


def command_text(words: Iterable[str]) -> str:
    """Quote words for a POSIX shell, on one line."""
    return shlex.join(words)


def named_fields(options: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the fields that options set, with their values as text."""
    fields = {flag_of(name): name for name in BuildRequest.model_fields}
    return ((fields[flag], value) for flag, value in options)


def _option(flag: str, value: Any) -> Iterator[str]:
    if isinstance(value, bool):
        yield flag if value else f"--no-{flag.removeprefix('--')}"
    elif isinstance(value, Mapping):
        for key, of_key in value.items():
            yield from _option(flag, f"{key}={of_key}")
    elif isinstance(value, tuple):
        for one in value:
            yield from _option(flag, one)
    else:
        yield from (flag, str(value))


def _spellings(annotation: Any, metadata: Iterable[Any]) -> Iterator[CommandOption]:
    """Yield what `Annotated` says of an option, within a union as well."""
    yield from (one for one in metadata if isinstance(one, CommandOption))
    for inner in get_args(annotation):
        if isinstance(inner, CommandOption):
            yield inner
        else:
            yield from _spellings(inner, ())
