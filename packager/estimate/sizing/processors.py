"""Kernels of an engine for weights on a processor, by what its build has for it."""

from __future__ import annotations

from packager.core.findings import Finding
from packager.core.instance import Instance
from packager.core.processors import ProcessorKernels, known_flags
from packager.core.traits import EngineTraits

FORMAT_NAMES = {
    "w4a16": "4-bit weights",
    "fp8_w8a8": "FP8 weights",
    "int8_w8a8": "8-bit integers",
}
# What an FP8 and an INT8 checkpoint is called where one is looked for.
CHECKPOINTS = {"fp8_w8a8": "FP8 (dynamic scales)", "int8_w8a8": "INT8 (W8A8)"}


def may_compute(wanted: str, instance: Instance, traits: EngineTraits) -> bool:
    """Check that the engine has a kernel for a format there: on processors, by its build.

    Where a processor's flags are unknown it may have one.
    """
    if instance.kind != "cpu":
        return wanted in instance.formats
    kernels = traits.processors
    if kernels is None:
        return False
    if not known_flags(instance):
        return wanted in kernels.formats
    return wanted in kernels.formats_on(instance)


def check_kernel(
    wanted: str, instance: Instance, traits: EngineTraits, instead: str = ""
) -> tuple[Finding, ...]:
    """Find that the engine's build lacks the kernel of a format there, or may lack it.

    Formats that no build has a kernel for are other checks'.  `instead` is what works there.
    """
    kernels = traits.processors
    if instance.kind != "cpu" or kernels is None or wanted not in kernels.formats:
        return ()
    if wanted in kernels.formats_on(instance):
        return ()
    if any(one.code == "processor-too-old" for one in check_processor(instance, traits)):
        return ()  # no engine runs there, which is reported once
    name = FORMAT_NAMES.get(wanted, wanted)
    if not known_flags(instance):
        message = (
            f"the flags of {instance.name}'s processor are unknown: {kernels.who} computes with "
            f"{name} on some processors only"
        )
        hint = "state `flags` in its row of your catalog, or start the image: `packager smoke`"
        return (Finding("warning", "processor-flags-unknown", message, hint),)
    extension = kernels.extension(instance)
    missing = kernels.missing_operators(wanted, instance)
    operators = f", which has no operator {', '.join(map(repr, missing))}" if missing else ""
    loads = f" it loads {extension.name!r}{operators}" if extension else " it has no build"
    message = f"{kernels.who} has no kernel for {name} on {instance.device_name}:{loads}"
    hint = f"use {instead or _checkpoints(traits, instance)}, or leave the weights as they are"
    having = kernels.wanted_by(wanted)
    if having:
        hint += f", or choose a processor with {having}, or a GPU"
    return (Finding("error", "processor-lacks-kernel", message, hint),)


def check_processor(instance: Instance, traits: EngineTraits) -> tuple[Finding, ...]:
    """Find that the engine's build has no code for the processor, whatever the weights are."""
    kernels, flags = traits.processors, known_flags(instance)
    if instance.kind != "cpu" or kernels is None or not flags:
        return ()
    extension = kernels.extension(instance)
    lacking = sorted(extension.needs - flags) if extension else []
    if extension is not None and not lacking:
        return _check_plain(extension.name, kernels, instance)
    why = f"its code uses {', '.join(lacking)}" if lacking else "there is no build for that machine"
    message = f"{kernels.who} does not run on {instance.device_name}: {why}"
    return (Finding("error", "processor-too-old", message, "choose another instance"),)


def _check_plain(
    extension: str, kernels: ProcessorKernels, instance: Instance
) -> tuple[Finding, ...]:
    """Find that weights that are not quantized have no kernel either: some flags are hidden."""
    missing = kernels.missing_operators("plain", instance)
    if not missing:
        return ()
    message = (
        f"{kernels.who} has no kernel for AMX on {instance.device_name}: it loads {extension!r}, "
        f"which has no operator {', '.join(map(repr, missing))}"
    )
    hint = "show the virtual machine its whole processor, AVX512_BF16 with AMX, or hide AMX, too"
    return (Finding("error", "processor-lacks-kernel", message, hint),)


def _checkpoints(traits: EngineTraits, instance: Instance) -> str:
    """Return, in words, the checkpoints that the engine computes with there."""
    assert traits.processors is not None
    served = traits.processors.formats_on(instance)
    named = " or ".join(words for name, words in CHECKPOINTS.items() if name in served)
    return f"a checkpoint in {named}" if named else "another checkpoint"
