"""Bases that a team has agreed on: `team:NAME` is an entry of the JSON file `$TEAM_BASES`."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

from packager.cli.plugins.contexts import BaseContext
from packager.cli.plugins.tables import BASES
from packager.core.errors import NotFound
from packager.core.image import BaseImage, Platform
from packager.core.references import ImageTarget
from packager.images.target import parse_target


class TeamBases:
    """Finds the image that a name stands for, wherever that is."""

    name = "team"

    def __init__(self, context: BaseContext) -> None:
        self._context = context

    def facts(self, target: ImageTarget, platform: Platform) -> BaseImage:
        """Look the name up, and have packager's own source pin the image."""
        bases = json.loads(Path(os.environ["TEAM_BASES"]).read_text())
        if target.rest not in bases:
            raise NotFound(f"the team has no base {target.rest!r}", hint=f"it has {sorted(bases)}")
        meant = parse_target(bases[target.rest], BASES)
        found = BASES.find(meant.scheme).make(self._context).facts(meant, platform)
        return replace(found, reference=target.text)
