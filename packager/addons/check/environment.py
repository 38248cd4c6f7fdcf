"""An env file as `docker run --env-file` reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packager.addons.check.values import DescribedServer, Remark, Setting
from packager.core.documents import shorten
from packager.core.findings import Finding
from packager.core.positions import Place

QUOTED = re.compile(r"""(["']).*\1""", re.DOTALL)
NAME = re.compile(r"\S+")


def read_env_file(file: str, text: str) -> tuple[DescribedServer, tuple[Remark, ...]]:
    """Read NAME=VALUE lines; Docker takes the value as it stands, quotes and all."""
    settings: list[Setting] = []
    remarks: list[Remark] = []
    for number, line in enumerate(text.split("\n"), start=1):
        bare = line.lstrip()
        if not bare or bare.startswith("#"):
            continue
        place = Place(file, number, len(line) - len(bare) + 1)
        name, equals, value = bare.partition("=")
        remarks += (Remark(place, finding) for finding in _check(name, equals, value))
        exported = name.removeprefix("export ").strip()
        if equals and NAME.fullmatch(exported):
            settings.append(Setting(exported, unquoted(value), place))
        elif NAME.fullmatch(name.strip()):
            settings.append(Setting(name.strip(), None, place))  # from where Docker runs
    return DescribedServer(place=Place(file), env=tuple(settings)), tuple(remarks)


def unquoted(value: str) -> str:
    """Return what is meant by a value in quotes; compose and shells take them off.

    Single quotes around JSON stay: images that split their command line again need them.
    """
    bare = value.strip()
    is_quoted = len(bare) > 1 and QUOTED.fullmatch(bare) is not None
    is_json = bare.startswith("'") and ('"' in bare or bare[1:2] == "[")
    return bare[1:-1] if is_quoted and not is_json else value


def _check(name: str, equals: str, value: str) -> Iterator[Finding]:
    if not NAME.fullmatch(name.rstrip() if not equals else name):
        message = f"Docker refuses {shorten(name, 60)} as the name of a variable"
        hint = "write NAME=VALUE, without `export` and without spaces around `=`"
        yield Finding("error", "line-unreadable", message, hint)
    elif equals and unquoted(value) != value:
        message = f"Docker keeps the quotes around the value of {name!r}"
        hint = "leave them out: an env file needs none"
        yield Finding("warning", "quotes-kept", message, hint)
