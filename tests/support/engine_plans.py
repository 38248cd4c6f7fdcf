"""Plans written out by hand, so that families are tested without the planner."""

from __future__ import annotations

from typing import Any

from packager.core.facts import ContainerFacts
from packager.core.instance import DeviceKind, Instance
from packager.core.model import ModelProfile, ModelRef
from packager.core.plan import MemoryBudget, Plan
from packager.core.shape import Shape
from packager.core.techniques import Draft, Quantization
from packager.core.units import GIB
from tests.support.doubles.containers import with_traits

MIXTRAL = ModelProfile(
    architecture="MixtralForCausalLM",
    parameters=46_702_792_704,
    weight_bytes=93_405_585_408,
    dtype="bf16",
    hidden_size=4096,
    intermediate_size=14336,
    layers=32,
    heads=32,
    kv_heads=8,
    head_dim=128,
    vocab_size=32000,
    max_positions=32768,
    kv_bytes_per_token=131072,
)
LLAMA_8B = ModelProfile(
    architecture="LlamaForCausalLM",
    parameters=8_030_261_248,
    weight_bytes=16_060_522_496,
    dtype="bf16",
    hidden_size=4096,
    intermediate_size=14336,
    layers=32,
    heads=32,
    kv_heads=8,
    head_dim=128,
    vocab_size=128256,
    max_positions=8192,
    kv_bytes_per_token=131072,
)
AWQ = Quantization(
    method="awq", scheme="W4A16", bits=4, group_size=128, checkpoint_format="awq", existing=True
)
PACKED = Quantization(
    method="awq", scheme="W4A16", bits=4, group_size=128, checkpoint_format="compressed-tensors"
)
FP8_AT_LOAD = Quantization(method="fp8", scheme="W8A8-FP8", bits=8)
MEDUSA_V1 = Draft(
    kind="medusa",
    reference="text-generation-inference/Mixtral-8x7B-Instruct-v0.1-medusa",
    speculative_tokens=3,
    heads=3,
    head_layers=1,
    version="v1",
    replicated=True,
    biased=True,
)
EAGLE3 = Draft(kind="eagle3", reference="org/head", speculative_tokens=3)
DRAFT_MODEL = Draft(kind="draft_model", reference="org/small", speculative_tokens=4)
NGRAM = Draft(kind="ngram", speculative_tokens=3)

# family, variant → container
CONTAINERS: dict[str, ContainerFacts] = {
    name: with_traits(
        ContainerFacts(
            family=family,
            kind=kind,
            engine=engine,
            engine_version=engine_version,
            version=version,
            variant=variant,
            release=release,
            default_base="",
        )
    )
    for name, family, kind, variant, engine, engine_version, version, release in (
        ("vllm-cpu", "vllm", "cpu", "", "vllm", "0.32.0", "", ""),
        ("vllm", "vllm", "nvidia", "", "vllm", "0.27.1", "0.27.1-gpu-sagemaker", ""),
        ("vllm-0.23", "vllm", "nvidia", "", "vllm", "0.23.0", "0.23.0-gpu-sagemaker", ""),
        ("vllm-upstream", "vllm", "nvidia", "upstream", "vllm", "0.32.0", "v0.32.0", ""),
        ("vllm-0.33", "vllm", "nvidia", "upstream", "vllm", "0.33.0", "v0.33.0", ""),
        ("lmi", "lmi", "nvidia", "", "vllm", "0.26.0", "0.36.0-lmi28.0.0-cu130", "28"),
        ("lmi-27", "lmi", "nvidia", "", "vllm", "0.23.1", "0.36.0-lmi27.0.0-cu130", "27"),
        ("lmi-16", "lmi", "nvidia", "", "vllm", "0.10.2", "0.34.0-lmi16.0.0-cu128", "16"),
        ("lmi-15", "lmi", "nvidia", "", "vllm", "0.8.4", "0.33.0-lmi15.0.0-cu128", "15"),
        ("lmi-14", "lmi", "nvidia", "", "vllm", "0.7.3", "0.32.0-lmi14.0.0-cu126", "14"),
        ("lmi-13", "lmi", "nvidia", "", "vllm", "0.6.3.post1", "0.31.0-lmi13.0.0-cu124", "13"),
        (
            "lmi-trt",
            "lmi",
            "nvidia",
            "tensorrt-llm",
            "tensorrt-llm",
            "0.21.0",
            "0.33.0-tensorrtllm0.21.0-cu128",
            "",
        ),
        ("tgi", "tgi", "nvidia", "", "tgi", "3.3.6", "2.7.0-tgi3.3.6-gpu", ""),
        ("tgi-2", "tgi", "nvidia", "", "tgi", "2.0.1", "2.1.1-tgi2.0.1-gpu", ""),
        ("tgi-upstream", "tgi", "nvidia", "upstream", "tgi", "3.3.7", "3.3.7", ""),
        ("sglang", "sglang", "nvidia", "", "sglang", "0.5.17", "0.5.17-gpu-sagemaker", ""),
        ("neuron-vllm", "neuron", "neuron", "vllm-neuron", "vllm", "0.24.0", "sdk2.32.0", "2.32.0"),
        ("neuron-nxdi", "neuron", "neuron", "vllm-nxdi", "vllm", "0.13.0", "sdk2.28.0", "2.28.0"),
        ("neuron-hf", "neuron", "neuron", "hf-vllm-neuronx", "vllm", "0.11.0", "sdk2.26.1", ""),
        ("neuron-tgi", "neuron", "neuron", "tgi-neuronx", "tgi", "3.3.6", "optimum3.3.6", ""),
        (
            "neuron-lmi",
            "neuron",
            "neuron",
            "lmi-neuronx",
            "transformers-neuronx",
            "2.20.1",
            "0.30.0-neuronx-sdk2.20.1",
            "0.30.0",
        ),
    )
}
DEVICES: dict[DeviceKind, tuple[str, int]] = {
    "nvidia": ("ml.g5.12xlarge", 4),
    "cpu": ("local", 1),
    "neuron": ("ml.inf2.48xlarge", 24),
}


def plan_for(container: str, **changes: Any) -> Plan:
    """A plan of Llama 3 8B for a container of the table, with some fields given."""
    facts = CONTAINERS[container]
    name, devices = DEVICES[facts.kind]
    tp_degree = changes.get("tp_degree", 1 if facts.kind == "cpu" else 4)
    given: dict[str, Any] = {
        "model": ModelRef(source="hub", name="org/model", revision="0" * 40),
        "profile": LLAMA_8B,
        "instance": Instance(
            name=name,
            kind=facts.kind,
            device_name="some device",
            devices=devices,
            device_bytes=24 * GIB,
            host_bytes=192 * GIB,
            vcpus=48,
        ),
        "container": facts,
        "served_name": "chat",
        "shape": Shape(max_batch=16, max_input_tokens=4096, max_total_tokens=8192),
        "tp_degree": tp_degree,
        "dtype": "bf16",
        "precision": "bf16",
        "budget": MemoryBudget(
            tp_degree=tp_degree,
            device_bytes=24 * GIB,
            usable_bytes=20 * GIB,
            weights_bytes=8 * GIB,
            activations_bytes=1 * GIB,
            overhead_bytes=1 * GIB,
            kv_bytes_per_token=32768,
            kv_bytes=4 * GIB,
        ),
        "findings": (),
    }
    return Plan(**(given | changes))
