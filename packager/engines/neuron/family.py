"""The Neuron family: AWS Inferentia and Trainium; see `render` for the four kinds of image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from packager.core.artifact import Artifacts
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.serving import ServingConfig
from packager.core.traits import AnswersAs, EngineTraits
from packager.engines.neuron.check import (
    check_keys,
    check_overrides,
    check_shape,
    check_techniques,
    check_unread,
    lmi_schema,
    plug_in_schema,
)
from packager.engines.neuron.render import (
    BY_COMMAND,
    HF_VLLM,
    LAUNCHED,
    PORT,
    WITH_DRAFTS,
    compiled_env,
    compiled_files,
    environment,
    planned,
    property_files,
    serve_command,
    serve_options,
    serve_planned,
    settings,
    spell,
    vllm_options,
    vllm_own,
)
from packager.engines.neuron.serve import check_serve, serve_schema
from packager.engines.neuron_targets import compiled_by
from packager.engines.rules import plan_facts
from packager.engines.sagemaker import check_environment
from packager.engines.schema import find_schema
from packager.engines.shared import (
    check_engine_options,
    check_input_limit,
    check_one_stage,
    check_unnamed,
    draft_dir,
    model_dir,
)
from packager.engines.supported_models import check_neuron_type
from packager.engines.tgi.check import check_names
from packager.engines.traits import engine_traits
from packager.engines.vllm.check import check_draft, check_options, check_proven
from packager.engines.vllm.options import requested_names, schema_of
from packager.engines.vllm.render import command, launched
from packager.engines.vllm.traits import REASONING_PARSER, TOOL_PARSER, parsers_of, stopping_of

VARIANTS = (*BY_COMMAND, HF_VLLM, "tgi-neuronx", "lmi-neuronx")

# Model name in responses of images that have no option for it.
ANSWERS_AS: Mapping[str, AnswersAs] = {"tgi-neuronx": "directory", "lmi-neuronx": "nothing"}

# Images whose graphs can be baked.  TGI's looks for an exported model of its own making;
# vllm-neuron's files its graphs under a hash that only a started server knows.
TOOLCHAINS = {HF_VLLM: "optimum", "vllm-nxdi": "nxdi", "lmi-neuronx": "neo"}


class NeuronFamily:
    """Describes images that serve on NeuronCores."""

    name = "neuron"

    def traits(self, container: ContainerFacts) -> EngineTraits:
        """Return what a Neuron image can start: one copy, or LMI's server on each group."""
        named = f"the Neuron image {container.variant}"
        toolchain = TOOLCHAINS.get(container.variant, "")
        able = replace(engine_traits(container), neuron_toolchain=toolchain)
        if container.variant not in BY_COMMAND:
            answers_as = ANSWERS_AS.get(container.variant, able.answers_as)
            workers = container.variant == "lmi-neuronx"
            return replace(
                able,
                who=named,
                workers=workers,
                answers_as=answers_as,
                health_path="/ping" if workers else "",
            )
        schema = find_schema("vllm", container.engine_version)  # vLLM's own server answers
        return replace(
            able,
            who=named,
            health_path="/health",
            tool_parsers=parsers_of(schema, TOOL_PARSER),
            reasoning_parsers=parsers_of(schema, REASONING_PARSER),
            stopping=stopping_of(container, schema),
        )

    def check(self, plan: Plan) -> Iterator[Finding]:
        """Yield findings for settings that the image refuses or ignores, and on static shapes."""
        variant = plan.container.variant
        if variant not in VARIANTS:
            message = f"packager cannot configure the Neuron image {variant!r}"
            yield Finding("error", "engine-not-rendered", message, f"use {', '.join(VARIANTS)}")
            return
        yield from check_neuron_type(plan)
        yield from check_one_stage(plan, "Neuron")
        yield from check_techniques(plan)
        yield from check_shape(plan)
        if variant in BY_COMMAND:
            schema = plug_in_schema(plan)
            yield from check_proven("vLLM", plan, schema)
            yield from check_overrides(dict(vllm_options(plan)))
            yield from check_unread(plan)
            yield from check_engine_options(plan, vllm_own(plan), requested_names(plan, schema))
            version, facts = plan.container.engine_version, plan_facts(plan)
            yield from check_options("vLLM", vllm_options(plan), schema, facts, version=version)
            if plan.draft is not None and variant in WITH_DRAFTS:
                yield from check_draft("vLLM", plan, schema)
            yield from check_input_limit(plan)
            return
        if variant != "tgi-neuronx":
            yield from check_input_limit(plan, variant)
        yield from check_environment(plan, environment(plan))
        if variant == HF_VLLM:
            schema = serve_schema(plan.container.version)
            taken = {**serve_planned(plan), "port": str(PORT)}
            yield from check_engine_options(plan, taken, requested_names(plan, schema))
            yield from check_serve(serve_options(plan), schema)
            return
        yield from check_unnamed(plan, variant)
        spelled = {name: spell(variant, name) for name, _ in plan.engine_options}
        yield from check_engine_options(plan, planned(plan), spelled)
        if variant == "tgi-neuronx":
            schema = find_schema("neuronx-tgi", plan.container.engine_version)
            yield from check_names(settings(plan), schema, by_script=True)
        else:
            yield from check_keys(variant, settings(plan), lmi_schema(plan.container.release))

    def render(self, plan: Plan, artifacts: Artifacts) -> ServingConfig:  # noqa: ARG002
        """Return the configuration that the variant reads."""
        compiled = compiled_by(plan.container) if plan.compiler else ""
        if plan.container.variant in BY_COMMAND:
            config = launched(
                command(vllm_options(plan), schema_of(plan), version=plan.container.engine_version),
                compiled_env(plan, compiled),
            )
        elif compiled == "optimum":
            config = launched(serve_command(plan), compiled_env(plan, compiled), adapter=False)
        else:
            env = {**environment(plan), **compiled_env(plan, compiled)}
            config = ServingConfig(files=property_files(plan), env=env, port=PORT)
        if compiled in LAUNCHED:
            config = replace(config, files=(*config.files, *compiled_files(plan, compiled)))
        return replace(config, model_dir=model_dir(plan), draft_dir=draft_dir(plan))
