"""Plans made by hand, for whoever runs or renders them."""

from __future__ import annotations

import hashlib
from typing import Any

from packager.core.request import BuildRequest
from packager.core.warmup import Job, Resources, WarmPlan


def job(index: int, **changes: Any) -> Job:
    key = hashlib.sha256(str(index).encode()).hexdigest()
    resources = changes.pop("resources", {})
    given = {
        "index": index,
        "id": key,
        "step": "quantize",
        "artifact": "quantized-checkpoint",
        "key": key,
        "model": "m",
        "request": BuildRequest(model="org/m", instance="ml.g5.xlarge"),
        "resources": Resources(**resources),
    }
    return Job(**{**given, **changes})


def plan(*jobs: Job) -> WarmPlan:
    return WarmPlan(packager="0.1.0", requests=len(jobs), jobs=jobs)
