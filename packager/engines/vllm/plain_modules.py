"""Matrices that a version of vLLM builds without quantization: `data/plain_modules.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from packager.core.versions import newest_until

TABLE = Path(__file__).parents[1] / "data" / "plain_modules.json"


def plain_modules(version: str) -> frozenset[tuple[str, str]]:
    """Return architectures, each with the end of a module's path, `mamba.x_proj`.

    The table is that of the version, or of the newest older one, or the oldest.
    """
    return _tables()[newest_until(_tables(), version)]


@cache
def _tables() -> Mapping[str, frozenset[tuple[str, str]]]:
    versions = json.loads(TABLE.read_bytes())["versions"]
    return {
        version: frozenset(
            (architecture, path)
            for architecture, paths in row["architectures"].items()
            for path in paths
        )
        for version, row in versions.items()
    }
