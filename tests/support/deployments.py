"""Deployments of several families and instances, with digits of real images."""

from __future__ import annotations

import tomllib
from typing import Any

from packager.catalog.instances import find_instance
from packager.core.deployment import Deployment
from tests.support.places import DATA

# What all of them have.
_STATED: dict[str, Any] = tomllib.loads(
    (DATA / "deploy" / "deployment.toml").read_text(encoding="utf-8")
)
ROLE = "arn:aws:iam::123456789012:role/service-role/serve"
CU13, CU12 = "al2023-ami-sagemaker-inference-gpu-4-1", "al2-ami-sagemaker-inference-gpu-3-1"
GIB = 1024**3

# family, engine, instance, devices, CUDA, AMI, bytes of the image, of its weights
PAIRS = {
    "vllm-g5": ("vllm", "vllm", "ml.g5.xlarge", 1, "13.0", CU13, 24 * GIB, 15 * GIB),
    "sglang-g6e": ("sglang", "sglang", "ml.g6e.12xlarge", 4, "13.0", CU13, 90 * GIB, 70 * GIB),
    "tgi-p4d": ("tgi", "tgi", "ml.p4d.24xlarge", 8, "12.4", CU12, 150 * GIB, 140 * GIB),
    "lmi-p5": ("lmi", "vllm", "ml.p5.48xlarge", 8, "13.0", CU13, 160 * GIB, 140 * GIB),
    "neuron-inf2": ("neuron", "vllm", "ml.inf2.8xlarge", 2, "", "", 24 * GIB, 15 * GIB),
    "vllm-cpu": ("vllm", "vllm", "ml.c7i.4xlarge", 0, "", "", 6 * GIB, 4 * GIB),
}


def deployment(pair: str = "vllm-g5", **changes: Any) -> Deployment:
    """Return one of `PAIRS` as its record says it, with `changes`."""
    family, engine, instance, devices, cuda, ami, image, model = PAIRS[pair]
    weights_s = model / 125_000_000
    start_s = 60 * (int((300 + weights_s) // 60) + 1)
    made: dict[str, Any] = {
        **_STATED,
        "writable": tuple(_STATED["writable"]),
        "family": family,
        "engine": engine,
        "instance": find_instance(instance),
        "devices": devices,
        "start_period_s": start_s,
        "load_s": float(start_s),
        "image_bytes": image,
        "model_bytes": model,
        "shm_bytes": GIB * max(devices, 1),
        "pull_s": image / 31_000_000,
        "inference_ami": ami,
        "cuda": cuda,
        "least_driver": {"13.0": "580", "12.4": "525"}.get(cuda, ""),
    }
    return Deployment(**{**made, **changes})
