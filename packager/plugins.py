"""Which names stand for which implementations. Loaded only when asked for.

Adding one is a file and a line here; command-line choices, `packager list`
and the documentation read these tables.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packager.errors import UsageError


@dataclass(frozen=True, slots=True)
class Plugin:
    """Where an implementation lives and what it is, in one line."""

    path: str  # "module:Class"
    summary: str


SOURCES: Mapping[str, Plugin] = {
    "local": Plugin("packager.adapters.sources.local:LocalSource", "a directory on this machine"),
    "hub": Plugin("packager.adapters.sources.hub:HubSource", "Hugging Face Hub, org/name@revision"),
    "hf": Plugin(
        "packager.adapters.sources.hub_stream:HubStreamSource",
        "hf://org/name@revision, streamed from the hub without landing on disk",
    ),
    "s3": Plugin("packager.adapters.sources.s3:S3Source", "s3://BUCKET/PREFIX, streamed from S3"),
}
FAMILIES: Mapping[str, Plugin] = {
    "vllm": Plugin("packager.families.vllm:VllmFamily", "vLLM's OpenAI server, CPU and GPU images"),
    "lmi": Plugin("packager.families.lmi:LmiFamily", "AWS Large Model Inference (DJL Serving)"),
    "tgi": Plugin("packager.families.tgi:TgiFamily", "Text Generation Inference"),
    "sglang": Plugin("packager.families.sglang:SglangFamily", "SGLang's server"),
    "neuron": Plugin("packager.families.neuron:NeuronFamily", "Inferentia and Trainium images"),
}
BASES: Mapping[str, Plugin] = {
    "registry": Plugin("packager.adapters.bases.registry:RegistryBase", "HOST/REPOSITORY:TAG"),
    "oci": Plugin("packager.adapters.bases.layout:LayoutBase", "oci:DIR[:TAG], an OCI layout"),
    "docker": Plugin("packager.adapters.bases.docker:DockerBase", "docker:NAME, a local image"),
    "embedded": Plugin(
        "packager.adapters.bases.embedded:EmbeddedBase", "embedded:NAME, built by packager"
    ),
    "scratch": Plugin("packager.adapters.bases.scratch:ScratchBase", "scratch, an empty image"),
}
SINKS: Mapping[str, Plugin] = {
    "oci": Plugin("packager.adapters.sinks.layout:LayoutSink", "oci:DIR[:TAG], an OCI layout"),
    "registry": Plugin("packager.adapters.sinks.registry:RegistrySink", "HOST/REPOSITORY:TAG"),
    "docker": Plugin("packager.adapters.sinks.docker:DockerSink", "docker:NAME:TAG, an engine"),
}
QUANTIZERS: Mapping[str, Plugin] = {
    "llmcompressor": Plugin(
        "packager.techniques.quantizers.llmcompressor:LlmCompressorQuantizer",
        "llm-compressor: AWQ, GPTQ, FP8, SmoothQuant, NVFP4",
    ),
}
# In the order in which `--compile auto` tries them.
COMPILERS: Mapping[str, Plugin] = {
    "vllm_cache": Plugin(
        "packager.techniques.compilers.vllm_cache:VllmCacheCompiler",
        "what vLLM compiles at its first start: torch.compile, Triton, FlashInfer",
    ),
    "neuron": Plugin(
        "packager.techniques.compilers.neuron:NeuronCompiler",
        "graphs for Inferentia and Trainium, compiled without a device",
    ),
    "tensorrt_llm": Plugin(
        "packager.techniques.compilers.tensorrt_llm:TensorRtLlmCompiler",
        "a TensorRT-LLM engine for one GPU model, up to TensorRT-LLM 1.2",
    ),
}
EXECUTORS: Mapping[str, Plugin] = {
    "local": Plugin("packager.adapters.executors.local:LocalExecutor", "a subprocess here"),
    "docker": Plugin("packager.adapters.executors.docker:DockerExecutor", "a container here"),
    "ray": Plugin("packager.adapters.executors.ray:RayExecutor", "a node of a Ray cluster"),
    "dry_run": Plugin("packager.adapters.executors.dry_run:DryRunExecutor", "names the steps only"),
}
FLEETS: Mapping[str, Plugin] = {
    "local": Plugin("packager.adapters.fleet.local:LocalFleet", "processes on this machine"),
    "ray": Plugin("packager.adapters.fleet.ray:RayFleet", "tasks of a Ray cluster"),
}


def quantizers() -> Mapping[str, Plugin]:
    """Every quantizer, in the order of preference; those of other packages come last."""
    return {**QUANTIZERS, **_outside("packager.quantizers", QUANTIZERS)}


def compilers() -> Mapping[str, Plugin]:
    """Every compiler, in the order of preference; those of other packages come last."""
    return {**COMPILERS, **_outside("packager.compilers", COMPILERS)}


def tool_directories() -> Mapping[str, Plugin]:
    """Tools that other packages bring: each entry point names the path of a directory."""
    return _outside("packager.tools", {})


def _outside(group: str, ours: Mapping[str, Plugin]) -> dict[str, Plugin]:
    """Read the entry points of installed packages. Ours cannot be replaced."""
    from importlib.metadata import entry_points

    return {
        point.name: Plugin(point.value, f"from {point.dist.name if point.dist else 'outside'}")
        for point in sorted(entry_points(group=group), key=lambda point: point.name)
        if point.name not in ours
    }


def load(table: Mapping[str, Plugin], name: str) -> Any:
    """Import the implementation called `name`."""
    if name not in table:
        raise UsageError(f"there is no {name!r} here", hint=f"choose from {', '.join(table)}")
    module, _, attribute = table[name].path.partition(":")
    return getattr(importlib.import_module(module), attribute)


def scheme_of(reference: str, table: Mapping[str, Plugin]) -> str:
    """Say which plug-in an image reference belongs to: `oci:…`, `docker:…`, else a registry."""
    if reference in table:
        return reference
    prefix, colon, _ = reference.partition(":")
    return prefix if colon and prefix in table and prefix != "registry" else "registry"
