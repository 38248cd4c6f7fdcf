"""Compiling for Inferentia and Trainium before the image is made.

The toolchain of the serving image compiles for a stated architecture, without a device. The result
is the compiler's cache, in the format of other tools, and the traced model. Neither contains
weights, or fields of config.json that the key leaves out, so fine-tunes of one model share an
artifact.

    hf-vllm-neuronx   optimum-neuron's export; the server serves nothing but an exported model
    vllm-nxdi         NxD Inference; vLLM loads it through NEURON_COMPILED_ARTIFACTS
    lmi-neuronx       compiles on a device only: what Neo compiled is taken from the cache
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from packager.core.facts import Facts
from packager.core.findings import Finding, Severity
from packager.core.image import Inline
from packager.core.key_options import keyed_options
from packager.core.model import ModelFile
from packager.core.plan import Plan
from packager.core.ports import Compiler
from packager.core.recipe import Estimate, Step, StepInput
from packager.core.serving import COMPILED_DIR, SERVING_DIR, ServingConfig
from packager.core.units import GIB
from packager.engines.neuron_targets import (
    compiled_by,
    export_command,
    logical_core_size,
    neuron_arch,
)
from packager.optimize.compile.neuron_keys import sharding_of
from packager.optimize.keys.documents import NeuronKey
from packager.optimize.keys.parts import Invocation, Precision, Sampling, Shape, Target
from packager.optimize.steps.configs import NO_GRAPH, kept_fields
from packager.optimize.steps.inputs import CONFIG, config_file
from packager.optimize.steps.key_parts import graph_of, parallelism_of, toolchain_in_image

TOOLCHAIN_BYTES = 16 * GIB  # neuronx-cc beside the model; the minimum in its own guides
CHUNK_TOKENS = 1024  # optimum-neuron prefills longer prompts in pieces of this
MAX_TOP_K = 256
TORCH_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


class NeuronCompiler(Compiler):
    """Describes runs of `containers/tools/neuron`."""

    name = "neuron"
    tool = "neuron"

    def check(self, facts: Facts, plan: Plan) -> Iterable[Finding]:
        """Yield findings where compiling for the image or device is impossible."""
        variant = plan.container.variant
        how = compiled_by(plan.container)
        if not how or (facts.base and not facts.base.digest):
            message = f"nothing is compiled ahead of time for the image {variant or 'of the plan'}"
            hint = "use `--container-version 2.28.0` (vllm-nxdi), or `--compile off`"
            yield Finding("error", "compile-unsupported", message, hint)
        elif not neuron_arch(plan.instance.name):
            message = f"the Neuron toolchain of {variant} does not compile for {plan.instance.name}"
            hint = "use an instance of inf2, trn1 or trn2, or `--compile off`"
            yield Finding("error", "neuron-target", message, hint)
        elif how == "neo":
            message = "LMI's image compiles on a machine with NeuronCores only"
            hint = "import Neo's output: `packager cache import --from neo --as KEY.json DIR`"
            severity: Severity = "warning" if plan.compiler else "error"  # `auto` looks for one
            yield Finding(severity, "neuron-import-only", message, hint)

    def step(
        self,
        facts: Facts,
        plan: Plan,
        serving: ServingConfig,
        inputs: Mapping[str, StepInput],
    ) -> Step:
        """Describe one run of the toolchain in the serving image; no device is needed."""
        env = _env(plan)
        rendered = tuple(
            ModelFile(path=name, role="other", content=Inline(file.data))
            for file in serving.files
            if (name := file.path.removeprefix(f"{SERVING_DIR}/")) != file.path
        )
        weights = plan.profile.weight_bytes
        return Step(
            name="compile",
            tool=self.tool,
            gives="compiled",
            parameters={
                "command": _command(plan, serving),
                "serving_dir": SERVING_DIR,
                "versions": {plan.container.engine: plan.container.engine_version},
                "expected": _expected(plan),
            },
            inputs={
                **inputs,
                "model": _with_graph_config(facts, plan, inputs.get("model", StepInput())),
                "serving": StepInput(files=rendered),
            },
            env=env,
            key=_key(facts, plan, serving, env),
            needs=Estimate(
                memory_bytes=2 * weights + TOOLCHAIN_BYTES,
                disk_bytes=2 * weights,
                size_bytes=weights,
            ),
            image=facts.base,
            places={
                "model": serving.model_dir,
                "serving": SERVING_DIR,
                "output": COMPILED_DIR,
            },
        )


def _with_graph_config(facts: Facts, plan: Plan, given: StepInput) -> StepInput:
    """Replace config.json by its fields in the key, so that the toolchain reads no others.

    The traced model contains that config, and is served for every model with the same key.
    """
    stated = {"architectures": [plan.profile.architecture], "torch_dtype": TORCH_DTYPES[plan.dtype]}
    shown = config_file({**kept_fields(facts.model.config, NO_GRAPH), **stated}, frozenset())
    others = (file for file in given.files if file.path != CONFIG)
    return replace(given, files=(shown, *others))


def _env(plan: Plan) -> dict[str, str]:
    """Return the variables that state the target where no device is present."""
    return {
        "NEURON_PLATFORM_TARGET_OVERRIDE": neuron_arch(plan.instance.name),
        "NEURON_LOGICAL_NC_CONFIG": str(logical_core_size(plan.instance.name)),
    }


def _command(plan: Plan, serving: ServingConfig) -> list[str]:
    """Return the toolchain's command line; `{traced}` is replaced by the output directory."""
    match compiled_by(plan.container):
        case "optimum":
            return [*export_command(plan, serving.model_dir), "{traced}"]
        case "nxdi":
            return _nxdi(plan, serving)
    return []


def _nxdi(plan: Plan, serving: ServingConfig) -> list[str]:
    """Return NxD Inference's arguments, as vLLM's plug-in would pass them for these sizes."""
    batch, length = str(plan.shape.max_batch), str(plan.shape.max_total_tokens)
    words = {
        "--model-path": serving.model_dir,
        "--compiled-model-path": "{traced}",
        "--torch-dtype": TORCH_DTYPES[plan.dtype],
        "--tp-degree": str(plan.tp_degree),
        "--batch-size": batch,
        "--ctx-batch-size": "1",
        "--tkg-batch-size": batch,
        "--max-context-length": length,
        "--seq-len": length,
        "--padding-side": "right",
        "--global-topk": str(MAX_TOP_K),
        "--logical-nc-config": str(logical_core_size(plan.instance.name)),
        "--prompt": "unused",  # required, and unused when only compiling
    }
    flags = ["--enable-bucketing", "--on-device-sampling", "--dynamic"]
    if plan.shape.max_batch > 1:
        flags.append("--is-continuous-batching")
    spelled = [word for pair in words.items() for word in pair]
    task = ["inference_demo", "--model-type", _model_type(plan), "--task-type", "causal-lm"]
    return [*task, "run", *spelled, *flags, "--compile-only"]


def _model_type(plan: Plan) -> str:
    """Return the model type as NxD Inference spells it: the architecture without `ForCausalLM`."""
    return plan.profile.architecture.removesuffix("ForCausalLM").lower()


def _expected(plan: Plan) -> dict[str, Any]:
    """Return the required values of the toolchain's neuron_config.json, where it states them."""
    length = plan.shape.max_total_tokens
    return {
        "target": neuron_arch(plan.instance.name),
        "batch_size": plan.shape.max_batch,
        "sequence_length": length,
        "seq_len": length,
        "tp_degree": plan.tp_degree,
        "torch_dtype": TORCH_DTYPES[plan.dtype],
    }


def _key(
    facts: Facts, plan: Plan, serving: ServingConfig, env: Mapping[str, str]
) -> NeuronKey | None:
    """Return the key document; None while the base is unknown."""
    if facts.base is None or not facts.base.digest:
        return None
    config, tp = facts.model.config, plan.tp_degree
    return NeuronKey(
        layout="neff-cache",
        weights=None,
        graph=graph_of(config, NO_GRAPH),
        shape=_shape(plan),
        precision=Precision(
            dtype=plan.dtype,
            weights=None,
            activations=None,
            kv_dtype=plan.dtype,
            auto_cast="none",
            auto_cast_dtype=None,
            logits_dtype="fp32",
        ),
        parallelism=parallelism_of(tp=tp, pp=1, sharding=sharding_of(config, tp) or "unknown"),
        target=Target(
            backend="neuron",
            arch=neuron_arch(plan.instance.name),
            device=None,
            logical_core_size=logical_core_size(plan.instance.name),
            cpu=None,
            os="linux",
            machine="any",
            libc="none",
        ),
        toolchain=toolchain_in_image(facts.tools["neuron"], facts.base, plan.container, serving),
        invocation=Invocation(compiler_args=(), engine_args=_engine_args(plan), env=dict(env)),
        speculation=None,
        sampling=_sampling(plan),
        lora=None,
    )


def _shape(plan: Plan) -> Shape:
    """Return the sizes as the toolchain gets them: exact ones, prompts up to the full length."""
    batch, length = plan.shape.max_batch, plan.shape.max_total_tokens
    optimum = compiled_by(plan.container) == "optimum"
    chunk = CHUNK_TOKENS if optimum and length > CHUNK_TOKENS else None
    return Shape(
        max_batch=batch,
        context_batch=1,
        token_batch=batch,
        max_input_tokens=length,
        max_total_tokens=length,
        max_batched_tokens=None,
        context_buckets=(chunk or length,),
        token_buckets=(length,),
        prefill_chunk_tokens=chunk,
        beam_width=1,
        block_tokens=None,
        paged=False,
        graph_sizes=(),
        dynamic=(),
    )


def _sampling(plan: Plan) -> Sampling:
    """Sampling ends the graph, but in LMI's."""
    on_device = compiled_by(plan.container) != "neo"
    return Sampling(on_device=on_device, max_top_k=MAX_TOP_K if on_device else None)


def _engine_args(plan: Plan) -> dict[str, str]:
    """Return further options of the toolchain, and the options that the request names."""
    asked = {name: value or "true" for name, value in keyed_options(plan.engine_options)}
    return {
        **asked,
        "packager.toolchain": compiled_by(plan.container),
        "packager.architecture": plan.profile.architecture,
    }
