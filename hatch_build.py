"""Put the man pages into wheels and sdists: they are made from the code and not kept in git.

A checkout makes them with `scripts/make-reference`; an sdist has them and no scripts.  Commands of
the add-ons are entry points, so the metadata that an installer would write stands beside the code
while the script runs.  An editable installation gets no man pages.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PAGES = "docs/man"


class ManPages(BuildHookInterface):  # type: ignore[type-arg]
    """Makes the pages before a wheel or an sdist is written."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        root = Path(self.root)
        script = root / "scripts/make-reference"
        if script.is_file():
            self._run(root, script)
        if self.target_name == "wheel":
            build_data["shared_data"][PAGES] = "share/man/man1"
        else:
            build_data["artifacts"].append(f"/{PAGES}")

    def _run(self, root: Path, script: Path) -> None:
        with tempfile.TemporaryDirectory() as directory:
            points = self.metadata.core.entry_points
            groups = {"console_scripts": self.metadata.core.scripts, **points}
            lines = [
                line
                for group, named in groups.items()
                for line in (f"[{group}]", *(f"{name} = {at}" for name, at in named.items()))
            ]
            place = Path(directory) / "model_packager-0.dist-info"
            place.mkdir()
            place.joinpath("METADATA").write_text(
                f"Metadata-Version: 2.1\nName: {self.metadata.core.name}\nVersion: 0\n"
            )
            place.joinpath("entry_points.txt").write_text("\n".join(lines) + "\n")
            path = os.pathsep.join((directory, str(root)))
            subprocess.run(
                [sys.executable, str(script), "--man"],
                check=True,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
            )
