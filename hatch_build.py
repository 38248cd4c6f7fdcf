"""Put the man pages into wheels and sdists, where `make reference` has made them.

They are made from the code and not kept in git; a build that has none, such as pip's own of a
checkout, needs nothing but hatchling and makes a wheel without them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PAGES = "docs/man"


class ManPages(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the pages that are there to a wheel or an sdist."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or not (Path(self.root) / PAGES).is_dir():
            return
        if self.target_name == "wheel":
            build_data["shared_data"][PAGES] = "share/man/man1"
        else:
            build_data["artifacts"].append(f"/{PAGES}")
