"""What differs between kinds of models on loading."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from library import PRIVATE
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForMultimodalLM,
)

# Modules that quantizing leaves alone, and the head.  A checkpoint lists them under the names
# that its files have; transformers looks for its own, which differ for models that see.
TOWERS = (
    *("vision_tower", "vision_model", "visual", "audio_tower"),
    *("multi_modal_projector", "lm_head"),
)


def loader_of(config: Any) -> Any:
    """Return the class that loads the model: those that see or hear are loaded whole."""
    if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING:
        return AutoModelForCausalLM
    if type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        return AutoModelForImageTextToText
    return AutoModelForMultimodalLM


def leave_towers(config: Any, names: list[str]) -> None:
    """Add towers and projectors to what is unquantized, unless `names` has scales of theirs."""
    stated = getattr(config, "quantization_config", None)
    if not isinstance(stated, dict):
        return
    scaled = [name for name in names if name.endswith("_scale")]
    left = [word for word in TOWERS if not any(word in name for name in scaled)]
    stated["ignore"] = [*(stated.get("ignore") or ()), *(f"re:.*{word}.*" for word in left)]


@contextmanager
def plain_matrices() -> Iterator[None]:
    """Make Falcon's matrices as torch's: compressed-tensors unpacks no others.

    Its code for fresh weights would ask packed modules for theirs.
    """
    falcon = "transformers.models.falcon.modeling_falcon"
    with (
        PRIVATE.replaced(falcon, "FalconLinear", torch.nn.Linear),
        PRIVATE.replaced(falcon, "FalconPreTrainedModel._init_weights", lambda *_: None),
    ):
        yield
