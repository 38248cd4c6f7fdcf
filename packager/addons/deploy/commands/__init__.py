"""The commands of this add-on, as the entry point in `packager.commands` names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packager.cli.addons import Rows

COMMANDS: Mapping[str, Rows] = {
    "Build and serve": {
        "deploy": (
            "packager.addons.deploy.commands.deploy:deploy",
            "Deploy an image: render, apply, watch, delete.",
        ),
    },
}
