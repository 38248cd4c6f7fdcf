"""`packager draft`."""

from __future__ import annotations

from collections.abc import Mapping

import click

from packager.cli.lazy import LazyGroup


class DraftGroup(LazyGroup):
    """The commands about drafts."""

    table: Mapping[str, tuple[str, str]] = {
        "train": ("packager.cli.draft_train:train", "Train an EAGLE-3 head or Medusa heads."),
        "measure": ("packager.cli.draft_measure:measure", "Say what a draft gains, when served."),
    }


@click.group(cls=DraftGroup)
def draft() -> None:
    """Train heads that propose tokens, and measure what they gain."""
