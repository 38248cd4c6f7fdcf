"""Text on the user's terminal."""

from __future__ import annotations

import re

import click

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def warn(text: str) -> None:
    """Say what is wrong and stops nothing."""
    click.echo(harmless(f"warning: {text}"), err=True)


def harmless(text: str) -> str:
    """Leave out colours and spell out control characters: others wrote it, and could forge."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], click.unstyle(text))
