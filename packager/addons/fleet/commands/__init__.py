"""The commands of this add-on, as the entry point in `packager.commands` names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packager.cli.addons import Rows

COMMANDS: Mapping[str, Rows] = {
    "Quality, drafts and caches": {
        "warm": (
            "packager.addons.fleet.commands.warm:warm",
            "Fill caches ahead of time: plan, run, render jobs.",
        ),
    },
}
