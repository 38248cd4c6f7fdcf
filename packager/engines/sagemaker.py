"""SageMaker's limits on a container's environment, from the service's own model.

They apply to an environment set at deployment, as with mounted weights; variables baked into an
image have no such limit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from packager.core.findings import VARIABLE, Finding
from packager.core.plan import Plan

LIMITS = Path(__file__).parent / "data" / "sagemaker.json"
BAKE = "bake the weights with --weights baked: baked settings are not limited"


def check_environment(plan: Plan, env: Mapping[str, str]) -> Iterator[Finding]:
    """Find the variables that CreateModel would refuse."""
    if plan.weights != "baked" and plan.instance.name.startswith("ml."):
        yield from check_limits(env)


def check_limits(env: Mapping[str, str], hint: str = BAKE) -> Iterator[Finding]:
    """Find what is over the service's limits; `hint` is the way out where one is crossed."""
    found = limits()
    if len(env) > found["entries"]:
        message = f"{len(env)} variables, and SageMaker takes {found['entries']}"
        yield _limit(message, hint)
    elif len(env) > found["inference_component_entries"]:
        most = found["inference_component_entries"]
        message = (
            f"{len(env)} variables are too many for an inference component, which takes {most}"
        )
        alone = "deploy it as a model of its own, or bake the weights: baked settings do not count"
        yield Finding("warning", "sagemaker-limit", message, alone)
    for name, value in env.items():
        if len(name) > found["key_length"] or not re.fullmatch(found["key_pattern"], name):
            message = f"{name[:60]!r} cannot be the name of a variable in SageMaker"
            yield _limit(message, hint, name)
        if len(value.encode()) > found["value_length"]:
            size, most = len(value.encode()), found["value_length"]
            yield _limit(f"{name} has {size} bytes, and SageMaker takes {most}", hint, name)
    total = sum(len(name.encode()) + len(value.encode()) for name, value in env.items())
    if total > found["total_bytes"]:
        message = f"{total} bytes in all, and SageMaker takes {found['total_bytes']}"
        yield _limit(message, hint)


@cache
def limits() -> Mapping[str, Any]:
    """Read the shipped limits."""
    read: dict[str, Any] = json.loads(LIMITS.read_text(encoding="utf-8"))
    return read


def _limit(what: str, hint: str, variable: str | None = None) -> Finding:
    data = {} if variable is None else {VARIABLE: variable}
    return Finding("error", "sagemaker-limit", f"environment: {what}", hint, data)
