"""Schemes and options of llm-compressor's methods, and checks of what was requested."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.samples import Samples
from packager.core.techniques import Quantization, Scheme
from packager.core.units import GIB

SHARD_BYTES = 3 * GIB  # of files of a result
ASYMMETRIC = Scheme(name="W4A16", needs="w4a16", word="w4a16", bits=4, group_size=128, zero_bits=4)
SYMMETRIC = Scheme(name="W4A16", needs="w4a16", word="w4a16", bits=4, group_size=128)
# Marlin has kernels for bytes, too; vLLM's for processors are for 4 bits alone.
EIGHT_BITS = Scheme(
    name="W8A16",
    needs="w4a16",
    word="w8a16",
    bits=8,
    group_size=128,
    capabilities=(8.0, 99.0),
    option="w8a16",
)
NVFP4 = Scheme(
    name="NVFP4A16", needs="w4a16", word="nvfp4a16", bits=4, group_size=16, scale_bytes=1
)

# Scales of activations are calibrated.  Without FP4 arithmetic vLLM does not quantize activations
# (CompressedTensorsW4A4Fp4, init_nvfp4_linear_kernel), so the scheme is refused there.
NVFP4_W4A4 = Scheme(
    name="NVFP4",
    needs="nvfp4_w4a4",
    word="nvfp4",
    bits=4,
    group_size=16,
    scale_bytes=1,
    option="w4a4",
)
# Weights stay as they are: scales of the KV cache are all that is written.
CACHE = Scheme(name="", needs="", word="", bits=16, scale_bytes=0)

# vLLM quantizes activations where Blackwell multiplies in the format, and unpacks the weights
# (Marlin) before: compressed_tensors_w4a4_mxfp4.py and kernels/linear/mxfp8 in vLLM 0.32.
MXFP4 = Scheme(name="MXFP4", needs="nvfp4_w4a4", word="mxfp4", bits=4, group_size=32, scale_bytes=1)
MXFP4A16 = Scheme(
    name="MXFP4A16",
    needs="w4a16",
    word="mxfp4a16",
    bits=4,
    group_size=32,
    scale_bytes=1,
    capabilities=(8.0, 9.9),
)
MXFP8 = Scheme(name="MXFP8", needs="nvfp4_w4a4", word="mxfp8", bits=8, group_size=32, scale_bytes=1)
MXFP8A16 = Scheme(
    name="MXFP8A16",
    needs="fp8_w8a16",
    word="mxfp8a16",
    bits=8,
    group_size=32,
    scale_bytes=1,
    capabilities=(8.0, 9.9),
)

# CutlassW4A8LinearKernel is for compute capability 9.0 and no other, and for groups of 128.
W4AFP8 = Scheme(
    name="W4AFP8",
    needs="fp8_w8a8",
    word="w4afp8",
    bits=4,
    group_size=128,
    capabilities=(9.0, 9.0),
)

TOOL = "llmcompressor"

OPTIONS: Mapping[str, frozenset[str]] = {
    "awq": frozenset({"symmetric", "asymmetric", "group"}),
    "gptq": frozenset({"symmetric", "asymmetric", "group"}),
    "rtn": frozenset({"symmetric", "asymmetric", "group", "w8a16"}),
    "fp8": frozenset({"dynamic", "static", "block", "kv"}),
    "smoothquant": frozenset({"strength", "gptq"}),
    "kv": frozenset(),
    "nvfp4": frozenset({"w4a4"}),
    "mxfp4": frozenset(),
    "mxfp8": frozenset(),
    "w4afp8": frozenset(),
    "int8": frozenset(),
    "autoround": frozenset({"group", "iters"}),
}

_WITH_VALUE = frozenset({"group", "strength", "iters"})
_EXCLUDING = (
    frozenset({"symmetric", "asymmetric"}),
    frozenset({"w8a16", "asymmetric"}),
    frozenset({"dynamic", "static", "block"}),
)
_ROUNDED_ONLY = frozenset({"int8", "nvfp4", "mxfp4", "mxfp8", "w4afp8", "rtn"})  # need no data

USUAL_GROUPS = (128, 64, 32)  # what Marlin has kernels for

AUTOROUND_SIZES = 32  # auto-round 0.15.1, compressors/layer_config_resolver.py
ITERATIONS, MOST_ITERATIONS = 200, 10_000  # AutoRound's own default


def check_options(chosen: Quantization) -> Iterator[Finding]:
    known = OPTIONS[chosen.method]
    names = {name for name, _ in chosen.options}
    for name, text in chosen.options:
        if name not in known:
            message = f"{chosen.method} has no option {name[:40]!r}"
            listed = ", ".join(sorted(known)) or "none"
            yield Finding("error", "quantize-option", message, f"its options: {listed}")
        elif (name in _WITH_VALUE) != bool(text):
            form = f"{name}=NUMBER" if name in _WITH_VALUE else name
            message = f"option {name!r} of {chosen.method} is written otherwise"
            yield Finding("error", "quantize-option", message, f"write `{form}`")
        elif name == "iters" and not _is_iterations(text):
            message = f"iters {text[:20]!r} is not a number from 1 to {MOST_ITERATIONS}"
            yield Finding("error", "quantize-option", message, f"write `iters={ITERATIONS}`")
        elif name == "strength" and not _is_share(text):
            message = f"strength {text[:20]!r} is not a number from 0 to 1"
            hint = "write `strength=0.8`"
            yield Finding("error", "quantize-option", message, hint)
    for group in _EXCLUDING:
        if len(names & group) > 1:
            message = f"{' and '.join(sorted(names & group))} exclude each other"
            yield Finding("error", "quantize-option", message, "name one of them")


def check_groups(
    method: str, group_size: int, sizes: Mapping[str, tuple[int, ...]]
) -> Iterator[Finding]:
    """Check that groups divide the inputs of every matrix that is packed, by the headers."""
    cut = [module for module, shape in sizes.items() if group_size and shape[1] % group_size]
    if cut:
        message = (
            f"groups of {group_size} weights do not divide the {sizes[cut[0]][1]} inputs of "
            f"{cut[0]}{_others(cut)}"
        )
        offered = USUAL_GROUPS if "group" in OPTIONS[method] else ()
        widths = {inputs for _, inputs in sizes.values()}
        fitting = [group for group in offered if not any(width % group for width in widths)]
        hint = f"use `group={fitting[0]}`" if fitting else "use `--quantize fp8`"
        yield Finding("error", "quantize-group", message, hint)
    elif method == "autoround":
        yield from _check_autoround(sizes)


def _check_autoround(sizes: Mapping[str, tuple[int, ...]]) -> Iterator[Finding]:
    """Refuse sizes that AutoRound passes over: engines fuse such a matrix with packed ones."""
    odd = [module for module, size in sizes.items() if any(n % AUTOROUND_SIZES for n in size)]
    if odd:
        outputs, inputs = sizes[odd[0]]
        message = (
            f"autoround packs no matrix whose sizes are not multiples of {AUTOROUND_SIZES}: "
            f"{odd[0]} has {outputs} outputs and {inputs} inputs{_others(odd)}"
        )
        yield Finding("error", "quantize-group", message, "use `--quantize gptq`")


def _others(found: Sequence[str]) -> str:
    return f" and {len(found) - 1} more" if len(found) > 1 else ""


def check_samples(facts: Facts, samples: Samples) -> Iterator[Finding]:
    request = facts.request
    if samples.complaint:
        hint = "docs/data.md has the formats"
        yield Finding("warning", "calibration-broken-rows", samples.complaint, hint)
    asked = request.calibration_samples
    if asked and len(samples.samples) < asked:
        message = f"{samples.source!r} holds {len(samples.samples)} samples; {asked} are requested"
        yield Finding("warning", "calibration-few-samples", message, "name more data, or ask less")


def needs_data(chosen: Quantization) -> bool:
    if chosen.groups:
        return any(needs_data(part) for part in chosen.parts)
    options = {name for name, _ in chosen.options}
    if chosen.method == "fp8":
        return bool(options & {"static", "kv"})
    return chosen.method not in _ROUNDED_ONLY or "w4a4" in options


def is_symmetric(chosen: Quantization) -> bool:
    options = {name for name, _ in chosen.options}
    if chosen.method == "awq":
        return "symmetric" in options
    return "asymmetric" not in options


def _is_iterations(text: str) -> bool:
    return (
        text.isascii()
        and text.isdecimal()
        and len(text) < 6
        and (1 <= int(text) <= MOST_ITERATIONS)
    )


def _is_share(text: str) -> bool:
    try:
        return 0 <= float(text) <= 1
    except ValueError:
        return False
