"""Deployments of several families on several instance types: `data/deploy/clusters.toml`."""

from __future__ import annotations

import tomllib
from typing import Any

from packager.catalog.instances import find_instance
from packager.core.deployment import Deployment
from packager.core.instance import Instance
from tests.support.places import DATA

GIB = 1 << 30
_STATED = tomllib.loads((DATA / "deploy" / "clusters.toml").read_text(encoding="utf-8"))
_ALL = _STATED.pop("all")


def _made(row: dict[str, Any]) -> Deployment:
    made, instance = _ALL | row, row["instance"]
    made["instance"] = (
        Instance(**instance) if isinstance(instance, dict) else find_instance(instance)
    )
    made["shm_bytes"] = max(made["devices"], 1) * GIB
    return Deployment(**made | {"writable": tuple(made["writable"])})


PAIRS = {name: _made(row) for name, row in _STATED.items()}
VLLM, TGI = PAIRS["vllm-p5"], PAIRS["tgi-g6"]
