"""The commands of this add-on, as the entry point in `packager.commands` names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packager.cli.addons import Rows

COMMANDS: Mapping[str, Rows] = {
    "Images and registries": {
        "mount": (
            "packager.addons.nodes.commands.mount:mount",
            "Mount a model out of an image, without a copy.",
        ),
        "unmount": (
            "packager.addons.nodes.commands.mount:unmount",
            "Remove what was mounted at a directory.",
        ),
        "node-cache": (
            "packager.addons.nodes.commands.node_cache:node_cache",
            "Fill a directory with layers that nodes mount without unpacking.",
        ),
    },
    "Commands": {
        "base slim": (
            "packager.addons.nodes.commands.base_slim:base_slim",
            "Make a base smaller for the machines that it shall serve on.",
        ),
    },
}
