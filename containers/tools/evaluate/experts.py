"""Experts with matrices of their own, as quantized checkpoints have them.

transformers fuses the experts of a layer into one tensor while it loads, and can do so with few
of the formats they may be quantized in.  Kept apart they are quantized modules like any other:
weights are unpacked and activations rounded in the one way that compressed-tensors has.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from compressed_tensors.utils import patch_attr
from fused_experts import PARTS
from library import PRIVATE
from llmcompressor.modeling.moe.linear_experts import LinearExperts2D
from llmcompressor.modeling.moe.linearize import get_non_linearized_moes
from models import loader_of
from private_names import find
from transformers.core_model_loading import MergeModulelist, WeightConverter, WeightRenaming

LOADING = "transformers.modeling_utils"
EXPERT = re.compile(r"\.experts\.\d+\.")
MERGED = re.compile(r"experts\\?\.\*\\?\.(\w+)")  # the expert's own name of a matrix


@contextmanager
def experts_apart(config: Any, names: Iterable[str]) -> Iterator[None]:
    """Load models with a module for each matrix of an expert, where `names` are so."""
    if not any(EXPERT.search(name) for name in names):
        yield
        return
    fused = get_non_linearized_moes(empty_model(config))
    kinds = {type(module) for _, module in fused}
    original = find(LOADING, "get_model_conversion_mapping")

    def mapping(model: Any, key_mapping: Any = None, _quantizer: Any = None, **more: Any) -> Any:
        found = original(model, key_mapping, None, **more)
        return [one for transform in found for one in _apart(transform)]

    @contextmanager
    def making() -> Iterator[None]:  # transformers' own way looks into every module it has
        with ExitStack() as patches:
            for kind in kinds:
                made = LinearExperts2D.get_linear_experts_cls(kind)
                patches.enter_context(patch_attr(sys.modules[kind.__module__], kind.__name__, made))
            yield

    with (
        PRIVATE.replaced(LOADING, "apply_patches", making),
        PRIVATE.replaced(LOADING, "get_model_conversion_mapping", mapping),
    ):
        yield


def empty_model(config: Any) -> Any:
    """Make a model without memory for its weights."""
    with torch.device("meta"):
        return loader_of(config).from_config(config)


def _apart(transform: Any) -> Iterator[Any]:
    """Rename each matrix of an expert where a transform would merge them all."""
    if not (
        isinstance(transform, WeightConverter)
        and isinstance(transform.operations[0], MergeModulelist)
        and len(transform.target_patterns) == 1
    ):
        yield transform
        return
    parts = PARTS.get(transform.target_patterns[0].rpartition(".")[2], ())
    leaves = [MERGED.search(pattern) for pattern in transform.source_patterns]
    if len(parts) != len(leaves) or not all(leaves):
        yield transform
        return
    for leaf, part in zip(leaves, parts, strict=True):
        renaming = WeightRenaming(
            source_patterns=rf"\.experts\.(\d+)\.{leaf[1]}\.",
            target_patterns=rf".experts.\1.{part}.",
        )
        renaming.scope_prefix = transform.scope_prefix
        renaming.base_model_prefix = transform.base_model_prefix
        yield renaming
