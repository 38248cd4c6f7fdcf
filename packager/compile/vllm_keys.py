"""Numbers as vLLM computes with them: the same in the keys of all that its starts leave."""

from __future__ import annotations

from packager.core.facts import Facts
from packager.core.plan import Plan
from packager.keys.parts import Precision
from packager.keys.parts import Quantization as QuantizationKey


def vllm_precision(facts: Facts, plan: Plan) -> Precision:
    """Return the element types and the quantization of a plan, as key documents have them."""
    chosen = plan.quantization
    weights = None
    if chosen is not None:
        zeros = bool(chosen.layout and chosen.layout.zero_bits)
        weights = QuantizationKey(
            algorithm=f"{chosen.checkpoint_format or chosen.method}:{chosen.scheme}",
            bits=chosen.bits,
            group_size=chosen.group_size or None,
            symmetric=not zeros,
            zero_point=zeros,
            excluded_modules=tuple(facts.request.quantize_ignore or ()),
        )
    return Precision(
        dtype=plan.dtype,
        weights=weights,
        activations=None,
        kv_dtype=plan.kv_dtype,
        auto_cast=None,
        auto_cast_dtype=None,
        logits_dtype=plan.dtype,
    )
