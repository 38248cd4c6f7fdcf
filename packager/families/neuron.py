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
from collections.abc import Iterator, Mapping
from dataclasses import replace

from packager.core.artifact import Artifacts
from packager.core.documents import NotStrict, parse_object
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.serving import COMPILED_DIR, MODEL_DIR, SERVING_DIR, RenderedFile, ServingConfig
from packager.core.split import Abilities
from packager.core.versions import version_key
from packager.families.listed import check_neuron_type
from packager.families.neuron_serve import (
    check_serve,
    serve_arguments,
    serve_environment,
    serve_schema,
)
from packager.families.rules import plan_facts
from packager.families.sagemaker import check_environment
from packager.families.schema import (
    EngineSchema,
    check_value,
    facts,
    facts_schema,
    find_schema,
    nearest,
)
from packager.families.shared import (
    OFFLINE_ENV,
    check_engine_options,
    check_input_limit,
    check_one_stage,
    check_unnamed,
    checkpoint_format,
    draft_dir,
    draft_unsupported,
    load_time_quantization,
    model_dir,
)
from packager.families.tgi import check_names
from packager.families.vllm import command, launched
from packager.families.vllm_options import (
    REASONING_PARSER,
    TOOL_PARSER,
    Options,
    asked_names,
    asked_options,
    check_draft,
    check_options,
    check_proven,
    default_options,
    parsers_of,
    planned_options,
    schema_of,
    stopping_of,
)
from packager.planning.compile_caches import COMPILED_COPY, SWITCH
from packager.planning.neuron_targets import compiled_by, export_command, logical_core_size
from packager.rendering.check import check_json, check_properties
from packager.rendering.environment import render_template
from packager.share import share_dir

PORT = 8080
ADDITIONAL, OVERRIDES = "additional-config", "override_neuron_config"
PLUG_IN_READ = "2.27.1"  # the release whose plug-in's source was read
# What NeuronConfig is made of by the plug-in from vLLM's options, and sizes that follow from it.
PLANNED_OVERRIDES = {
    *("tp_degree", "pp_degree", "ep_degree", "world_size", "local_ranks_size", "start_rank_id"),
    *("batch_size", "max_batch_size", "tkg_batch_size", "kv_cache_batch_size"),
    *("seq_len", "max_length", "max_context_length", "n_positions", "torch_dtype"),
}
BY_COMMAND = ("vllm-neuron", "vllm-nxdi")
HF_VLLM = "hf-vllm-neuronx"
VARIANTS = (*BY_COMMAND, HF_VLLM, "tgi-neuronx", "lmi-neuronx")

# Which drafts each variant serves.  vLLM's plug-in compiles an EAGLE-3 head with its model.
WITH_DRAFTS = {"vllm-neuron": ("eagle3",)}

# Toolchains whose compiled files our launcher makes ready.
LAUNCHED = ("optimum", "nxdi")
EXPORTED = f"{COMPILED_COPY}/model"  # where the launcher leaves what was traced


class NeuronFamily:
    """Describes images that serve on NeuronCores."""

    name = "neuron"

    def abilities(self, container: ContainerFacts) -> Abilities:
        """Return what a Neuron image can start: one copy, or LMI's server on each group."""
        named = f"the Neuron image {container.variant}"
        if container.variant not in BY_COMMAND:
            return Abilities(who=named, workers=container.variant == "lmi-neuronx")
        schema = find_schema("vllm", container.engine_version)  # vLLM's own server answers
        return Abilities(
            who=named,
            tool_parsers=parsers_of(schema, TOOL_PARSER),
            reasoning_parsers=parsers_of(schema, REASONING_PARSER),
            stopping=stopping_of(container, schema),
        )

    def check(self, plan: Plan) -> Iterator[Finding]:
        """Say what the image refuses or drops, and what static shapes mean."""
        variant = plan.container.variant
        if variant not in VARIANTS:
            message = f"packager writes no configuration for the Neuron image {variant!r}"
            yield Finding("error", "engine-not-rendered", message, f"use {', '.join(VARIANTS)}")
            return
        yield from check_neuron_type(plan)
        yield from check_one_stage(plan, "Neuron")
        yield from _check_techniques(plan)
        yield from _check_shape(plan)
        if variant in BY_COMMAND:
            schema = _plug_in_schema(plan)
            yield from check_proven("vLLM", plan, schema)
            yield from check_overrides(dict(_vllm_options(plan)))
            yield from _check_unread(plan)
            yield from check_engine_options(plan, _vllm_own(plan), asked_names(plan, schema))
            version, facts = plan.container.engine_version, plan_facts(plan)
            yield from check_options("vLLM", _vllm_options(plan), schema, facts, version=version)
            if plan.draft is not None and variant in WITH_DRAFTS:
                yield from check_draft("vLLM", plan, schema)
            yield from check_input_limit(plan)
            return
        if variant != "tgi-neuronx":
            yield from check_input_limit(plan, variant)
        yield from check_environment(plan, _env(plan))
        if variant == HF_VLLM:
            schema = serve_schema(plan.container.version)
            taken = {**_hf_vllm(plan), "port": str(PORT)}
            yield from check_engine_options(plan, taken, asked_names(plan, schema))
            yield from check_serve(_serve_options(plan), schema)
            return
        yield from check_unnamed(plan, variant)
        spelled = {name: _spell(variant, name) for name, _ in plan.engine_options}
        yield from check_engine_options(plan, _own(plan), spelled)
        if variant == "tgi-neuronx":
            schema = find_schema("neuronx-tgi", plan.container.engine_version)
            yield from check_names(settings(plan), schema, by_script=True)
        else:
            yield from _check_keys(variant, settings(plan), _lmi_schema(plan.container.release))

    def render(self, plan: Plan, artifacts: Artifacts) -> ServingConfig:  # noqa: ARG002
        """Give what the variant reads."""
        compiled = compiled_by(plan.container) if plan.compiler else ""
        if plan.container.variant in BY_COMMAND:
            config = launched(
                command(_vllm_options(plan), schema_of(plan)), _compiled_env(plan, compiled)
            )
        elif compiled == "optimum":
            config = launched(_serve(plan), _compiled_env(plan, compiled), adapter=False)
        else:
            env = {**_env(plan), **_compiled_env(plan, compiled)}
            config = ServingConfig(files=_files(plan), env=env, port=PORT)
        if compiled in LAUNCHED:
            config = replace(config, files=(*config.files, *_compiled_files(plan, compiled)))
        return replace(config, model_dir=model_dir(plan), draft_dir=draft_dir(plan))


def _plug_in_schema(plan: Plan) -> EngineSchema:
    """Return vLLM's options, with what NxD Inference reads of `additional-config`."""
    schema, container = schema_of(plan), plan.container
    if container.variant != "vllm-nxdi":
        return schema
    inner = find_schema("nxdi", _nxdi_version(container.release)).options[ADDITIONAL]
    if container.release != PLUG_IN_READ and inner.config is not None:  # it may read more beside
        inner = replace(inner, config=replace(inner.config, closed=False))
    return replace(schema, options={**schema.options, ADDITIONAL: inner})


def _nxdi_version(release: str) -> str:
    """Return the version of NxD Inference that a release of the SDK has, as far as is known."""
    key = version_key(release)
    rows = facts()["nxdi"]
    older = [row for row in rows if key is not None and key >= (version_key(row["sdk"]) or key)]
    return str(older[-1]["version"] if older else rows[-1]["version"])


def check_overrides(options: Mapping[str, str | bool]) -> Iterator[Finding]:
    """Refuse overrides of the compiled model that decide what the plan does."""
    try:
        given = parse_object(str(options.get(ADDITIONAL, "{}")).encode())
    except NotStrict:
        return  # said where the option's type is checked
    overrides = given.get(OVERRIDES)
    for name in overrides if isinstance(overrides, dict) else ():
        if name in PLANNED_OVERRIDES:
            message = f"{OVERRIDES}.{name} decides what is compiled, which the plan does"
            hint = "change the request, not the engine's option"
            yield Finding("error", "options-conflict", message, hint)


def _check_unread(plan: Plan) -> Iterator[Finding]:
    """Find options that the plug-in of this release overwrites or refuses."""
    options = _vllm_options(plan)
    for row in facts()["plug_in"]:
        if row["release"] == plan.container.release and row["variant"] == plan.container.variant:
            for name, why in row["options"].items():
                if options.get(name, False) is not False:
                    message = f"{name!r} has no effect on Neuron devices: {why}"
                    yield Finding("error", "key-dropped", message, "leave it out")


def settings(plan: Plan) -> dict[str, str]:
    """Spell the plan, and the options asked for by name, in the variant's own keys."""
    variant = plan.container.variant
    return {**_own(plan), **{_spell(variant, name): value for name, value in plan.engine_options}}


def _own(plan: Plan) -> dict[str, str]:
    return _tgi(plan) if plan.container.variant == "tgi-neuronx" else _lmi(plan)


def _tgi(plan: Plan) -> dict[str, str]:
    """Give every variable: with one missing, the entrypoint looks for a cached model instead."""
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


def _serve_options(plan: Plan) -> Options:
    """Spell the plan and the options asked for as optimum-neuron's `serve` takes them."""
    return {**_hf_vllm(plan), **asked_options(plan, serve_schema(plan.container.version))}


def _hf_vllm(plan: Plan) -> Options:
    is_named = plan.served_name != plan.model.name
    named: Options = {"served-model-name": plan.served_name} if is_named else {}
    return {
        "model": model_dir(plan),
        "batch-size": str(plan.shape.max_batch),
        "sequence-length": str(plan.shape.max_total_tokens),
        "tensor-parallel-size": str(plan.tp_degree),
        **named,
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


def _vllm_options(plan: Plan) -> Options:
    schema = schema_of(plan)
    own, asked = _vllm_own(plan), asked_options(plan, schema)
    return {**own, **default_options(plan, schema), **asked}


def _vllm_own(plan: Plan) -> Options:
    """Spell the plan for the plug-in.

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


def _env(plan: Plan) -> dict[str, str]:
    variant = plan.container.variant
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    if variant == HF_VLLM:
        return {**offline, **serve_environment(_serve_options(plan))}
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


def _serve(plan: Plan) -> list[str]:
    """Give the command that Hugging Face's entrypoint makes of SM_ON_*, for the exported model.

    Its name stays the one that clients know from an image without compiled files.
    """
    named: Options = {"served-model-name": model_dir(plan)}
    options: Options = {**_serve_options(plan), "model": EXPORTED}
    options |= {name: value for name, value in named.items() if name not in options}
    return ["optimum-cli", "neuron", "serve", "--port", str(PORT), *serve_arguments(options)]


def _compiled_env(plan: Plan, toolchain: str) -> dict[str, str]:
    """Lead the compiler and the engine to what was compiled ahead of time."""
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


def _compiled_files(plan: Plan, toolchain: str) -> tuple[RenderedFile, ...]:
    """Give the launcher's part for compiled files, and what it must know."""
    shipped = share_dir("containers") / "serving" / "neuron" / "compiled_cache.py"
    model = model_dir(plan)
    exports = export_command(plan, model) if toolchain == "optimum" else []
    told = {"export": exports, "model": model}
    text = json.dumps(told, indent=1) + "\n"
    path = f"{SERVING_DIR}/neuron.json"
    check_json(path, text, told)
    return (
        RenderedFile(path=f"{SERVING_DIR}/compiled_cache.py", data=shipped.read_bytes()),
        RenderedFile(path=path, data=text.encode()),
    )


def _files(plan: Plan) -> tuple[RenderedFile, ...]:
    if plan.container.variant != "lmi-neuronx" or plan.weights == "mounted":
        return ()
    meant = settings(plan)
    text = render_template("lmi/serving.properties.j2", properties=meant)
    path = f"{MODEL_DIR}/serving.properties"
    check_properties(path, text, meant)
    return (RenderedFile(path=path, data=text.encode("ascii")),)


def _check_techniques(plan: Plan) -> Iterator[Finding]:
    variant = plan.container.variant
    if plan.draft is not None and plan.draft.kind not in WITH_DRAFTS.get(variant, ()):
        hint = "use an EAGLE-3 head with the image 'vllm-neuron' on Trn2 or Trn3, or --draft none"
        yield from draft_unsupported(plan, f"the Neuron image {variant!r}", hint)
    quantized = checkpoint_format(plan) or load_time_quantization(plan)
    if quantized:
        message = f"Neuron images do not serve weights quantized as {quantized!r}"
        hint = "use the unquantized model, or an instance with GPUs"
        yield Finding("error", "quantization-unsupported", message, hint)
    if plan.kv_dtype != "auto":
        message = f"Neuron images keep the KV cache in the model's dtype, not {plan.kv_dtype!r}"
        yield Finding("error", "value-refused", message, "leave --kv-dtype out")
    if plan.max_prefill_tokens is not None and plan.container.variant not in BY_COMMAND:
        message = "the prompt tokens computed at once follow from the compiled shape on Neuron"
        yield Finding("warning", "key-dropped", message, "leave --max-prefill-tokens out")


def _check_shape(plan: Plan) -> Iterator[Finding]:
    shape, cores = plan.shape, plan.instance.devices
    if shape.max_input_tokens >= shape.max_total_tokens:
        message = (
            f"a compiled length of {shape.max_total_tokens} tokens leaves no room for an answer "
            f"to a prompt of {shape.max_input_tokens}"
        )
        yield Finding("error", "static-shape", message, "lower --max-input-tokens")
    if plan.tp_degree > cores:
        message = f"{plan.tp_degree} cores are compiled for, and {plan.instance.name} has {cores}"
        yield Finding("error", "static-shape", message, f"use --tp-degree {cores}")
    message = (
        f"compiled for exactly {shape.max_batch} at once of {shape.max_total_tokens} tokens on "
        f"{plan.tp_degree} cores; another shape is another compilation"
    )
    yield Finding("note", "static-shape", message)


def _lmi_schema(release: str) -> EngineSchema:
    """Return what a release of LMI for Neuron reads; what is no release reads all that is known."""
    schema, key = facts_schema("lmi-neuronx"), version_key(release)
    late = {
        name
        for since, names in facts()["lmi-neuronx"]["since"].items()
        if key is not None and key < (version_key(since) or key)
        for name in names
    }
    kept = {name: row for name, row in schema.options.items() if name not in late}
    return replace(schema, options=kept)


def _check_keys(variant: str, meant: Mapping[str, str], schema: EngineSchema) -> Iterator[Finding]:
    for key, value in meant.items():
        if key in schema.options:
            yield from check_value(variant, schema.options[key], key, value)
            continue
        close = nearest(key, schema.options)
        message = f"{variant} does not read {key!r}"
        hint = f"did you mean {close!r}?" if close else "leave it out"
        yield Finding("error", "key-dropped", message, hint)


def _spell(variant: str, name: str) -> str:
    bare = name.removeprefix("--").removeprefix("option.").lower()
    if variant == "tgi-neuronx":
        return bare.upper().replace("-", "_")
    return f"option.{bare.replace('-', '_')}"
