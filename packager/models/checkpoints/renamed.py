"""Names that modules have once transformers has loaded them, where those are not the checkpoint's.

The library that quantizes matches ignore lists with these, and the worker matches them with the
checkpoint's own: an entry may be written in either.  What is not listed here is looked for under
the checkpoint's names alone.
"""

from __future__ import annotations

import re

# transformers 5.17 conversion_mapping.py: Mixtral and what shares its experts; LLaVA and what has
# its parts.  Experts that loading had fused have these names when the library takes them apart.
RENAMED = (
    (re.compile(r"\.block_sparse_moe\."), ".mlp."),
    (re.compile(r"(\.experts\.\d+)\.w1\Z", re.ASCII), r"\1.gate_proj"),
    (re.compile(r"(\.experts\.\d+)\.w2\Z", re.ASCII), r"\1.down_proj"),
    (re.compile(r"(\.experts\.\d+)\.w3\Z", re.ASCII), r"\1.up_proj"),
)
# Of models that see: also Qwen2-VL and Qwen2.5-VL.
RENAMED_PARTS = (
    (re.compile(r"\Alanguage_model\.lm_head"), "lm_head"),
    (re.compile(r"\Alanguage_model\.(?:model\.)?"), "model.language_model."),
    (re.compile(r"\A(visual|vision_tower|multi_modal_projector)\b"), r"model.\1"),
    (re.compile(r"\Amodel\.(layers|norm|embed_tokens)\b"), r"model.language_model.\1"),
)


def loaded_name(module: str, *, sees: bool) -> str:
    """Return the name that a module has once it is loaded; mostly its own."""
    for pattern, name in (*RENAMED, *(RENAMED_PARTS if sees else ())):
        module = pattern.sub(name, module)
    return module
