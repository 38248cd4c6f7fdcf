"""The commands of this add-on, as the entry point in `packager.commands` names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packager.cli.addons import Rows

COMMANDS: Mapping[str, Rows] = {
    "Build and serve": {
        "api": (
            "packager.addons.server.commands.api:api",
            "Answer the SageMaker API on this machine.",
        ),
        "serve": (
            "packager.addons.server.commands.serve:serve",
            "The same as `packager api start`.",
        ),
    },
    "Look up and check": {
        "lineage": (
            "packager.addons.server.commands.lineage:lineage",
            "Show what something was made from, and what it went into.",
        ),
    },
    "Commands": {
        "draft refresh": (
            "packager.addons.server.commands.draft_refresh:refresh",
            "Train the next head from captured traffic; serve a better one.",
        ),
    },
    "Jobs": {
        "optimize": (
            "packager.addons.server.commands.optimize:optimize",
            "Run an optimization job of the SageMaker API.",
        ),
        "jobs": (
            "packager.addons.server.commands.jobs:jobs",
            "List, follow, stop and run background jobs.",
        ),
        "neo": (
            "packager.addons.server.commands.neo:neo",
            "Do the work of AWS's optimization container.",
        ),
    },
}
