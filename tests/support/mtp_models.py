"""Checkpoints that bring an MTP head, as headers of their published sizes: `data/models`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

from packager.core.model import ModelFiles, ModelRef
from tests.support import zoo
from tests.support.headers import tensor
from tests.support.layouts import config_of, headers_of

GEMMA_4 = config_of("gemma-4-e4b")


@cache
def deepseek_v3() -> ModelFiles:
    """DeepSeek-V3: layer 61 is the head, with copies of the embeddings and of lm_head."""
    plain, head = zoo.deepseek_v3(), headers_of("deepseek-v3", "head").items()
    added = tuple(tensor(name, dtype, shape) for name, (dtype, shape) in head)
    return replace(plain, tensors=(*plain.tensors, *added))


@cache
def _model(name: str) -> ModelFiles:
    headers = headers_of(name).items()
    return ModelFiles(
        ref=ModelRef(source="hub", name="org/model", revision="c" * 40),
        files=(),
        config={"torch_dtype": "bfloat16", **config_of(name)},
        tensors=tuple(tensor(tensor_name, *header) for tensor_name, header in headers),
    )


glm_4_5_air = partial(_model, "glm-4.5-air")  # layer 46 is the head, 128 experts and all
qwen3_next = partial(_model, "qwen3-next-80b")  # `mtp.*`, whose one layer attends; not declared
qwen3_5 = partial(_model, "qwen3.5-27b")  # beside the language model, and declared there
mimo_7b = partial(_model, "mimo-7b")  # `model.mtp_layers.0`
gemma_4 = partial(_model, "gemma-4-e4b")  # a head that is a checkpoint of its own

MODELS: Mapping[str, Callable[[], ModelFiles]] = {
    "deepseek-v3": deepseek_v3,
    "glm-4.5-air": glm_4_5_air,
    "qwen3-next": qwen3_next,
    "qwen3.5": qwen3_5,
    "mimo": mimo_7b,
}


def without(model: ModelFiles, text: str) -> ModelFiles:
    """The same without the tensors whose names have `text` in them, as a quantizer leaves it."""
    return replace(model, tensors=tuple(one for one in model.tensors if text not in one.name))


def with_config(model: ModelFiles, **changed: Any) -> ModelFiles:
    """The same with other values in config.json; None takes a key out."""
    config = {**model.config, **changed}
    return replace(model, config={key: value for key, value in config.items() if value is not None})
