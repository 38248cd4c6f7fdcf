"""Checks of what Neuron images refuse, drop or compile in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from packager.core.documents import NotStrict, parse_object
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.suggestions import guess
from packager.core.versions import version_key
from packager.engines.effects import ADDITIONAL, OVERRIDES, owner_of_field
from packager.engines.neuron.render import BY_COMMAND, WITH_DRAFTS, vllm_options
from packager.engines.schema import EngineSchema, check_value, facts, facts_schema, find_schema
from packager.engines.shared import checkpoint_format, draft_unsupported, load_time_quantization
from packager.engines.vllm.options import schema_of

PLUG_IN_READ = "2.27.1"  # the release whose plug-in's source was read


def plug_in_schema(plan: Plan) -> EngineSchema:
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
        return  # reported by the check of the option's type
    overrides = given.get(OVERRIDES)
    for name in overrides if isinstance(overrides, dict) else ():
        if owner := owner_of_field(name):
            message = f"{OVERRIDES}.{name} decides what is compiled, which the plan does"
            yield Finding("error", "options-conflict", message, f"use {owner}")


def check_unread(plan: Plan) -> Iterator[Finding]:
    """Find options that the plug-in of this release overwrites or refuses."""
    options = vllm_options(plan)
    for row in facts()["plug_in"]:
        if row["release"] == plan.container.release and row["variant"] == plan.container.variant:
            for name, why in row["options"].items():
                if options.get(name, False) is not False:
                    message = f"{name!r} has no effect on Neuron devices: {why}"
                    yield Finding("error", "key-dropped", message, "leave it out")


def check_techniques(plan: Plan) -> Iterator[Finding]:
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


def check_shape(plan: Plan) -> Iterator[Finding]:
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


def lmi_schema(release: str) -> EngineSchema:
    """Return the options of a release of LMI for Neuron; all known ones for an unknown release."""
    schema, key = facts_schema("lmi-neuronx"), version_key(release)
    late = {
        name
        for since, names in facts()["lmi-neuronx"]["since"].items()
        if key is not None and key < (version_key(since) or key)
        for name in names
    }
    kept = {name: row for name, row in schema.options.items() if name not in late}
    return replace(schema, options=kept)


def check_keys(variant: str, meant: Mapping[str, str], schema: EngineSchema) -> Iterator[Finding]:
    for key, value in meant.items():
        if key in schema.options:
            yield from check_value(variant, schema.options[key], key, value)
            continue
        message = f"{variant} does not read {key!r}"
        hint = guess(key, schema.options, "leave it out")
        yield Finding("error", "key-dropped", message, hint)
