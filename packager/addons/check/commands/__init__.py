"""The commands of this add-on, as the entry point in `packager.commands` names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packager.cli.lazy import Rows

COMMANDS: Mapping[str, Rows] = {
    "Look up and check": {
        "check": ("packager.cli.check:check", "Find settings that an engine refuses or ignores."),
        "migrate": (
            "packager.cli.migrate:migrate",
            "Convert an old LMI configuration into today's.",
        ),
    },
}
