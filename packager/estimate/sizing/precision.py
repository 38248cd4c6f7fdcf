"""Element type that the engine computes with, and whether the device supports it."""

from __future__ import annotations

from packager.core.findings import Finding
from packager.core.instance import GPUS, Instance
from packager.core.model import ModelProfile
from packager.core.techniques import Quantization, cache_option
from packager.core.traits import EngineTraits
from packager.estimate.sizing.processors import check_kernel
from packager.estimate.sizing.schemes import scheme_of

# Overflow in fp16. vLLM 0.32.0, vllm/config/model.py, _FLOAT16_NOT_SUPPORTED_MODELS.
NEEDS_RANGE = frozenset(
    {
        "Gemma2ForCausalLM",
        "Gemma3ForCausalLM",
        "Gemma3ForConditionalGeneration",
        "Glm4ForCausalLM",
    }
)

# Types of pooling models of the same family: EmbeddingGemma has Gemma 3's layers.
WIDE_TYPES = frozenset(("gemma2", "gemma3_text"))

# format of a checkpoint → formats a device may have kernels for, best first.
# FP8 weights run through Marlin as W8A16 where there is no FP8 arithmetic.
# MXFP4, and NVFP4 without quantized inputs, are unpacked to 16 bits by the same kernels as
# other 4-bit weights; MXFP8 as FP8 is, before Blackwell.
SERVED_BY = {
    "fp8_w8a8": ("fp8_w8a8", "fp8_w8a16"),
    "mxfp4": ("w4a16",),
    "mxfp8": ("nvfp4_w4a4", "fp8_w8a16"),
    "nvfp4_w4a16": ("w4a16",),
}

# FlashInfer's kernels read FP8 caches without FP8 arithmetic.  vLLM 0.27.1 and 0.33.0,
# v1/attention/backends/flashinfer.py: 8.0, since 7.5 is broken there (flashinfer issue 3620).
FP8_CACHE_SINCE = 8.0

PRECISIONS = {
    "w4a16": "w4a16",
    "int8_w8a8": "w8a8",
    "fp8_w8a8": "fp8",
    "nvfp4_w4a4": "nvfp4",
    "nvfp4_w4a16": "nvfp4a16",
    "mxfp4": "mxfp4",
    "mxfp8": "mxfp8",
}

SPELLED = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def choose_dtype(
    profile: ModelProfile, instance: Instance, asked: str | None = None
) -> tuple[str, tuple[Finding, ...]]:
    """Choose the 16-bit dtype: the requested one, else the checkpoint's where the device allows it.

    Engines cast 32-bit checkpoints to 16 bits by default, so we plan for that.
    On a CPU the answer never depends on the processor: engines compute bf16
    on all of them, with or without instructions for it.
    """
    has_bf16 = instance.kind == "cpu" or "bf16" in instance.formats
    if profile.architecture in NEEDS_RANGE and not has_bf16:
        message = f"{profile.architecture} needs bf16, which {instance.device_name} does not have"
        hint = "choose an instance with compute capability 8.0 or later, such as 'ml.g5.xlarge'"
        return "fp16", (Finding("error", "dtype-unsupported", message, hint),)
    wanted = "fp16" if profile.dtype == "fp16" else "bf16"
    if profile.architecture in NEEDS_RANGE or profile.model_type in WIDE_TYPES:
        wanted = "bf16"
    refused = _refuse_dtype(profile, instance, asked, has_bf16=has_bf16)
    if refused:
        return wanted, refused
    if asked == "float32":
        return "fp32", ()
    wanted = {"bfloat16": "bf16", "float16": "fp16"}.get(asked or "", wanted)
    dtype = wanted if has_bf16 else "fp16"
    findings = []
    if dtype != profile.dtype:
        reason = "" if has_bf16 else f"; {instance.device_name} has no bf16"
        message = f"{SPELLED[profile.dtype]} weights are cast to {SPELLED[dtype]} on loading"
        hint = "compare the answers with the original's: values beyond 65504 overflow in float16"
        findings.append(
            Finding("warning", "dtype-cast", message + reason, hint if dtype == "fp16" else "")
        )
    elif dtype == "bf16" and "bf16" not in instance.formats:
        message = f"{instance.device_name} has no bf16 instructions: it will be slow"
        hint = "choose a processor with AVX512_BF16 or AMX, or a GPU"
        findings.append(Finding("warning", "dtype-emulated", message, hint))
    return dtype, tuple(findings)


def quantized_dtype(
    dtype: str,
    profile: ModelProfile,
    quantization: Quantization | None,
    traits: EngineTraits,
    asked: str | None,
) -> tuple[str, tuple[Finding, ...]]:
    """Return the type that the engine computes in, where it decides that for quantized weights."""
    decided = traits.quantized_dtypes
    weight_format = profile.quantization
    if quantization is not None:
        weight_format = quantization.checkpoint_format or quantization.method
    forced = decided.of(weight_format, profile.model_type) if decided is not None else ""
    if not forced or forced == dtype:
        return dtype, ()
    message = f"{traits.who} computes {weight_format} weights in {SPELLED[forced]}"
    if SPELLED[forced] != asked and asked in SPELLED.values():
        hint = "leave dtype out, or use --family vllm"
        finding = Finding("error", "dtype-unsupported", f"{message}, not in {asked}", hint)
    elif forced == "fp16" and profile.architecture in NEEDS_RANGE:
        message += f", where {profile.architecture} overflows"
        finding = Finding("error", "dtype-unsupported", message, "use --family vllm")
    else:
        message += f"; the model's own type is {SPELLED[profile.dtype]}"
        hint = "compare the answers with the original's: values beyond 65504 overflow in float16"
        finding = Finding("warning", "dtype-cast", message, hint if forced == "fp16" else "")
    return forced, (finding,)


def _refuse_dtype(
    profile: ModelProfile, instance: Instance, asked: str | None, *, has_bf16: bool
) -> tuple[Finding, ...]:
    """Find a requested type that the device or the model cannot compute with."""
    if asked == "float32" and profile.pooling is None:
        message = "float32 is planned for models that give vectors or scores alone"
        hint = "leave dtype out: engines compute answers in 16 bits"
    elif asked == "bfloat16" and not has_bf16:
        message = f"{instance.device_name} has no bf16, which was requested"
        hint = "leave dtype out, or choose an instance with compute capability 8.0 or later"
    elif asked == "float16" and (
        profile.architecture in NEEDS_RANGE or profile.model_type in WIDE_TYPES
    ):
        message = f"{profile.architecture} overflows in float16, which was requested"
        hint = "leave dtype out"
    else:
        return ()
    return (Finding("error", "dtype-unsupported", message, hint),)


def check_format(
    profile: ModelProfile, instance: Instance, traits: EngineTraits
) -> tuple[Finding, ...]:
    """Return findings where kernels for an already quantized checkpoint are missing."""
    formats = (profile.weight_format, *profile.other_formats)
    return tuple(
        dict.fromkeys(
            finding
            for wanted in formats
            for finding in _check_format(wanted, profile, instance, traits)
        )
    )


def _check_format(
    wanted: str, profile: ModelProfile, instance: Instance, traits: EngineTraits
) -> tuple[Finding, ...]:
    if instance.kind == "cpu" and traits.processors and wanted in traits.processors.formats:
        return check_kernel(wanted, instance, traits)
    if instance.kind == "neuron" and profile.quantization:
        message = f"Neuron engines do not load weights that are quantized as {profile.quantization}"
        hint = "take the unquantized checkpoint"
        return (Finding("error", "format-unsupported", message, hint),)
    served_by = SERVED_BY.get(wanted, (wanted,))
    if not wanted or instance.formats & {wanted, served_by[0]}:
        return ()
    if instance.formats & set(served_by):
        message = f"{instance.device_name} serves {wanted} as weights only: less memory, no faster"
        return (Finding("note", "format-weights-only", message),)
    if instance.kind == "cpu":
        message = f"no measured kernel for {wanted} on {instance.device_name}"
        hint = "start the image before you rely on it"
        return (Finding("warning", "format-unproven", message, hint),)
    message = f"{instance.device_name} has no kernel for {wanted} weights"
    hint = "choose another instance, or a checkpoint that is not quantized"
    return (Finding("error", "format-unsupported", message, hint),)


def choose_kv_dtype(
    asked: str | None, quantization: Quantization | None, instance: Instance
) -> str:
    """Return the cache's type: as requested, else FP8 where its scales are measured.

    vLLM for processors takes it from the checkpoint alone.
    """
    measured = quantization is not None and quantization.scales_cache
    return asked or ("fp8" if measured and instance.kind in GPUS else "auto")


def check_kv_dtype(
    asked: str | None, instance: Instance, quantization: Quantization | None = None
) -> tuple[Finding, ...]:
    """Find that no engine keeps a cache of 8 bits on the device.

    The rules `fp8-kv-…` state which engine does, and for which models.
    """
    if asked != "fp8" or (instance.kind in GPUS and "fp8_w8a8" in instance.formats):
        return ()
    if instance.kind == "nvidia" and (instance.compute_capability or 0.0) >= FP8_CACHE_SINCE:
        return ()
    message = f"{instance.device_name} cannot read a KV cache in FP8"
    hint = f"leave {cache_option(quantization)} out, or choose an instance with compute "
    hint += "capability 8.9 or later"
    return (Finding("error", "kv-dtype-unsupported", message, hint),)


def precision_word(
    profile: ModelProfile, dtype: str, quantization: Quantization | None = None
) -> str:
    """Summarise in one word: `bf16`, `w4a16`, or the method when its format is not known."""
    if quantization and not quantization.existing:
        words = (scheme_of(part).word for part in quantization.parts)
        return "+".join(dict.fromkeys(word for word in words if word)) or dtype
    if profile.quantization:
        formats = (profile.weight_format, *profile.other_formats)
        words = (PRECISIONS.get(one, profile.quantization) for one in formats)
        return "+".join(dict.fromkeys(words))
    return dtype
