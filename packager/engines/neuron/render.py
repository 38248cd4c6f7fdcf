"""The Neuron family: AWS Inferentia and Trainium, by four kinds of image.

    vllm-neuron, vllm-nxdi   AWS's vLLM with the Neuron plug-in: a command line
    hf-vllm-neuronx          Hugging Face's vLLM: SM_ON_* variables
    tgi-neuronx              Hugging Face's TGI: its own variables
    lmi-neuronx              the last LMI for Neuron: serving.properties

Shapes are compiled in: the batch and the length that are rendered are the ones
that are compiled, never upper bounds of something smaller.

Where something was compiled ahead of time, a launcher copies the compiler's cache to where
it can be written.  LMI does that itself.
"""

from __future__ import annotations

import json
from dataclasses import replace

from packager.core.plan import Plan
from packager.core.serving import COMPILED_DIR, MODEL_DIR, SERVING_DIR, RenderedFile
from packager.core.share import share_dir
from packager.engines.compile_caches import COMPILED_COPY, SWITCH
from packager.engines.neuron.serve import serve_arguments, serve_environment, serve_schema
from packager.engines.neuron_targets import export_command, logical_core_size
from packager.engines.rendering.check import check_json, check_properties
from packager.engines.rendering.environment import render_template
from packager.engines.shared import OFFLINE_ENV, model_dir
from packager.engines.vllm.options import (
    Options,
    default_options,
    planned_options,
    requested_options,
    schema_of,
)

PORT = 8080

BY_COMMAND = ("vllm-neuron", "vllm-nxdi")
HF_VLLM = "hf-vllm-neuronx"

# Which drafts each variant serves.  vLLM's plug-in compiles an EAGLE-3 head with its model.
WITH_DRAFTS = {"vllm-neuron": ("eagle3",)}

# Toolchains whose compiled files our launcher makes ready.
LAUNCHED = ("optimum", "nxdi")
EXPORTED = f"{COMPILED_COPY}/model"  # where the launcher leaves what was traced


def settings(plan: Plan) -> dict[str, str]:
    """Return the plan and the options requested by name as the variant's own keys."""
    variant = plan.container.variant
    return {**planned(plan), **{spell(variant, name): value for name, value in plan.engine_options}}


def planned(plan: Plan) -> dict[str, str]:
    return _tgi(plan) if plan.container.variant == "tgi-neuronx" else _lmi(plan)


def _tgi(plan: Plan) -> dict[str, str]:
    """Return every variable: with one missing, the entrypoint looks for a cached model instead."""
    shape = plan.shape
    return {
        "HF_MODEL_ID": model_dir(plan),
        "HF_NUM_CORES": str(plan.tp_degree),
        "HF_AUTO_CAST_TYPE": plan.dtype,
        "MAX_BATCH_SIZE": str(shape.max_batch),
        "MAX_INPUT_TOKENS": str(shape.max_input_tokens),
        "MAX_TOTAL_TOKENS": str(shape.max_total_tokens),
        "MAX_BATCH_PREFILL_TOKENS": str(shape.max_batch * shape.max_input_tokens),
    }


def serve_options(plan: Plan) -> Options:
    """Return the plan and the requested options as options of optimum-neuron's `serve`."""
    return {**serve_planned(plan), **requested_options(plan, serve_schema(plan.container.version))}


def serve_planned(plan: Plan) -> Options:
    return {
        "model": model_dir(plan),
        "batch-size": str(plan.shape.max_batch),
        "sequence-length": str(plan.shape.max_total_tokens),
        "tensor-parallel-size": str(plan.tp_degree),
        "served-model-name": plan.served_name,
    }


def _lmi(plan: Plan) -> dict[str, str]:
    return {
        "engine": "Python",
        "option.entryPoint": "djl_python.transformers_neuronx",
        "option.rolling_batch": "auto",
        "option.tensor_parallel_degree": str(plan.tp_degree),
        "option.n_positions": str(plan.shape.max_total_tokens),
        "option.max_rolling_batch_size": str(plan.shape.max_batch),
        "option.dtype": plan.dtype,
        "option.model_loading_timeout": "3600",  # it compiles when nothing is compiled
    }


def vllm_options(plan: Plan) -> Options:
    schema = schema_of(plan)
    own, asked = vllm_own(plan), requested_options(plan, schema)
    return {**own, **default_options(plan, schema), **asked}


def vllm_own(plan: Plan) -> Options:
    """Return the plan as options of vLLM's plug-in for Neuron.

    NxDI compiles a block per request, without a prefix cache; AWS shows EAGLE-3 without one.
    """
    drafts = plan.container.variant in WITH_DRAFTS
    options = planned_options(plan if drafts else replace(plan, draft=None))
    if plan.container.variant == "vllm-nxdi" or "speculative-config" in options:
        options["enable-prefix-caching"] = False
    return options | {
        "host": "0.0.0.0",
        "port": str(PORT),
        "middleware": "inputs_adapter.InputsAdapter",
    }


def environment(plan: Plan) -> dict[str, str]:
    variant = plan.container.variant
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    if variant == HF_VLLM:
        return {**offline, **serve_environment(serve_options(plan))}
    meant = settings(plan)
    if variant == "tgi-neuronx":
        return {**offline, **meant}
    options = {
        f"OPTION_{key.removeprefix('option.').upper()}": value
        for key, value in meant.items()
        if key.startswith("option.")
    }
    engine = {"OPTION_ENGINE": "Python"} if plan.weights == "mounted" else {}
    store = {"SERVING_MODEL_STORE": MODEL_DIR} if plan.weights == "baked" else {}
    return {**OFFLINE_ENV, "DJL_OFFLINE": "true", **store, **engine, **options}


def serve_command(plan: Plan) -> list[str]:
    """Return what Hugging Face's entrypoint makes of SM_ON_*, for the exported model."""
    options: Options = {**serve_options(plan), "model": EXPORTED}
    return ["optimum-cli", "neuron", "serve", "--port", str(PORT), *serve_arguments(options)]


def compiled_env(plan: Plan, toolchain: str) -> dict[str, str]:
    """Return the variables that point compiler and engine to the compiled files."""
    if toolchain == "neo":  # LMI copies a cache that it cannot write to
        return {"NEURON_COMPILE_CACHE_URL": COMPILED_DIR}
    if toolchain not in LAUNCHED:
        return {}
    artifacts = {"NEURON_COMPILED_ARTIFACTS": EXPORTED} if toolchain == "nxdi" else {}
    return {
        SWITCH: COMPILED_DIR,
        "NEURON_COMPILE_CACHE_URL": f"{COMPILED_COPY}/cache",
        "NEURON_LOGICAL_NC_CONFIG": str(logical_core_size(plan.instance.name)),
        **artifacts,
    }


def compiled_files(plan: Plan, toolchain: str) -> tuple[RenderedFile, ...]:
    """Return the launcher's module for compiled files, and its settings."""
    shipped = share_dir("containers") / "serving" / "neuron" / "compiled_cache.py"
    model = model_dir(plan)
    exports = export_command(plan, model) if toolchain == "optimum" else []
    document = {"export": exports, "model": model}
    text = json.dumps(document, indent=1) + "\n"
    path = f"{SERVING_DIR}/neuron.json"
    check_json(path, text, document)
    return (
        RenderedFile(path=f"{SERVING_DIR}/compiled_cache.py", data=shipped.read_bytes()),
        RenderedFile(path=path, data=text.encode()),
    )


def property_files(plan: Plan) -> tuple[RenderedFile, ...]:
    mounted_as_is = plan.weights == "mounted" and not plan.one_mount
    if plan.container.variant != "lmi-neuronx" or mounted_as_is:
        return ()
    meant = settings(plan)
    text = render_template("lmi/serving.properties.j2", properties=meant)
    path = f"{model_dir(plan)}/serving.properties"
    check_properties(path, text, meant)
    return (RenderedFile(path=path, data=text.encode("ascii")),)


def spell(variant: str, name: str) -> str:
    bare = name.removeprefix("--").removeprefix("option.").lower()
    if variant == "tgi-neuronx":
        return bare.upper().replace("-", "_")
    return f"option.{bare.replace('-', '_')}"
