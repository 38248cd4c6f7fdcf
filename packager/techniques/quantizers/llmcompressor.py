"""Quantizing with llm-compressor: AWQ, GPTQ, FP8, SmoothQuant, NVFP4, MX formats, rounding.

The result is a compressed-tensors checkpoint, or AutoAWQ's format where the
family's engine reads only that: our own AWQ result, written in the other order
without loss (docs/decisions/0006-awq-format.md).

| method | options |
|---|---|
| awq | `symmetric`, `asymmetric` (usual), `group=N` (128) |
| autoround | `group=N` (128), `iters=N` (200) |
| gptq, rtn | `symmetric` (usual), `asymmetric`, `group=N` (128) |
| fp8 | `dynamic` (usual), `static`, `block`, `kv` |
| smoothquant | `strength=X` (0.8), `gptq` |
| nvfp4, mxfp4, mxfp8, w4afp8 | none |
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from artifact_cache.key import (
    ActivationQuantization,
    Calibration,
    Invocation,
    Precision,
    QuantizedCheckpointKey,
    Weights,
)
from artifact_cache.key import Quantization as QuantizationKey
from packager.core.devices import LARGE_HIDDEN, SMALL_BYTES, GpuUse
from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.model import ModelFile
from packager.core.plan import Plan
from packager.core.recipe import Estimate, Step, StepInput
from packager.core.samples import CALIBRATION_TOKENS, Samples
from packager.core.techniques import Quantization, Scheme
from packager.core.units import GIB
from packager.planning.amounts import quantizing_work, texts_of
from packager.planning.effort import time_limit_s
from packager.planning.memory import ELEMENT_BYTES, served_weight_bytes
from packager.planning.profile import PackedSizes, packed_sizes
from packager.planning.quantizable import find_support
from packager.planning.schemes import W8A8_FP8, W8A8_INT8, W8A16_FP8, quantized_weight_bytes
from packager.techniques.configs import NO_WEIGHT
from packager.techniques.inputs import (
    carried_files,
    config_file,
    samples_file,
    tokenizer_files,
    weight_files,
)
from packager.techniques.keys import files_by_path, graph_of, toolchain_of

_ASYMMETRIC = Scheme(name="W4A16", needs="w4a16", word="w4a16", bits=4, group_size=128, zero_bits=4)
_SYMMETRIC = Scheme(name="W4A16", needs="w4a16", word="w4a16", bits=4, group_size=128)
_NVFP4 = Scheme(
    name="NVFP4A16", needs="w4a16", word="nvfp4a16", bits=4, group_size=16, scale_bytes=1
)
# vLLM quantizes activations where Blackwell multiplies in the format, and unpacks the weights
# (Marlin) before: compressed_tensors_w4a4_mxfp4.py and kernels/linear/mxfp8 in vLLM 0.32.
_MXFP4 = Scheme(
    name="MXFP4", needs="nvfp4_w4a4", word="mxfp4", bits=4, group_size=32, scale_bytes=1
)
_MXFP4A16 = Scheme(
    name="MXFP4A16",
    needs="w4a16",
    word="mxfp4a16",
    bits=4,
    group_size=32,
    scale_bytes=1,
    capabilities=(8.0, 9.9),
)
_MXFP8 = Scheme(
    name="MXFP8", needs="nvfp4_w4a4", word="mxfp8", bits=8, group_size=32, scale_bytes=1
)
_MXFP8A16 = Scheme(
    name="MXFP8A16",
    needs="fp8_w8a16",
    word="mxfp8a16",
    bits=8,
    group_size=32,
    scale_bytes=1,
    capabilities=(8.0, 9.9),
)
# CutlassW4A8LinearKernel is for compute capability 9.0 and no other, and for groups of 128.
_W4AFP8 = Scheme(
    name="W4AFP8",
    needs="fp8_w8a8",
    word="w4afp8",
    bits=4,
    group_size=128,
    capabilities=(9.0, 9.0),
)

OPTIONS: Mapping[str, frozenset[str]] = {
    "awq": frozenset({"symmetric", "asymmetric", "group"}),
    "gptq": frozenset({"symmetric", "asymmetric", "group"}),
    "rtn": frozenset({"symmetric", "asymmetric", "group"}),
    "fp8": frozenset({"dynamic", "static", "block", "kv"}),
    "smoothquant": frozenset({"strength", "gptq"}),
    "nvfp4": frozenset(),
    "mxfp4": frozenset(),
    "mxfp8": frozenset(),
    "w4afp8": frozenset(),
    "autoround": frozenset({"group", "iters"}),
}
# Schemes whose activations are quantized while serving: type, and what shares a scale.
_DYNAMIC: Mapping[str, tuple[str, str]] = {
    "MXFP4": ("fp4_e2m1", "group"),
    "MXFP8": ("fp8_e4m3", "group"),
    "W4AFP8": ("fp8_e4m3", "token"),
}
_WITH_VALUE = frozenset({"group", "strength", "iters"})
_EXCLUDING = (frozenset({"symmetric", "asymmetric"}), frozenset({"dynamic", "static", "block"}))
_ROUNDED_ONLY = frozenset({"nvfp4", "mxfp4", "mxfp8", "w4afp8", "rtn"})  # no data is looked at

# Modules that stay as they are: heads and routers, which decide too much for what they weigh,
# and what is no language model.  llm-compressor 0.14, examples/ for each architecture.
IGNORED = (
    "lm_head",
    "re:.*mlp.gate$",
    "re:.*block_sparse_moe.gate$",
    "re:.*router$",
    "re:.*mlp.shared_expert_gate$",
    "re:.*vision_tower.*",
    "re:.*vision_model.*",
    "re:.*visual.*",
    "re:.*multi_modal_projector.*",
)

USUAL_GROUPS = (128, 64, 32)  # what Marlin has kernels for
SHARD_BYTES = 3 * GIB
AUTOROUND_SIZES = 32  # auto-round 0.15.1, compressors/layer_config_resolver.py
ITERATIONS, MOST_ITERATIONS = 200, 10_000  # AutoRound's own default
STRENGTH = 0.8  # llm-compressor's examples for Llama
# Memory, measured on a model of 1.1 GB: docs/quantization.md, "Memory".
_LIBRARIES_BYTES = 500_000_000  # torch, transformers and llm-compressor, loaded
_DRIVER_BYTES = 1_000_000_000  # of a GPU: CUDA itself, its libraries' kernels and work space
_SPARE = 1.1  # of weights and result
_GPU_SQUARES = 3 * 4  # of its inputs, while one matrix is solved on a GPU, in float32
_HESSIANS = 4 * 4  # square matrices of the widest input at once, in float32
_WEIGHTS_KEPT = {"awq": 1, "gptq": 1, "smoothquant": 1}  # times, besides scales
_MASKS = 2  # of attention, for each text
_FILES = 100_000_000  # small ones, and what file systems round up
_TUNED = 40  # of AutoRound, for a weight of one layer: offsets, gradients and copies in float32
_CACHED = {
    "awq": 12,
    "gptq": 6,
    "autoround": 12,
}  # activations of a token between two layers, in hidden sizes


class LlmCompressorQuantizer:
    """Describes runs of `containers/tools/llmcompressor`."""

    name = "llmcompressor"
    tool = "llmcompressor"
    methods: Mapping[str, tuple[Scheme, ...]] = {
        "awq": (_ASYMMETRIC,),
        "gptq": (_SYMMETRIC,),
        "fp8": (W8A8_FP8, W8A16_FP8),
        "smoothquant": (W8A8_INT8,),
        "nvfp4": (_NVFP4,),
        "rtn": (_SYMMETRIC,),
        "mxfp4": (_MXFP4, _MXFP4A16),
        "mxfp8": (_MXFP8, _MXFP8A16),
        "w4afp8": (_W4AFP8,),
        "autoround": (_SYMMETRIC,),
    }

    def check(self, facts: Facts, plan: Plan) -> Iterable[Finding]:
        """Say which options there are not, and what the data does not allow."""
        chosen = plan.quantization
        assert chosen is not None
        yield from _check_options(chosen)
        if not facts.request.quantize_ignore:  # the worker knows what is left of the layers then
            yield from _check_groups(facts, chosen.method, chosen.group_size)
        if plan.weights == "mounted":
            message = "the quantized weights would only be in the image, and it holds none"
            hint = "use `--weights baked`, or quantize first and mount the result"
            yield Finding("error", "quantize-mounted", message, hint)
        if _needs_data(chosen) and facts.samples is None:
            message = f"{chosen.method} needs texts to calibrate with"
            yield Finding("error", "calibration-missing", message, "name them with --calibration")
        elif facts.samples is not None and _needs_data(chosen):
            yield from _check_samples(facts)

    def gpu_use(self, facts: Facts, plan: Plan) -> GpuUse:
        """Describe the GPU that the run can use: one, which takes the layers in turn.

        Methods that look at no texts round numbers, which disks are slower at than processors.
        """
        chosen = plan.quantization
        assert chosen is not None
        if not _needs_data(chosen):
            return GpuUse()
        tokens = _sequence_tokens(facts, plan)
        return GpuUse(
            most=1,
            helps=served_weight_bytes(plan.profile) >= SMALL_BYTES,
            each_bytes=_gpu_bytes(plan, chosen, tokens),
        )

    def step(self, facts: Facts, plan: Plan) -> Step:
        """Describe the run."""
        chosen = plan.quantization
        assert chosen is not None
        samples = facts.samples if _needs_data(chosen) else None
        parameters = _parameters(facts, plan, chosen)
        use = self.gpu_use(facts, plan)
        gpus = min(facts.gpus, use.most)
        if gpus:
            parameters["device"] = "cuda"  # its sums are others
        env = _env(plan, chosen, facts.threads, gpus)
        key = _key(facts, plan, chosen, parameters, samples, env)
        needs = _needs(plan, chosen, samples, parameters)
        files = (config_file(facts.model.config, NO_WEIGHT), *_files_read(facts, chosen))
        inputs = {"model": StepInput(files=files)}
        if samples is not None:
            inputs["samples"] = StepInput(files=(samples_file(samples),))
        return Step(
            name="quantize",
            tool=self.tool,
            gives="model",
            parameters={**parameters, "memory_bytes": needs.memory_bytes},
            inputs=inputs,
            env=env,
            key=key,
            needs=needs,
            gpus=gpus,
            gpu_use=use,
            threads=0 if env else facts.threads,
            carried=carried_files(facts.model.files),
            config=facts.model.config,
            keeps_work=True,
            timeout_s=time_limit_s(needs.work),
        )


def _files_read(facts: Facts, chosen: Quantization) -> tuple[ModelFile, ...]:
    """Return what the method reads beside config.json: a tokenizer only where there are texts."""
    files = facts.model.files
    return (*weight_files(files), *(tokenizer_files(files) if _needs_data(chosen) else ()))


def _parameters(facts: Facts, plan: Plan, chosen: Quantization) -> dict[str, Any]:
    """Everything that the worker is told, defaults filled in."""
    request, options = facts.request, dict(chosen.options)
    support = find_support(plan.profile.architecture, facts.model.config, chosen.method, options)
    told: dict[str, Any] = {
        "method": chosen.method,
        "ignore": sorted({*IGNORED, *(request.quantize_ignore or ())}),
        "max_tokens": _sequence_tokens(facts, plan),
        "seed": request.calibration_seed or 0,
        "checkpoint_format": chosen.checkpoint_format,
        "shard_bytes": SHARD_BYTES,
        "loader": support.loader,
    }
    if support.folds:
        told["folds"] = support.folds
    match chosen.method:
        case "awq" | "gptq" | "rtn":
            told["group_size"] = chosen.group_size
            told["symmetric"] = _is_symmetric(chosen)
        case "fp8":
            told["activations"] = next(
                (name for name in ("static", "block") if name in options), "dynamic"
            )
            told["kv_cache"] = "fp8" if "kv" in options else None
        case "smoothquant":
            told["smoothing_strength"] = float(options.get("strength", STRENGTH))
            told["gptq"] = "gptq" in options
        case "mxfp4" | "mxfp8":
            told["scheme"] = chosen.scheme
        case "autoround":
            told["group_size"] = chosen.group_size
            told["symmetric"] = True
            told["iterations"] = int(options.get("iters", ITERATIONS))
        case "w4afp8":
            told["group_size"] = chosen.group_size
    return told


def _key(
    facts: Facts,
    plan: Plan,
    chosen: Quantization,
    parameters: Mapping[str, Any],
    samples: Samples | None,
    env: Mapping[str, str],
) -> QuantizedCheckpointKey | None:
    """State every input of the result; None while a digest of the model is missing."""
    weights = files_by_path(_files_read(facts, chosen))
    if weights is None:
        return None
    said = ("ignore", "max_tokens", "seed")  # have a place of their own in the document
    return QuantizedCheckpointKey(
        graph=graph_of(facts.model.config, NO_WEIGHT),
        weights=Weights(files=weights, adapters=(), draft=None),
        precision=Precision(
            dtype=plan.profile.dtype,
            weights=QuantizationKey(
                algorithm=chosen.method,
                bits=chosen.bits,
                group_size=chosen.group_size or None,
                symmetric=_is_symmetric(chosen),
                zero_point=not _is_symmetric(chosen),
                excluded_modules=tuple(parameters["ignore"]),
            ),
            activations=_activations(chosen, parameters),
            kv_dtype="fp8_e4m3" if parameters.get("kv_cache") else "auto",
            auto_cast=None,
            auto_cast_dtype=None,
            logits_dtype=plan.profile.dtype,
        ),
        calibration=_calibration(samples, parameters) if samples else None,
        sharding=None,
        toolchain=toolchain_of(facts.tools["llmcompressor"]),
        invocation=Invocation(
            compiler_args=(),
            engine_args={
                name: _written(value)
                for name, value in sorted(parameters.items())
                if name not in said
            },
            env=dict(env),
        ),
        computed_on=None,
    )


def _written(value: object) -> str:
    return json.dumps(value, sort_keys=True) if isinstance(value, Mapping) else str(value)


def _activations(
    chosen: Quantization, parameters: Mapping[str, Any]
) -> ActivationQuantization | None:
    if parameters["method"] == "smoothquant":
        return ActivationQuantization(dtype="int8", granularity="token", dynamic=True)
    if chosen.scheme in _DYNAMIC:
        dtype, sharing = _DYNAMIC[chosen.scheme]
        return ActivationQuantization(dtype=dtype, granularity=sharing, dynamic=True)
    if parameters["method"] != "fp8":
        return None
    granularity = {"dynamic": "token", "static": "tensor", "block": "group"}
    return ActivationQuantization(
        dtype="fp8_e4m3",
        granularity=granularity[parameters["activations"]],
        dynamic=parameters["activations"] != "static",
    )


def _calibration(samples: Samples, parameters: Mapping[str, Any]) -> Calibration:
    return Calibration(
        dataset=samples.digest.removeprefix("sha256:"),
        samples=len(samples.samples),
        sequence_tokens=parameters["max_tokens"],
        seed=parameters["seed"],
    )


def _needs(
    plan: Plan, chosen: Quantization, samples: Samples | None, parameters: Mapping[str, Any]
) -> Estimate:
    """Reckon an upper bound, with all weights in memory; docs/quantization.md has measurements.

    Where there is less memory the worker keeps weights on disk, so less is needed at
    least: the libraries, the largest part of the work, and a share of the weights.
    """
    profile = plan.profile
    weights, result = served_weight_bytes(profile), quantized_weight_bytes(profile, chosen)
    fixed = _LIBRARIES_BYTES + profile.vocab_size * parameters["max_tokens"] * (ELEMENT_BYTES + 4)
    if samples is not None:
        tokens = len(samples.samples) * parameters["max_tokens"]
        fixed += tokens * profile.hidden_size * 4 * _CACHED.get(chosen.method, 6)
    if chosen.method == "autoround":
        fixed += _TUNED * profile.linear_parameters // max(1, profile.layers)
    if chosen.method == "gptq" or parameters.get("gptq"):
        fixed += _HESSIANS * max(profile.hidden_size, profile.intermediate_size) ** 2
    work = quantizing_work(
        profile,
        texts_of(samples, parameters["max_tokens"]),
        method=chosen.method,
        weight_bytes=profile.weight_bytes,
        result_bytes=result,
        hessians=bool(parameters.get("gptq")),
        iterations=parameters.get("iterations", 0),
    )
    return Estimate(
        memory_bytes=int(fixed + _SPARE * (weights + result)),
        least_memory_bytes=int(fixed + _SPARE * result),
        # Packed as it is kept, and as it is saved; what is kept goes before that is laid out.
        # Layers that are not loaded are written once, as they are.
        disk_bytes=2 * result
        + profile.unserved_bytes
        + _kept_bytes(plan, chosen, samples, parameters)
        + _FILES,
        spilled_bytes=weights,
        work=work,
        method=f"{LlmCompressorQuantizer.tool}/{chosen.method}",
        size_bytes=profile.weight_bytes,
    )


def _kept_bytes(
    plan: Plan, chosen: Quantization, samples: Samples | None, parameters: Mapping[str, Any]
) -> int:
    """Reckon what an interrupted run leaves: changed weights, and activations twice over.

    The newest activations are on the disk before those of the block before go.
    """
    if samples is None or chosen.method == "autoround":  # which begins anew
        return 0
    profile = plan.profile
    passes = _WEIGHTS_KEPT.get(chosen.method, 0) + bool(parameters.get("gptq"))
    longest = parameters["max_tokens"]
    of_token = 2 * profile.hidden_size + _MASKS * longest + 4 * profile.head_dim
    tokens = len(samples.samples) * longest
    return int(_SPARE * (passes * served_weight_bytes(profile) + tokens * of_token * ELEMENT_BYTES))


def _env(plan: Plan, chosen: Quantization, threads: int, gpus: int) -> Mapping[str, str]:
    """Return the number of threads where it is an input: for small models always one.

    Sums come out in another order with other threads: AWQ and GPTQ then wrote other bytes
    (docs/quantization.md, "Threads and GPUs").  Methods without texts compute none.
    """
    if plan.profile.hidden_size < LARGE_HIDDEN:
        return {"OMP_NUM_THREADS": "1"}
    if _needs_data(chosen) and not gpus:
        return {"OMP_NUM_THREADS": str(threads)}
    return {}


def _solves(chosen: Quantization) -> bool:
    """Check whether GPTQ corrects the weights."""
    return chosen.method == "gptq" or ("gptq", "") in chosen.options


def _gpu_bytes(plan: Plan, chosen: Quantization, tokens: int) -> int:
    """Bound the memory that one GPU needs: the work on a layer, and on the head.

    A layer is there with a copy of its weights, and what is larger of two: activations of one
    text with its logits, or what GPTQ solves, when the texts have passed.
    """
    profile = plan.profile
    layer = (served_weight_bytes(profile) - profile.outside_bytes) // max(1, profile.layers)
    hidden, inner = profile.hidden_size, profile.expert_size or profile.intermediate_size
    widest = max(hidden, profile.intermediate_size, inner)
    texts = tokens * (8 * hidden + 4 * widest) * 4
    texts += profile.vocab_size * (tokens * (ELEMENT_BYTES + 4) + ELEMENT_BYTES * hidden)
    solving = 0
    if chosen.method == "autoround":  # a guess: no GPU was there
        count = profile.linear_parameters // max(1, profile.layers)
        solving = _TUNED * count + 8 * texts  # 8 texts at once, with gradients
    if _solves(chosen):
        squares = 4 * hidden**2 + max(1, profile.experts) * (2 * hidden**2 + inner**2)
        solving = 4 * squares + _GPU_SQUARES * widest**2 + 2 * 4 * widest * hidden
    return int(_DRIVER_BYTES + 2 * layer + max(texts, solving))


def _check_options(chosen: Quantization) -> Iterator[Finding]:
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
            message = f"iters {text[:20]!r} is no number from 1 to {MOST_ITERATIONS}"
            yield Finding("error", "quantize-option", message, f"write `iters={ITERATIONS}`")
        elif name == "strength" and not _is_share(text):
            message = f"strength {text[:20]!r} is no number from 0 to 1"
            hint = "write `strength=0.8`"
            yield Finding("error", "quantize-option", message, hint)
    for group in _EXCLUDING:
        if len(names & group) > 1:
            message = f"{' and '.join(sorted(names & group))} exclude each other"
            yield Finding("error", "quantize-option", message, "name one of them")


def _check_groups(facts: Facts, method: str, group_size: int) -> Iterator[Finding]:
    """Check that groups divide the inputs of every matrix that is packed, by the headers."""
    sizes = packed_sizes(facts.model)
    cut = {size: found for size, found in sizes.items() if group_size and size[1] % group_size}
    if cut:
        (_, inputs), (first, _) = next(iter(cut.items()))
        message = (
            f"groups of {group_size} weights do not divide the {inputs} inputs of "
            f"{first.removesuffix('.weight')}{_others(cut)}"
        )
        offered = USUAL_GROUPS if "group" in OPTIONS[method] else ()
        fitting = [group for group in offered if not any(size[1] % group for size in sizes)]
        hint = f"use `group={fitting[0]}`" if fitting else "use `--quantize fp8`"
        yield Finding("error", "quantize-group", message, hint)
    elif method == "autoround":
        yield from _check_autoround(sizes)


def _check_autoround(sizes: PackedSizes) -> Iterator[Finding]:
    """Refuse sizes that AutoRound passes over: engines fuse such a matrix with packed ones."""
    odd = {size: found for size, found in sizes.items() if any(n % AUTOROUND_SIZES for n in size)}
    if odd:
        (outputs, inputs), (first, _) = next(iter(odd.items()))
        message = (
            f"autoround packs no matrix whose sizes are not multiples of {AUTOROUND_SIZES}: "
            f"{first.removesuffix('.weight')} has {outputs} outputs and {inputs} inputs"
            f"{_others(odd)}"
        )
        yield Finding("error", "quantize-group", message, "use `--quantize gptq`")


def _others(found: PackedSizes) -> str:
    more = sum(count for _, count in found.values()) - 1
    return f" and {more} more" if more else ""


def _check_samples(facts: Facts) -> Iterator[Finding]:
    samples, request = facts.samples, facts.request
    assert samples is not None
    if samples.complaint:
        hint = "docs/data.md has the formats"
        yield Finding("warning", "calibration-broken-rows", samples.complaint, hint)
    asked = request.calibration_samples
    if asked and len(samples.samples) < asked:
        message = f"{samples.source!r} holds {len(samples.samples)} samples; {asked} are asked for"
        yield Finding("warning", "calibration-few-samples", message, "name more data, or ask less")


def _needs_data(chosen: Quantization) -> bool:
    options = {name for name, _ in chosen.options}
    if chosen.method == "fp8":
        return bool(options & {"static", "kv"})
    return chosen.method not in _ROUNDED_ONLY


def _is_symmetric(chosen: Quantization) -> bool:
    options = {name for name, _ in chosen.options}
    if chosen.method == "awq":
        return "symmetric" in options
    return "asymmetric" not in options


def _sequence_tokens(facts: Facts, plan: Plan) -> int:
    """Samples are cut to what was asked for, and never longer than the model reads."""
    asked = facts.request.calibration_tokens or CALIBRATION_TOKENS
    return min(asked, plan.profile.max_positions or asked)


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
