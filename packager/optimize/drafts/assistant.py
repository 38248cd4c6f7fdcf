"""MTP heads that are checkpoints of their own: the assistants of Gemma 4.

An assistant has a few layers and no keys and values: it reads the model's.  Two projections lead
from the model's hidden size to its own and back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from packager.core.facts import ContainerFacts
from packager.core.findings import Finding
from packager.core.model import ModelFiles, ModelProfile
from packager.core.techniques import Draft
from packager.models.architectures.profile import read_head, text_config
from packager.optimize.drafts.eagle import check_needed
from packager.optimize.drafts.mtp import check_engine
from packager.optimize.drafts.numbers import (
    OWN,
    TRAINED_FOR,
    check_floats,
    number,
    other_shape,
    other_vocabulary,
)

TYPES = ("gemma4_assistant", "gemma4_unified_assistant")
# The fields of config.json by which engines recognize an assistant.
ASSISTANT: Mapping[str, Any] = {
    "model_type": TYPES[0],
    "architectures": ["Gemma4AssistantForCausalLM"],
}
USUAL_TOKENS = 4  # as vLLM's recipe for Gemma 4 has it
INTO, BACK = "pre_projection.weight", "post_projection.weight"
ORDER = "token_ordering"  # of the embeddings: the one tensor of numbers that count


def assistant_draft(draft: Draft, files: ModelFiles) -> Draft:
    """Return the draft with its numbers; its cache is the model's own."""
    numbers = text_config(files.config)
    return replace(
        draft,
        speculative_tokens=draft.speculative_tokens or USUAL_TOKENS,
        weight_bytes=files.weight_bytes,
        attention_heads=number(numbers, "num_attention_heads"),
        intermediate_size=number(numbers, "intermediate_size"),
        heads=1,
        layout="transformers",
        method="mtp",
    )


def check_assistant(
    files: ModelFiles, model: ModelFiles, profile: ModelProfile, container: ContainerFacts
) -> Iterator[Finding]:
    """Refuse an assistant that does not fit the model, is not whole, or is not served."""
    stated = files.config.get("model_type")
    if stated not in TYPES:
        message = f"the draft is not an MTP head of its own: its type is {repr(stated)[:60]}"
        hint = "write `--draft mtp` for the head in the model's own checkpoint"
        yield Finding("error", "draft-kind", message, hint)
        return
    if not read_head(model).separate:
        message = f"the draft is a head of Gemma 4, and the model is {profile.architecture}"
        yield Finding("error", "draft-architecture", message, TRAINED_FOR)
        return
    numbers = text_config(files.config)
    hidden, layers = number(numbers, "hidden_size"), number(numbers, "num_hidden_layers")
    backbone = number(files.config, "backbone_hidden_size")
    if not (hidden and layers and backbone):
        message = "the draft's config.json does not state its sizes and backbone_hidden_size"
        yield Finding("error", "draft-config", message, OWN)
        return
    vocabulary = number(numbers, "vocab_size")
    if vocabulary and vocabulary != profile.vocab_size:
        yield other_vocabulary(vocabulary, profile.vocab_size)
    if backbone != profile.hidden_size:
        message = (
            f"the draft reads hidden states of {backbone}, the model gives {profile.hidden_size}"
        )
        yield Finding("error", "draft-shape", message, TRAINED_FOR)
    tensors = {one.name.removeprefix("model."): one for one in files.tensors}
    for name, shape in ((INTO, (hidden, 2 * backbone)), (BACK, (backbone, hidden))):
        tensor = tensors.get(name)
        if tensor is not None and tensor.shape != shape:
            yield other_shape(tensor, shape)
    needed = [f"layers.{layer}.self_attn.q_proj.weight" for layer in range(min(layers, 64))]
    yield from check_needed([INTO, BACK, *needed], tensors)
    yield from check_floats(one for name, one in tensors.items() if not name.endswith(ORDER))
    yield from check_engine(files.config, container)
