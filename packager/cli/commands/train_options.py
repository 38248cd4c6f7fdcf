"""`--train-option`: how jobs train their draft heads."""

from __future__ import annotations

from typing import Any

import click

from packager.cli.field_options import options_from
from packager.cli.shared_options import Command
from packager.core.documents import shorten
from packager.core.errors import UsageError
from packager.core.suggestions import guessed
from packager.core.training import LARGEST, HeadTraining

_TRAIN = "packager draft train"

samples_option = click.option(
    "--samples",
    type=click.IntRange(1, LARGEST),
    metavar="N",
    help="Number of texts to use; all by default.",
)

train_option = click.option(
    "--train-option",
    "train_options",
    multiple=True,
    metavar="NAME=VALUE",
    help=f"Option of `{_TRAIN}` for the heads that jobs train, such as max-steps=500. Repeatable.",
)


def training_words(given: tuple[str, ...]) -> tuple[str, ...]:
    """Return the options as `packager draft train` takes them.

    The head, the data and the place are left out: documents state them. Raises `UsageError` for an
    option without a value, and click's errors for what the command refuses.
    """
    known = [flag.removeprefix("--") for one in _settings.params for flag in one.opts]
    words: list[str] = []
    for text in given:
        name, equals, value = text.partition("=")
        if name not in known:
            raise UsageError(
                f"--train-option does not know {shorten(name, 100)}",
                hint=guessed(name, known, f"choose from {', '.join(known)}"),
            )
        if not equals:
            raise UsageError(
                f"--train-option {name} has no value", hint=f"write --train-option {name}=VALUE"
            )
        words += (f"--{name}", value)
    _settings.make_context(_TRAIN, list(words))
    return tuple(words)


def _command(of: Command) -> click.Command:
    return click.command(add_help_option=False)(
        options_from(HeadTraining, leave_out=("method",))(samples_option(of))
    )


@_command
def _settings(**_: Any) -> None:
    """Parse the options as the command does."""
