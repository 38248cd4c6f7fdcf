"""Candidates that the command line names: `--try`, `--candidate`, `--vary`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from packager.addons.bench.tune.space import FIXED, Axis, Variation, merged_axes, refuse_fixed
from packager.cli.field_options import options_from
from packager.cli.options import read_request_fields, request_choices
from packager.core.documents import shorten
from packager.core.errors import UsageError
from packager.core.request import BuildRequest
from packager.core.suggestions import nearest


def named_variations(tries: Iterable[str], files: Iterable[Path]) -> tuple[Variation, ...]:
    """Return the candidates of options in quotes and of request files, in their order."""
    found = []
    for text in tries:
        where = f"--try {shorten(text, 80)}"
        found.append(_variation(_parse_options(text, where), where))
    for path in files:
        where = f"request file {shorten(str(path), 200)}"
        fields = {
            name: value for name, value in read_request_fields(path).items() if name not in FIXED
        }
        found.append(_variation(fields, where))
    return tuple(found)


def varied_axes(texts: Sequence[str]) -> tuple[Axis, ...]:
    """Return the choices that `--vary FIELD=VALUE` makes, each field's values together."""
    pairs: list[tuple[str, Any]] = []
    for text in texts:
        field, equals, value = text.partition("=")
        where = f"--vary {shorten(text, 80)}"
        if not equals or not field or not value:
            raise UsageError(
                f"{where} is not FIELD=VALUE",
                hint="name an option of a request and one value: --vary quantize=awq "
                "--vary quantize=none",
            )
        option = field if field.startswith("-") else f"--{field.replace('_', '-')}"
        _refuse_unknown(option, where)
        pairs += _parse_words([option, value], where).items()
    refuse_fixed([name for name, _ in pairs], "--vary")
    return merged_axes(pairs)


def _variation(fields: dict[str, Any], where: str) -> Variation:
    refuse_fixed(list(fields), where)
    return Variation(changes=MappingProxyType(fields), is_asked=True)


def _parse_options(text: str, where: str) -> dict[str, Any]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(
            f"{where} cannot be split into words: {error}", hint="close every quote in it"
        ) from error
    if not words:
        raise UsageError(
            "--try is empty", hint='write options of a request in quotes: --try "--quantize awq"'
        )
    return _parse_words(words, where)


def _parse_words(words: list[str], where: str) -> dict[str, Any]:
    """Parse options of a request; raise `UsageError` that says where they stand."""
    command = _options()
    try:
        context = command.make_context("--try", list(words))
    except click.UsageError as error:
        known = [name for one in command.params for name in one.opts]
        meant = nearest(next((w for w in words if w.startswith("-")), ""), known)
        raise UsageError(
            f"{where}: {error.message.rstrip('.')}",
            hint=f"did you mean {meant!r}?"
            if meant and isinstance(error, click.NoSuchOption)
            else "it takes the options of a request, as `packager plan --help` lists them",
        ) from error
    return {name: value for name, value in context.params.items() if value not in (None, ())}


def _refuse_unknown(option: str, where: str) -> None:
    known = [name for one in _options().params for name in one.opts]
    if option in known:
        return
    meant = nearest(option, known)
    raise UsageError(
        f"{where} names no option of a request",
        hint=f"did you mean {meant.removeprefix('--')!r}?"
        if meant
        else "name one as `packager plan --help` lists them, such as quantize or draft",
    )


def _options() -> click.Command:
    """Return a command with the options that candidates may differ in, and no other."""

    @click.command(add_help_option=False)
    @options_from(BuildRequest, **request_choices)
    def tried(**given: Any) -> None:
        """Parse the options of one candidate."""

    return tried
