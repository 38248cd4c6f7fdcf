"""Quantizing with llm-compressor: AWQ, GPTQ, FP8, SmoothQuant, NVFP4, MX formats, rounding.

The result is a compressed-tensors checkpoint, or AutoAWQ's format where the
family's engine reads only that: our own AWQ result, written in the other order
without loss (docs/decisions/0006-awq-format.md).

| method | options |
|---|---|
| awq | `symmetric`, `asymmetric` (usual), `group=N` (128) |
| autoround | `group=N` (128), `iters=N` (200) |
| gptq | `symmetric` (usual), `asymmetric`, `group=N` (128) |
| rtn | the same, and `w8a16` |
| fp8 | `dynamic` (usual), `static`, `block`, `kv` |
| smoothquant | `strength=X` (0.8), `gptq` |
| nvfp4 | `w4a4` |
| int8, kv, mxfp4, mxfp8, w4afp8 | none |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from packager.core.devices import LARGE_HIDDEN, SMALL_BYTES, GpuUse
from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.model import ModelFile
from packager.core.plan import Plan
from packager.core.ports import Quantizer
from packager.core.recipe import Step, StepInput
from packager.core.techniques import LayerGroup, Quantization, Scheme
from packager.estimate.performance.effort import time_limit_s
from packager.estimate.sizing.left_out import quantized_modules
from packager.estimate.sizing.memory import served_weight_bytes
from packager.estimate.sizing.mixed import select_layers
from packager.estimate.sizing.quantizable import support_of
from packager.estimate.sizing.schemes import NONE, W8A8_FP8, W8A8_INT8, W8A16_FP8
from packager.optimize.quantize.llmcompressor_ignore import check_ignored, entries_of
from packager.optimize.quantize.llmcompressor_memory import estimate_needs, gpu_bytes
from packager.optimize.quantize.llmcompressor_options import (
    ASYMMETRIC,
    CACHE,
    EIGHT_BITS,
    ITERATIONS,
    MXFP4,
    MXFP4A16,
    MXFP8,
    MXFP8A16,
    NVFP4,
    NVFP4_W4A4,
    SHARD_BYTES,
    SYMMETRIC,
    TOOL,
    W4AFP8,
    check_groups,
    check_options,
    check_samples,
    is_symmetric,
    needs_data,
)
from packager.optimize.steps.configs import NO_WEIGHT
from packager.optimize.steps.inputs import (
    carried_files,
    config_file,
    samples_file,
    tokenizer_files,
    weight_files,
)

LATENT = ".kv_b_proj"

STRENGTH = 0.8  # llm-compressor's examples for Llama


class LlmCompressorQuantizer(Quantizer):
    """Describes runs of `containers/tools/llmcompressor`."""

    name = "llmcompressor"
    tool = TOOL
    # Others move scales, or solve matrices, in passes of their own.
    mixable = frozenset({"fp8", "int8", "kv", "mxfp4", "mxfp8", "nvfp4", "rtn", "w4afp8"})
    methods: Mapping[str, tuple[Scheme, ...]] = {
        "awq": (ASYMMETRIC,),
        "gptq": (SYMMETRIC,),
        "fp8": (W8A8_FP8, W8A16_FP8),
        "smoothquant": (W8A8_INT8,),
        "kv": (CACHE,),
        "nvfp4": (NVFP4, NVFP4_W4A4),
        "rtn": (SYMMETRIC, EIGHT_BITS),
        "mxfp4": (MXFP4, MXFP4A16),
        "mxfp8": (MXFP8, MXFP8A16),
        "w4afp8": (W4AFP8,),
        "int8": (W8A8_INT8,),
        "autoround": (SYMMETRIC,),
    }

    def check(self, facts: Facts, plan: Plan) -> Iterable[Finding]:
        """Yield findings for unknown options, and for options that the data rules out."""
        chosen = plan.quantization
        assert chosen is not None
        if found := facts.model.conversion:
            message = f"the source holds {found.held}: they are converted to bfloat16 on the way"
            yield Finding("note", "quantize-converts", message)
        for part in chosen.parts:
            yield from check_options(part)
        yield from _check_latent(facts, plan, chosen)
        yield from check_ignored(facts, plan)
        if chosen.groups:
            for group, sizes in zip(chosen.groups, _sizes_of(facts, plan), strict=True):
                if (own := group.quantization) is not None:
                    yield from check_groups(own.method, own.group_size, sizes)
        else:
            modules = quantized_modules(facts.model, entries_of(facts, plan))
            sizes = {module: shape for module, shape in modules if len(shape) == 2}
            yield from check_groups(chosen.method, chosen.group_size, sizes)
        if plan.weights == "mounted" and not plan.one_mount:
            message = "the quantized weights would only be in the image, and it holds none"
            hint = "use `--weights baked`, or quantize first and mount the result"
            yield Finding("error", "quantize-mounted", message, hint)
        if needs_data(chosen) and facts.samples is None:
            method = next(part.method for part in chosen.parts if needs_data(part))
            message = f"{method} needs texts to calibrate with"
            yield Finding("error", "calibration-missing", message, "name them with --calibration")
        elif facts.samples is not None and needs_data(chosen):
            yield from check_samples(facts, facts.samples)

    def gpu_use(self, facts: Facts, plan: Plan) -> GpuUse:  # noqa: ARG002
        """Describe the GPU that the run can use: one, which takes the layers in turn.

        Methods that look at no texts round numbers, which disks are slower at than processors.
        """
        chosen = plan.quantization
        assert chosen is not None
        if not needs_data(chosen):
            return GpuUse()
        tokens = _sequence_tokens(plan)
        return GpuUse(
            most=1,
            helps=served_weight_bytes(plan.profile) >= SMALL_BYTES,
            each_bytes=gpu_bytes(plan, chosen, tokens),
        )

    def step(self, facts: Facts, plan: Plan) -> Step:
        """Describe the run."""
        chosen = plan.quantization
        assert chosen is not None
        samples = facts.samples if needs_data(chosen) else None
        parameters = _parameters(facts, plan, chosen)
        use = self.gpu_use(facts, plan)
        gpus = min(facts.gpus, use.most)
        if gpus:
            parameters["device"] = "cuda"  # its sums are others
        env = _env(plan, chosen, facts.threads, gpus)
        needs = estimate_needs(plan, chosen, samples, parameters)
        read = _files_read(facts, chosen)
        files = (config_file(facts.model.config, NO_WEIGHT), *read)
        inputs = {"model": StepInput(files=files)}
        if samples is not None:
            inputs["samples"] = StepInput(files=(samples_file(samples),))
        # Imported here because few plans quantize.
        from packager.optimize.quantize.llmcompressor_key import checkpoint_key

        return Step(
            name="quantize",
            tool=self.tool,
            gives="model",
            parameters={**parameters, "memory_bytes": needs.memory_bytes},
            inputs=inputs,
            env=env,
            key=checkpoint_key(facts, plan, chosen, read, parameters, samples, env),
            needs=needs,
            gpus=gpus,
            gpu_use=use,
            threads=0 if env else facts.threads,
            carried=carried_files(facts.model.files),
            config=facts.model.config,
            resumable=True,
            timeout_s=time_limit_s(needs.work),
        )


def _check_latent(facts: Facts, plan: Plan, chosen: Quantization) -> Iterator[Finding]:
    """Refuse to calibrate FP4 activations of what expands latent keys and values.

    Its inputs have four dimensions, and observers of groups take three (llm-compressor 0.14.0.1,
    observers/helpers.py, _flatten_activation).
    """
    if all(part.scheme != NVFP4_W4A4.name for part in chosen.parts):
        return
    layers, ignored = plan.quantizing.layers, entries_of(facts, plan)
    selected, modules = select_layers(layers, facts.model, ignored)
    for module in modules:
        place = selected.get(module, -1)
        own = chosen.groups[place].quantization if chosen.groups else chosen
        if own is not None and own.scheme == NVFP4_W4A4.name and module.endswith(LATENT):
            message = f"nvfp4,w4a4 does not work for {module}: its inputs cannot be calibrated"
            hint = "leave it out: `--quantize-ignore 're:.*\\.kv_b_proj$'`"
            yield Finding("error", "quantize-architecture", message, hint)
            return


def _sizes_of(facts: Facts, plan: Plan) -> list[dict[str, tuple[int, ...]]]:
    """Return the shapes of the matrices of each group, in order."""
    layers, ignored = plan.quantizing.layers, entries_of(facts, plan)
    selected, modules = select_layers(layers, facts.model, ignored)
    found: list[dict[str, tuple[int, ...]]] = [{} for _ in range(len(layers) + 1)]
    for module, shape in modules.items():
        if len(shape) == 2:
            found[selected.get(module, len(layers))][module] = shape
    return found


def _files_read(facts: Facts, chosen: Quantization) -> tuple[ModelFile, ...]:
    """Return what the method reads beside config.json: a tokenizer only where there are texts."""
    files = facts.model.files
    return (*weight_files(files), *(tokenizer_files(files) if needs_data(chosen) else ()))


def _parameters(facts: Facts, plan: Plan, chosen: Quantization) -> dict[str, Any]:
    """Return the worker's parameters, with defaults filled in."""
    ignore = entries_of(facts, plan)
    own = chosen.groups[-1].quantization if chosen.groups else chosen  # that of all other layers
    options = dict(own.options) if own else {}
    method = own.method if own else chosen.method
    support = support_of(
        facts.model,
        plan.profile,
        method,
        options,
        ignore,
        container=facts.container,
        untested=True,
    )
    parameters: dict[str, Any] = {
        "method": own.method if own else NONE,
        "ignore": sorted(set(ignore)),
        "max_tokens": _sequence_tokens(plan),
        "seed": plan.quantizing.seed,
        "checkpoint_format": chosen.checkpoint_format,
        "shard_bytes": SHARD_BYTES,
        "loader": support.loader,
    }
    if support.folds:
        parameters |= {"folds": support.folds, "unfolded": list(support.unfolded)}
    if own is not None:
        parameters |= _settings(own)
    if chosen.groups:
        parameters["layers"] = [_layer_settings(group) for group in chosen.groups[:-1]]
    return parameters


def _layer_settings(group: LayerGroup) -> dict[str, Any]:
    """Return the worker's settings for one group of layers."""
    chosen = group.quantization
    settings = {"method": chosen.method, **_settings(chosen)} if chosen else {"method": NONE}
    settings.pop("kv_cache", None)  # is the whole model's
    return {"target": group.target, **settings}


def _settings(chosen: Quantization) -> dict[str, Any]:
    """Return the worker's settings of a method, without its name."""
    options, settings = dict(chosen.options), dict[str, Any]()
    match chosen.method:
        case "awq" | "gptq" | "rtn":
            settings["group_size"] = chosen.group_size
            settings["symmetric"] = is_symmetric(chosen)
            settings |= {"bits": chosen.bits} if "w8a16" in options else {}
        case "fp8":
            settings["activations"] = next(
                (name for name in ("static", "block") if name in options), "dynamic"
            )
            settings["kv_cache"] = "fp8" if "kv" in options else None
        case "smoothquant":
            settings["smoothing_strength"] = float(options.get("strength", STRENGTH))
            settings["gptq"] = "gptq" in options
        case "kv":
            settings["kv_cache"] = "fp8"
        case "nvfp4" if "w4a4" in options:
            settings["scheme"] = chosen.scheme
        case "mxfp4" | "mxfp8":
            settings["scheme"] = chosen.scheme
        case "autoround":
            settings["group_size"] = chosen.group_size
            settings["symmetric"] = True
            settings["iterations"] = int(options.get("iters", ITERATIONS))
        case "w4afp8":
            settings["group_size"] = chosen.group_size
    return settings


def _env(plan: Plan, chosen: Quantization, threads: int, gpus: int) -> Mapping[str, str]:
    """Return the number of threads where it is an input: for small models always one.

    Sums come out in another order with other threads: AWQ and GPTQ then wrote other bytes
    (docs/quantization.md, "Threads and GPUs").  Methods without texts compute none.
    """
    if plan.profile.hidden_size < LARGE_HIDDEN:
        return {"OMP_NUM_THREADS": "1"}
    if needs_data(chosen) and not gpus:
        return {"OMP_NUM_THREADS": str(threads)}
    return {}


def _sequence_tokens(plan: Plan) -> int:
    """Return the tokens that samples are cut to: as requested, at most the model's length."""
    tokens = plan.quantizing.tokens
    return min(tokens, plan.profile.max_positions or tokens)
