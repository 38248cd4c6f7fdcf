"""The commands of this add-on, as the entry point in `packager.commands` names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packager.cli.addons import Rows

COMMANDS: Mapping[str, Rows] = {
    "Build and serve": {
        "bench": (
            "packager.addons.bench.commands.bench:bench",
            "Measure servers under load: speed, price, limits.",
        ),
    },
    "Quality, drafts and caches": {
        "report": (
            "packager.addons.bench.commands.report:report",
            "Compare benchmarks and builds in tables, or on a page.",
        ),
        "tune": (
            "packager.addons.bench.commands.tune:tune",
            "Find the best build of a model by measuring candidates.",
        ),
    },
    "Commands": {
        "draft measure": (
            "packager.addons.bench.commands.draft_measure:measure",
            "Say what a draft gains, when served.",
        ),
    },
}
