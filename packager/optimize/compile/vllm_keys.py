"""Parts of keys that are the same for all that starts of vLLM leave: numbers and device."""

from __future__ import annotations

from packager.core.plan import Plan
from packager.core.techniques import LayerGroup
from packager.optimize.keys.parts import Cpu, Precision, Target
from packager.optimize.keys.parts import Quantization as QuantizationKey
from packager.optimize.steps.key_parts import OF_THE_IMAGE, cuda_target


def vllm_precision(plan: Plan) -> Precision:
    """Return the element types and the quantization of a plan, as key documents have them."""
    chosen = plan.quantization
    weights = None
    if chosen is not None:
        zeros = any(part.layout is not None and part.layout.zero_bits for part in chosen.parts)
        scheme = ";".join(_group(one) for one in chosen.groups) or chosen.scheme
        weights = QuantizationKey(
            algorithm=f"{chosen.checkpoint_format or chosen.method}:{scheme}",
            bits=chosen.bits,
            group_size=chosen.group_size or None,
            symmetric=not zeros,
            zero_point=zeros,
            excluded_modules=plan.quantizing.ignored,
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


def _group(group: LayerGroup) -> str:
    return f"{group.target}={group.quantization.scheme if group.quantization else ''}"


def vllm_target(plan: Plan, cpu: Cpu | None) -> Target:
    """Return the device of a plan; `cpu` has the processor traits that the files depend on."""
    instance = plan.instance
    if instance.kind == "nvidia":
        return cuda_target(instance)
    return Target(
        backend="cpu",
        arch=instance.machine or "",
        device=None,
        logical_core_size=None,
        cpu=cpu,
        os="linux",
        machine=instance.machine or "",
        libc=OF_THE_IMAGE,
    )
