"""The LMI family: AWS Large Model Inference; see `render` for how a plan becomes properties."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from packager.core.artifact import Artifacts
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.serving import RenderedFile, ServingConfig
from packager.core.stopping import Stopping
from packager.core.traits import EngineTraits
from packager.engines.compiled_start import with_compiled
from packager.engines.lmi import trtllm
from packager.engines.lmi.check import check_eagle, check_settings, check_unread, check_workers
from packager.engines.lmi.options import lmi_options
from packager.engines.lmi.render import (
    JSON_DRAFT_SINCE,
    LEGACY_DRAFTS,
    environment,
    fields_of,
    lmi_adapters,
    names_models,
    option_key,
    options_of,
    parser_key,
    planned,
    release_number,
    release_of,
    settings,
)
from packager.engines.prequantized import check_arrived
from packager.engines.rendering.check import check_properties
from packager.engines.rendering.environment import render_template
from packager.engines.rules import plan_facts
from packager.engines.sagemaker import check_environment
from packager.engines.schema import find_schema
from packager.engines.shared import (
    VLLM_LAYOUT,
    check_engine_options,
    check_input_limit,
    check_layout_options,
    check_one_stage,
    draft_dir,
    draft_unsupported,
    model_dir,
)
from packager.engines.supported_models import check_listed
from packager.engines.traits import engine_traits
from packager.engines.trtllm import ENGINE as TENSORRT
from packager.engines.vllm.check import check_draft, check_proven, check_requested_draft
from packager.engines.vllm.options import draft_files, schema_of
from packager.engines.vllm.traits import REASONING_PARSER, TOOL_PARSER, parsers_of

# DJL Serving closes every connection on SIGTERM, those of running requests included.
STOPPING = Stopping(
    drain_s=0,
    source="deepjavalibrary/djl-serving 0.36.0-lmi27-dlc: ServerGroups.closeAllChannels",
)

# Copies are LMI's own business, and a pipeline is refused by its own check.
LMI_LAYOUT = {
    **{name: hint for name, hint in VLLM_LAYOUT.items() if name != "pipeline-parallel-size"},
    "data-parallel-size": "use --tp-degree: LMI starts a server on each group of devices",
}


class LmiFamily:
    """Describes images whose server is DJL Serving, with vLLM or TensorRT-LLM, on GPUs."""

    name = "lmi"

    def traits(self, container: ContainerFacts) -> EngineTraits:
        """Return the layouts that LMI can start.

        DJL Serving loads the model once for each group of `tensor_parallel_degree` devices
        (ModelInfo.getLoadOnDevices), and each server sees its own group alone.
        """
        spreads = container.engine == "vllm" and "enable_expert_parallel" in fields_of(container)
        return replace(
            engine_traits(container),
            who=f"LMI {container.release or container.version}".strip(),
            workers=True,
            health_path="/ping",
            bakes_compile_caches=container.engine == "vllm",
            expert_parallel=spreads,
            answers_as="name" if names_models(container) else "nothing",
            tool_parsers=_parsers(container, TOOL_PARSER),
            reasoning_parsers=_parsers(container, REASONING_PARSER),
            stopping=STOPPING,
            adapters=lmi_adapters(container),
        )

    def check(self, plan: Plan) -> Iterator[Finding]:
        """Yield findings for settings that LMI silently ignores or refuses at start."""
        if plan.container.engine == TENSORRT:
            yield from trtllm.check(plan)
            return
        if plan.container.engine != "vllm":
            message = f"packager cannot configure LMI with {plan.container.engine}"
            yield Finding("error", "engine-not-rendered", message, "choose an LMI with vLLM")
            return
        yield from check_input_limit(plan)
        yield from check_one_stage(plan, "vLLM in LMI")
        schema, options = schema_of(plan), options_of(plan)
        if options.pass_through:
            yield from check_proven("vLLM", plan, schema)
        spelled = {name: option_key(name) for name, _ in plan.engine_options}
        bare = {
            name: key.removeprefix("option.").replace("_", "-") for name, key in spelled.items()
        }
        yield from check_layout_options(bare, LMI_LAYOUT)
        yield from check_engine_options(plan, planned(plan), spelled)
        yield from check_arrived("vLLM", plan)
        yield from check_listed("vLLM", plan)
        yield from check_workers(plan)
        if release_of(plan) >= JSON_DRAFT_SINCE:
            yield from check_draft("vLLM", plan, schema)
            yield from check_eagle(plan)
            yield from check_requested_draft("vLLM", plan, schema)
        elif plan.draft is not None and plan.draft.kind not in LEGACY_DRAFTS:
            hint = "choose a newer container version"
            yield from draft_unsupported(plan, f"LMI {release_of(plan)}", hint)
        version, facts = plan.container.engine_version, plan_facts(plan)
        yield from check_settings(settings(plan), options, facts, vllm_version=version)
        yield from check_unread(plan, options)
        if plan.weights == "mounted" and not plan.one_mount:
            message = "a serving.properties among the mounted files wins over what is planned here"
            hint = "mount the model's own files only"
            yield Finding("note", "mounted-file-wins", message, hint)
        if plan.weights == "mounted":
            yield from check_environment(plan, environment(plan))

    def render(self, plan: Plan, artifacts: Artifacts) -> ServingConfig:  # noqa: ARG002
        """Return serving.properties and the same values as environment variables."""
        meant = settings(plan)
        text = render_template("lmi/serving.properties.j2", properties=meant)
        path = f"{model_dir(plan)}/serving.properties"
        check_properties(path, text, meant)  # of the variables, too: they come from these values
        file = RenderedFile(path=path, data=text.encode("ascii"))
        config = ServingConfig(
            files=(
                *((file,) if plan.weights == "baked" or plan.one_mount else ()),
                *draft_files(plan),
            ),
            env=environment(plan),
            model_dir=model_dir(plan),
            draft_dir=draft_dir(plan),
        )
        return with_compiled(config, plan)


def _parsers(container: ContainerFacts, option: str) -> tuple[str, ...] | None:
    """Return the parsers of vLLM that this version of LMI applies to responses; () if none."""
    schema = find_schema("vllm", container.engine_version)
    if (
        container.engine != "vllm"
        or parser_key(option) not in lmi_options(schema, release_number(container)).types
    ):
        return ()
    return parsers_of(schema, option) if schema.is_for(container.engine_version) else None
