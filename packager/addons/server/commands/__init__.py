"""The commands of this add-on, as the entry point in `packager.commands` names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packager.cli.lazy import Rows

COMMANDS: Mapping[str, Rows] = {
    "Build and serve": {
        "api": ("packager.cli.api:api", "Answer the SageMaker API on this machine."),
        "serve": ("packager.cli.serve:serve", "The same as `packager api start`."),
    },
    "Look up and check": {
        "lineage": (
            "packager.cli.lineage:lineage",
            "Show what something was made from, and what it went into.",
        ),
    },
    "Jobs": {
        "optimize": (
            "packager.cli.optimize:optimize",
            "Run an optimization job of the SageMaker API.",
        ),
        "jobs": ("packager.cli.jobs:jobs", "List, follow, stop and run background jobs."),
        "neo": ("packager.cli.neo:neo", "Do the work of AWS's optimization container."),
    },
}
