"""Matrices that a version of vLLM builds without quantization: `data/plain_modules.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from packager.core.versions import LOWEST, version_key

TABLE = Path(__file__).parents[1] / "data" / "plain_modules.json"


def plain_modules(version: str) -> frozenset[tuple[str, str]]:
    """Return architectures, each with the end of a module's path, `mamba.x_proj`.

    The table is that of the version, or of the newest older one, or the oldest.
    """
    tables = sorted(_tables(), key=lambda one: version_key(one) or LOWEST)
    asked = version_key(version)
    older = [one for one in tables if asked is None or (version_key(one) or LOWEST) <= asked]
    return _tables()[(older or tables[:1])[-1]]


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
