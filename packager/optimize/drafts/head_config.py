"""A head's config.json against its own tensors and the model: what engines build it by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from packager.core.findings import Finding
from packager.core.model import ModelFiles, ModelProfile
from packager.models.checkpoints.gate import inspect_quantized
from packager.optimize.drafts.numbers import TRAINED_FOR, head_config, mapping, rope_of

PLAIN = frozenset({"default", "mrope"})  # rotary types without scaling


def check_head_config(
    files: ModelFiles, model: ModelFiles, profile: ModelProfile
) -> Iterator[Finding]:
    """Refuse a head whose config only claims a quantization, or is for another model's sizes."""
    config = head_config(files.config)
    if mapping(config.get("quantization_config")):
        # Engines build a draft by its own config.json: they would wait for scales.
        for finding in inspect_quantized(replace(files, config=config)).findings:
            yield replace(finding, message=f"draft: {finding.message}")
    target = config.get("target_hidden_size")
    if target is not None and target != profile.hidden_size:
        message = (
            f"the draft's target_hidden_size is {repr(target)[:20]}; the model's hidden states "
            f"have {profile.hidden_size} numbers, of which engines make its first matrix"
        )
        yield Finding("error", "draft-shape", message, TRAINED_FOR)
    yield from _check_rope(rope_of(config), rope_of(model.config))


def _check_rope(own: Mapping[str, Any], models: Mapping[str, Any]) -> Iterator[Finding]:
    """Compare the rotary embeddings of a head and its model, where both configs state them.

    A head without a statement was trained with the engines' default.
    """
    if not own or not models:
        return
    both = "rope_theta" in own and "rope_theta" in models
    differ = ["rope_theta"] if both and own["rope_theta"] != models["rope_theta"] else []
    if {own["rope_type"], models["rope_type"]} - PLAIN:
        differ += [key for key in ("rope_type", "factor") if own.get(key) != models.get(key)]
    if differ:
        described = ", ".join(
            f"{key} {own.get(key, 'none')} where the model has {models.get(key, 'none')}"
            for key in differ
        )
        message = f"the draft's rotary embeddings have {described}; engines use the draft's"
        hint = "make sure that it was trained so: heads are trained with the model's as a rule"
        yield Finding("warning", "draft-rope", message, hint)
