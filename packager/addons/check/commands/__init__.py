"""The commands of this add-on, as the entry point in `packager.commands` names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packager.cli.addons import Rows

COMMANDS: Mapping[str, Rows] = {
    "Look up and check": {
        "check": (
            "packager.addons.check.commands.check:check",
            "Find settings that an engine refuses or ignores.",
        ),
        "migrate": (
            "packager.addons.check.commands.migrate:migrate",
            "Convert an old LMI configuration into today's.",
        ),
    },
}
