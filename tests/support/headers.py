"""Models of real sizes as headers only, and facts about them: no bytes, no look-ups."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from packager.catalog.accelerators import accelerator_of
from packager.catalog.containers import find_container
from packager.catalog.instances import find_instance
from packager.core.facts import Facts
from packager.core.instance import Instance
from packager.core.model import ModelFiles, ModelRef, TensorInfo
from packager.core.plan import Plan
from packager.core.request import BuildRequest
from packager.core.units import GIB
from packager.optimize.drafts.request import parse_draft
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.services import PlannerServices
from tests.support.doubles.containers import FAMILIES, with_traits
from tests.support.doubles.models import BYTES_PER_ELEMENT, llama_tensors
from tests.support.layouts import config_of

TINY = config_of("tiny")
LLAMA_3_8B = config_of("llama-3-8b")
LLAMA_3_70B = config_of("llama-3-70b")
GEMMA_2_2B = config_of("gemma-2-2b")

AWQ_G128: dict[str, Any] = {
    "quant_method": "awq",
    "bits": 4,
    "group_size": 128,
    "version": "gemm",
    "zero_point": True,
}


LOCAL_CPU = Instance(
    name="local",
    kind="cpu",
    device_name="some processor",
    devices=1,
    device_bytes=24 * GIB,
    host_bytes=24 * GIB,
    vcpus=2,
    formats=frozenset({"bf16", "fp16", "fp32", "int8_w8a8"}),
    flags=("avx2", "avx512bw", "avx512dq", "avx512f", "avx512vl", "f16c"),
)


def facts_of(
    model: ModelFiles, instance: str | Instance, *, family: str | None = None, **asked: Any
) -> Facts:
    """Gather what `resolve` would, from names in the catalog."""
    found = find_instance(instance) if isinstance(instance, str) else instance
    return Facts(
        request=BuildRequest(model="m", instance=found.name, family=family, **asked),
        model=model,
        instance=found,
        container=with_traits(find_container(family, found.kind)),
        base=None,
        packager_version="0.1.0",
        draft_request=parse_draft(asked.get("draft")),
    )


def plan_of(
    model: ModelFiles, instance: str | Instance, *, family: str | None = None, **asked: Any
) -> Plan:
    """Plan with the family that the catalog chooses."""
    facts = facts_of(model, instance, family=family, **asked)
    return make_plan(
        facts,
        PlannerServices(family=FAMILIES[facts.container.family], accelerator_of=accelerator_of),
    )


def model_of(config: dict[str, Any], *, dtype: str = "BF16", name: str = "model") -> ModelFiles:
    """Make a model whose headers agree with its config.json."""
    head_dim = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    shapes = llama_tensors(
        layers=config["num_hidden_layers"],
        hidden_size=config["hidden_size"],
        intermediate_size=config["intermediate_size"],
        kv_size=head_dim * config["num_key_value_heads"],
        vocab_size=config["vocab_size"],
        dtype=dtype,
    )
    return ModelFiles(
        ref=ModelRef(source="hub" if "/" in name else "local", name=name),
        files=(),
        config=config,
        tensors=tuple(tensor(name, dtype, shape) for name, (dtype, shape) in shapes.items()),
    )


def awq_model_of(config: dict[str, Any], *, name: str = "model") -> ModelFiles:
    """Make the same model with its linear layers packed as AWQ does, embeddings left whole."""
    return awq_packed(model_of(config, name=name))


def awq_packed(whole: ModelFiles, *ends: str) -> ModelFiles:
    """Pack the linear layers of a model as AWQ does: `…_proj`, and those with other `ends`."""
    tensors = tuple(one for info in whole.tensors for one in _packed(info, ("_proj", *ends)))
    config = {**whole.config, "torch_dtype": "float16", "quantization_config": AWQ_G128}
    return ModelFiles(ref=whole.ref, files=(), config=config, tensors=tensors)


def _packed(info: TensorInfo, ends: tuple[str, ...]) -> Iterator[TensorInfo]:
    stem = info.name.removesuffix(".weight")
    if not stem.endswith(ends):
        yield tensor(info.name, "F16", info.shape)
        return
    outputs, inputs = info.shape
    groups = inputs // AWQ_G128["group_size"]
    yield tensor(f"{stem}.qweight", "I32", (inputs, outputs // 8))
    yield tensor(f"{stem}.qzeros", "I32", (groups, outputs // 8))
    yield tensor(f"{stem}.scales", "F16", (groups, outputs))


def tensor(name: str, dtype: str, shape: tuple[int, ...]) -> TensorInfo:
    """One tensor as its header declares it."""
    return TensorInfo(
        name=name,
        dtype=dtype,
        shape=shape,
        size=BYTES_PER_ELEMENT[dtype] * math.prod(shape),
        file="model.safetensors",
    )
