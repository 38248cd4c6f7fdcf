"""Deployments of several families on several instance types."""

from __future__ import annotations

from dataclasses import replace

from packager.catalog.instances import find_instance
from packager.core.deployment import Deployment
from packager.core.instance import Instance

GIB = 1 << 30
DIGEST = "sha256:" + "5" * 64
LOCAL = Instance(
    name="local",
    kind="cpu",
    device_name="a processor",
    devices=1,
    device_bytes=16 * GIB,
    host_bytes=16 * GIB,
    vcpus=4,
)


def made_deployment(
    family: str, instance: str, devices: int, engine: str = "", **fields: object
) -> Deployment:
    """Return a deployment with a 16 GB model on an instance type of the catalog."""
    queues = {"vllm": "vllm:num_requests_waiting", "tgi": "tgi_queue_size"}
    queues["sglang"] = "sglang:num_queue_reqs"
    engine = engine or family
    made = Deployment(
        name="llama",
        image=f"r.example/team/llama@{DIGEST}",
        digest=DIGEST,
        family=family,
        engine=engine,
        served_name="llama",
        instance=LOCAL if instance == "local" else find_instance(instance),
        devices=devices,
        start_period_s=600,
        image_bytes=30 * GIB,
        model_bytes=16 * GIB,
        memory_bytes=10 * GIB,
        shm_bytes=max(devices, 1) * GIB,
        scratch_bytes=8 * GIB,
        pull_s=900.0,
        load_s=600.0,
        drain_s=25,
        grace_s=30,
        metrics_path="/metrics" if engine in queues else "",
        queue_metric=queues.get(engine, ""),
        user="10001:10001",
        read_only_root=True,
        writable=("/home/model", "/tmp"),
    )
    return replace(made, **fields)  # type: ignore[arg-type]


VLLM = made_deployment("vllm", "ml.p5.48xlarge", 8)
LMI = made_deployment("lmi", "ml.g5.12xlarge", 4, "djl", user="")
TGI = made_deployment("tgi", "ml.g6.xlarge", 1, user="app")
SGLANG = made_deployment("sglang", "ml.g6e.12xlarge", 4)
NEURON = made_deployment("neuron", "ml.inf2.8xlarge", 2, "vllm")
CPU = made_deployment("vllm", "local", 0, memory_bytes=6 * GIB)
PAIRS = {
    "vllm-p5": VLLM,
    "lmi-g5": LMI,
    "tgi-g6": TGI,
    "sglang-g6e": SGLANG,
    "neuron-inf2": NEURON,
    "cpu-local": CPU,
}
