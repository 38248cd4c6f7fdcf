"""The commands of this add-on, as the entry point in `packager.commands` names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packager.cli.addons import Rows

COMMANDS: Mapping[str, Rows] = {
    "Images and registries": {
        "bundle": (
            "packager.addons.bundle.commands.bundle:bundle",
            "Carry images to places without a network.",
        ),
    },
}
