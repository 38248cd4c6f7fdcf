"""`packager draft`."""

from __future__ import annotations

from collections.abc import Mapping

import click

from packager.cli.addons import Rows
from packager.cli.lazy import LazyGroup


class DraftGroup(LazyGroup):
    """The commands about drafts."""

    takes_added = "draft"
    sections: Mapping[str, Rows] = {
        "Commands": {
            "train": (
                "packager.cli.commands.draft_train:train",
                "Train an EAGLE-3 head, Medusa heads or the model's MTP head.",
            ),
            "stitch": (
                "packager.cli.commands.draft_stitch:stitch",
                "Write a model with its fine-tuned MTP head.",
            ),
        },
    }


@click.group(cls=DraftGroup)
def draft() -> None:
    """Train heads that propose tokens, and measure what they gain."""
