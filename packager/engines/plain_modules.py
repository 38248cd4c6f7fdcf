"""Matrices that a version of an engine builds without quantization: `data/plain_modules*.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from packager.core.versions import newest_until

DATA = Path(__file__).parent / "data"
TABLES = {"vllm": "plain_modules.json", "sglang": "plain_modules_sglang.json"}


@cache
def plain_modules(engine: str, version: str) -> frozenset[tuple[str, str]]:
    """Return architectures, each with the end of a module's path, `mamba.x_proj`.

    The table is that of the version, or of the newest older one, or the oldest.
    """
    return frozenset(
        (architecture, path)
        for architecture, paths in _row(engine, version)["architectures"].items()
        for path in paths
    )


def renaming_classes(engine: str, version: str) -> frozenset[str]:
    """Return classes that rename targets of compressed-tensors as if all were paths of modules.

    They look for `model.Linear` where a checkpoint has a scheme for `Linear`, and find none.
    """
    return frozenset(_row(engine, version).get("renamed", ())) if engine in TABLES else frozenset()


def _row(engine: str, version: str) -> Mapping[str, Any]:
    rows = _versions(engine)
    row: Mapping[str, Any] = rows[newest_until(rows, version)]
    return row


@cache
def _versions(engine: str) -> Mapping[str, Any]:
    versions: Mapping[str, Any] = json.loads((DATA / TABLES[engine]).read_bytes())["versions"]
    return versions
