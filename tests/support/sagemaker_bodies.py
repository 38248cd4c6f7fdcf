"""Bodies of CreateOptimizationJob and CreateModel, as clients send them."""

from __future__ import annotations

import tomllib
from typing import Any

from tests.support.places import DATA

ROLE = "arn:aws:iam::111122223333:role/SageMakerRole"
DJL = "763104351884.dkr.ecr.us-west-2.amazonaws.com/djl-inference"

STATED: dict[str, dict[str, Any]] = tomllib.loads(
    (DATA / "sagemaker" / "bodies.toml").read_text(encoding="utf-8")
)
AWQ = STATED["awq"]
EAGLE_OWN_DATA = STATED["eagle_own_data"]
EAGLE_OWN_HEAD = STATED["eagle_own_head"]
EAGLE_BUILT_IN_DATA = STATED["eagle_built_in_data"]
MODEL_WITH_HEAD = STATED["model_with_head"]
MODELS = {body["ModelName"]: body for body in (STATED["target_model"], MODEL_WITH_HEAD)}

# Tags as SDK 3 sends them: each key and each value of the user's is a tag of its own.
SDK_TAGS = [
    {"Key": "Key", "Value": "OptimizationJobName"},
    {"Key": "Value", "Value": "modelbuilderjob-3f2a"},
]


def quantization(**environment: str) -> dict[str, Any]:
    """Return a body that quantizes, with variables of its own."""
    return _optimization("Quantization", environment)


def compilation(instance: str = "ml.g5.12xlarge", **environment: str) -> dict[str, Any]:
    """Return a body that compiles for an instance."""
    return {**_optimization("Compilation", environment), "DeploymentInstanceType": instance}


def sharding(**environment: str) -> dict[str, Any]:
    """Return a body that splits the weights for the instance's devices."""
    return _optimization("Sharding", environment)


def _optimization(technique: str, environment: dict[str, str]) -> dict[str, Any]:
    config = {f"Model{technique}Config": {"OverrideEnvironment": environment}}
    return {**AWQ, "OptimizationConfigs": [config]}
