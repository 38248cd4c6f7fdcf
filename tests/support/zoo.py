"""Released models of every architecture, as config.json and headers alone.

Numbers are those of the published config.json; layers are written out, so
that parameters can be held against what the publishers say: `data/models`.
"""

from __future__ import annotations

import functools
from typing import Any

from packager.core.model import ModelFiles, ModelRef, TensorInfo
from tests.support.headers import tensor
from tests.support.layouts import Headers, config_of, headers_of

Shapes = Headers

MIXTRAL_8X7B = config_of("mixtral-8x7b")
QWEN3_30B_A3B = config_of("qwen3-30b-a3b")
QWEN3_NEXT_80B = config_of("qwen3-next-80b")
GPT_OSS_20B = config_of("gpt-oss-20b")
DEEPSEEK_V3 = config_of("deepseek-v3")
FALCON_7B = config_of("falcon-7b")
FALCON_40B_OLD = config_of("falcon-40b-old")
GPT_2 = config_of("gpt-2")
GPT_NEOX_20B = config_of("gpt-neox-20b")
BLOOM_176B = config_of("bloom-176b")
COMMAND_R = config_of("command-r")
PHI_2 = config_of("phi-2")
GEMMA_3_4B = config_of("gemma-3-4b")  # Gemma3TextConfig's defaults are left out, as published
LLAMA_3_1_405B = config_of("llama-3.1-405b")
MISTRAL_7B_V0_1 = config_of("mistral-7b-v0.1")


def config_only(config: dict[str, Any]) -> ModelFiles:
    """A model whose one tensor says no more than its element type."""
    return files(config, {"norm.weight": ("BF16", (8,))})


def files(config: dict[str, Any], shapes: Headers) -> ModelFiles:
    return ModelFiles(
        ref=ModelRef(source="hub", name="org/model"),
        files=(),
        config=config,
        tensors=tuple(tensor(name, dtype, shape) for name, (dtype, shape) in shapes.items()),
    )


@functools.cache
def mixtral() -> ModelFiles:
    return files(MIXTRAL_8X7B, headers_of("mixtral-8x7b"))


@functools.cache
def qwen3_moe() -> ModelFiles:
    return files(QWEN3_30B_A3B, headers_of("qwen3-30b-a3b"))


@functools.cache
def gpt_oss() -> ModelFiles:
    return files(GPT_OSS_20B, headers_of("gpt-oss-20b"))


@functools.cache
def deepseek_v3() -> ModelFiles:
    """The last of 62 layers only drafts; what joins it to the others is left out."""
    return files(DEEPSEEK_V3, headers_of("deepseek-v3"))


@functools.cache
def medusa(heads: int, hidden: int, vocabulary: int, *, version: int = 1) -> ModelFiles:
    shapes: Headers = {}
    for head in range(heads):
        shapes[f"{head}.0.linear.weight"] = ("F16", (hidden, hidden))
        shapes[f"{head}.0.linear.bias"] = ("F16", (hidden,))
        if version == 1:
            shapes[f"{head}.1.weight"] = ("F16", (vocabulary, hidden))
    return files({"medusa_num_heads": heads, "medusa_num_layers": 1}, shapes)


def sized(tensors: tuple[TensorInfo, ...]) -> int:
    return sum(one.size for one in tensors)
