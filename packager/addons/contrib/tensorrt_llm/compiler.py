"""TensorRT-LLM engines, of the versions that still have them: up to 1.2.

The step runs in the serving image: it brings the checkpoint into TensorRT-LLM's own form,
quantized on the way where that is asked for, builds one engine a rank with `trtllm-build`,
compares the engine's config.json with the plan, and loads it once.  The weights are inside,
so an engine is for one model, and the checkpoint's own stay out of the image.

An engine says neither for which GPU nor with which TensorRT it was built.  The key does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.model import ModelFile
from packager.core.plan import Plan
from packager.core.ports import Compiler
from packager.core.recipe import Estimate, Step, StepInput
from packager.core.samples import Samples
from packager.core.serving import COMPILED_DIR, ServingConfig
from packager.core.techniques import Quantization
from packager.core.units import GIB
from packager.engines.trtllm import (
    DTYPES,
    ENGINE,
    batched_tokens,
    build_options,
    builds_engines,
    options,
)
from packager.optimize.keys.documents import TensorRtLlmEngineKey
from packager.optimize.keys.parts import (
    ActivationQuantization,
    Invocation,
    Precision,
    Sampling,
    Shape,
    Weights,
)
from packager.optimize.keys.parts import Quantization as QuantizationKey
from packager.optimize.steps.configs import UNREAD
from packager.optimize.steps.inputs import (
    carried_files,
    config_file,
    environment_of,
    samples_file,
    tokenizer_files,
    weight_files,
)
from packager.optimize.steps.key_parts import (
    cuda_target,
    files_by_path,
    graph_of,
    parallelism_of,
    toolchain_in_image,
)

# method → ModelOpt's format, and what the engine's config.json calls the result
FORMATS: Mapping[str, tuple[str, str]] = {
    "awq": ("int4_awq", "W4A16_AWQ"),
    "fp8": ("fp8", "FP8"),
    "smoothquant": ("int8_sq", "W8A8_SQ_PER_CHANNEL"),
}
# What of a method's options the builder can be told.
_OPTIONS: Mapping[str, frozenset[str]] = {
    "awq": frozenset({"symmetric", "group"}),
    "fp8": frozenset({"static", "kv"}),
    "smoothquant": frozenset(),
}
_BEAMS = 1
_BUILDING_BYTES = 8 * GIB  # TensorRT beside the weights
_QUIET_S = 4 * 3600.0  # tactics of one large layer are timed without output


class TensorRtLlmCompiler(Compiler):
    """Describes runs of `containers/tools/tensorrt-llm`."""

    name = "tensorrt_llm"
    tool = "tensorrt-llm"
    quantizer = "modelopt"

    def check(self, facts: Facts, plan: Plan) -> Iterable[Finding]:
        """Yield findings where no engine can be built, and that this backend is discontinued."""
        container, versions = plan.container, options()["versions"]
        if not builds_engines(container):
            message = (
                f"no TensorRT-LLM engine can be built for {container.family} with "
                f"{container.engine} {container.engine_version}: it takes TensorRT-LLM "
                f"{versions['least']} to {versions['last']}"
            )
            hint = (
                "use `--family lmi` `--container-version 0.33.0-tensorrtllm0.21.0-cu128`, "
                "or `--compile off`"
            )
            yield Finding("error", "compile-unsupported", message, hint)
            return
        message = (
            f"TensorRT-LLM dropped the engine backend after {versions['last']}: an image with an "
            f"engine stays at {container.engine_version}"
        )
        hint = (
            "leave `--compile` out to serve with its PyTorch backend, which newer versions keep, "
            "or use `--family lmi` or `--family vllm` with vLLM"
        )
        yield Finding("warning", "tensorrt-legacy", message, hint)
        if plan.weights == "mounted":
            message = "an engine holds the weights, and mounted ones would not be used"
            yield Finding("error", "compile-unsupported", message, "use `--weights baked`")
        if plan.draft is not None:
            message = "engines are built here without speculation"
            hint = "leave the draft or `--compile` out"
            yield Finding("error", "compile-unsupported", message, hint)
        yield from _check_quantization(facts, plan)

    def step(
        self,
        facts: Facts,
        plan: Plan,
        serving: ServingConfig,
        inputs: Mapping[str, StepInput],  # noqa: ARG002 -- it quantizes itself
    ) -> Step:
        """Describe conversion, build and check."""
        samples = facts.samples if _is_quantizing(plan) else None
        files = _files_read(facts, samples)
        quantize = _quantize(plan, samples)
        needs = Estimate(
            memory_bytes=2 * facts.model.weight_bytes + _BUILDING_BYTES,
            disk_bytes=2 * facts.model.weight_bytes,  # checkpoint and engine
            size_bytes=facts.model.weight_bytes,
        )
        given = {"model": StepInput(files=(config_file(facts.model.config, UNREAD), *files))}
        if samples is not None:
            given["samples"] = StepInput(files=(samples_file(samples),))
        return Step(
            name="compile",
            tool=self.tool,
            gives="compiled",
            parameters={
                "engine": {"name": ENGINE, "version": plan.container.engine_version},
                "target": _target_words(plan),
                "env": environment_of(facts.base),
                "dtype": DTYPES[plan.dtype],
                "mapping": {"tp_size": plan.tp_degree, "pp_size": plan.pp_degree},
                "quantize": quantize,
                "build": build_arguments(plan),
                "expected": expected_config(plan),
                "prompt_tokens": min(16, plan.shape.max_input_tokens),
            },
            inputs=given,
            env={},
            key=_key(facts, plan, quantize, samples),
            needs=needs,
            gpus=plan.tp_degree * plan.pp_degree,
            gpu=plan.instance.device_name,
            image=facts.base,
            places={"model": serving.model_dir, "output": COMPILED_DIR},
            quiet_s=_QUIET_S,
            holds_weights=True,
            carried=carried_files(facts.model.files),  # the server looks for them beside the engine
        )


def _files_read(facts: Facts, samples: Samples | None) -> tuple[ModelFile, ...]:
    """Return what is converted, and the tokenizer where texts are calibrated with."""
    files = facts.model.files
    return (*weight_files(files), *(tokenizer_files(files) if samples is not None else ()))


def build_arguments(plan: Plan) -> list[str]:
    """Return trtllm-build's arguments without directories. Options requested by name win."""
    shape = plan.shape
    limits = {
        "max_batch_size": shape.max_batch,
        "max_input_len": shape.max_input_tokens,
        "max_seq_len": shape.max_total_tokens,
        "max_num_tokens": batched_tokens(plan),
        "max_beam_width": _BEAMS,
    }
    words = [word for name, value in limits.items() for word in (f"--{name}", str(value))]
    return [*words, *_flags(plan)]


def _flags(plan: Plan) -> list[str]:
    """Return the builder's flags beside the limits, which have their own place in the key."""
    fp8 = _is_quantizing(plan) and plan.quantization and plan.quantization.method == "fp8"
    flags = {
        "kv_cache_type": "paged",
        "remove_input_padding": "enable",
        "gpt_attention_plugin": "auto",
        # TensorRT's own FP8 products are the faster ones: TensorRT-LLM, useful build-time flags.
        "gemm_plugin": "disable" if fp8 else "auto",
        "context_fmha": "enable",
        "use_paged_context_fmha": "enable",
        **({"use_fp8_context_fmha": "enable"} if _kv_dtype(plan) == "fp8" else {}),
        **build_options(plan),
    }
    return [word for name, value in flags.items() for word in (f"--{name}", value)]


def expected_config(plan: Plan) -> dict[str, Any]:
    """Return the required values of the engine's config.json, by its own dotted names."""
    shape, chosen = plan.shape, plan.quantization
    algorithm = FORMATS[chosen.method][1] if chosen and not chosen.existing else None
    return {
        "version": plan.container.engine_version,
        "pretrained_config.dtype": DTYPES[plan.dtype],
        "pretrained_config.mapping.world_size": plan.tp_degree * plan.pp_degree,
        "pretrained_config.mapping.tp_size": plan.tp_degree,
        "pretrained_config.mapping.pp_size": plan.pp_degree,
        "pretrained_config.quantization.quant_algo": algorithm,
        "pretrained_config.quantization.kv_cache_quant_algo": (
            "FP8" if _kv_dtype(plan) == "fp8" else None
        ),
        "build_config.max_batch_size": shape.max_batch,
        "build_config.max_input_len": shape.max_input_tokens,
        "build_config.max_seq_len": shape.max_total_tokens,
        "build_config.max_num_tokens": batched_tokens(plan),
        "build_config.max_beam_width": _BEAMS,
    }


def _check_quantization(facts: Facts, plan: Plan) -> Iterator[Finding]:
    chosen = plan.quantization
    quantizing = _is_quantizing(plan)
    if plan.profile.quantization or (chosen is not None and chosen.existing):
        message = "an engine is built from a checkpoint that is not quantized"
        hint = "take the unquantized checkpoint and add `--quantize awq`, or use `--compile off`"
        yield Finding("error", "compile-unsupported", message, hint)
    if plan.kv_dtype == "fp8" and not quantizing:
        message = "the scales of a KV cache in FP8 come from quantizing the model"
        hint = "add `--quantize fp8`, or leave kv_dtype out"
        yield Finding("error", "compile-unsupported", message, hint)
    if chosen is None or not quantizing:
        return
    if chosen.method not in FORMATS or (chosen.method == "fp8" and chosen.scheme != "W8A8-FP8"):
        message = f"no engine is built with {chosen.method} ({chosen.scheme})"
        hint = f"use `--quantize awq`; engines take {', '.join(FORMATS)} where the GPU does"
        yield Finding("error", "compile-unsupported", message, hint)
        return
    for name, _ in chosen.options:
        if name not in _OPTIONS[chosen.method]:
            message = f"{chosen.method} in an engine has no option {name[:40]!r}"
            listed = ", ".join(sorted(_OPTIONS[chosen.method])) or "none"
            yield Finding("error", "quantize-option", message, f"its options: {listed}")
    if plan.quantizing.layers:
        message = "an engine has one quantization for all of its layers"
        hint = "leave --quantize-layer out, or use `--compile off`"
        yield Finding("error", "compile-unsupported", message, hint)
    if plan.quantizing.ignored:
        message = "modules cannot be left out of an engine's quantization"
        hint = "leave --quantize-ignore out, or use `--compile off`"
        yield Finding("error", "compile-unsupported", message, hint)
    if facts.samples is None:
        message = f"{chosen.method} in an engine needs texts to calibrate with"
        yield Finding("error", "calibration-missing", message, "name them with --calibration")
    if facts.evaluation is not None:
        message = "the quantized weights are inside the engine, where nothing can evaluate them"
        hint = "leave --evaluate out, or use `--compile off`"
        yield Finding("error", "compile-unsupported", message, hint)


def _is_quantizing(plan: Plan) -> bool:
    return plan.quantization is not None and not plan.quantization.existing


def _kv_dtype(plan: Plan) -> str:
    chosen = plan.quantization
    asked = _is_quantizing(plan) and chosen is not None and "kv" in dict(chosen.options)
    return "fp8" if asked or plan.kv_dtype == "fp8" else "auto"


def _quantize(plan: Plan, samples: Samples | None) -> dict[str, Any] | None:
    """Return ModelOpt's settings; None where the weights stay as they are."""
    chosen = plan.quantization
    if chosen is None or not _is_quantizing(plan) or samples is None:
        return None
    return {
        "qformat": FORMATS[chosen.method][0],
        "kv_cache_dtype": "fp8" if _kv_dtype(plan) == "fp8" else None,
        "awq_block_size": chosen.group_size if chosen.method == "awq" else None,
        "calib_size": len(samples.samples),
        "calib_max_seq_length": min(plan.quantizing.tokens, plan.shape.max_total_tokens),
        "seed": plan.quantizing.seed,
    }


def _target_words(plan: Plan) -> dict[str, str]:
    """Return the properties that the worker compares with nvidia-smi's output."""
    instance = plan.instance
    return {
        "gpu": instance.device_name,
        "compute_capability": f"{instance.compute_capability or 0.0:.1f}",
    }


def _key(
    facts: Facts,
    plan: Plan,
    quantize: Mapping[str, Any] | None,
    samples: Samples | None,
) -> TensorRtLlmEngineKey | None:
    """Return the key document; None while the base or a digest of the weights is unknown."""
    base, weights = facts.base, files_by_path(_files_read(facts, samples))
    if base is None or not base.digest or weights is None:
        return None
    said = {name: str(value) for name, value in (quantize or {}).items() if value is not None}
    if samples is not None:
        said["calibration"] = samples.digest
    return TensorRtLlmEngineKey(
        graph=graph_of(facts.model.config, UNREAD),
        shape=_shape(plan),
        precision=_precision(plan),
        parallelism=parallelism_of(tp=plan.tp_degree, pp=plan.pp_degree, sharding="replicate"),
        target=cuda_target(plan.instance),
        toolchain=toolchain_in_image(facts.tools["tensorrt-llm"], base, plan.container),
        invocation=Invocation(compiler_args=tuple(_flags(plan)), engine_args=said, env={}),
        speculation=None,
        sampling=Sampling(on_device=False, max_top_k=None),
        lora=None,
        weights=Weights(files=weights, adapters=(), draft=None),
    )


def _shape(plan: Plan) -> Shape:
    shape = plan.shape
    return Shape(
        max_batch=shape.max_batch,
        context_batch=None,
        token_batch=None,
        max_input_tokens=shape.max_input_tokens,
        max_total_tokens=shape.max_total_tokens,
        max_batched_tokens=batched_tokens(plan),
        context_buckets=(),
        token_buckets=(),
        prefill_chunk_tokens=None,
        beam_width=_BEAMS,
        block_tokens=None,
        paged=True,
        graph_sizes=(),
        dynamic=(),
    )


def _precision(plan: Plan) -> Precision:
    chosen = plan.quantization if _is_quantizing(plan) else None
    return Precision(
        dtype=plan.dtype,
        weights=_weights(chosen) if chosen else None,
        activations=_activations(chosen) if chosen else None,
        kv_dtype=_kv_dtype(plan),
        auto_cast=None,
        auto_cast_dtype=None,
        logits_dtype="float32",
    )


def _weights(chosen: Quantization) -> QuantizationKey:
    return QuantizationKey(
        algorithm=FORMATS[chosen.method][1],
        bits=chosen.bits,
        group_size=chosen.group_size or None,
        symmetric=True,  # ModelOpt's formats have no zero points
        zero_point=False,
        excluded_modules=(),
    )


def _activations(chosen: Quantization) -> ActivationQuantization | None:
    if chosen.method == "awq":
        return None
    dtype = "fp8_e4m3" if chosen.method == "fp8" else "int8"
    return ActivationQuantization(dtype=dtype, granularity="tensor", dynamic=False)
