"""The vLLM family: vLLM's own OpenAI-compatible server; `render` configures each image."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from packager.core.artifact import Artifacts
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.serving import ServingConfig
from packager.core.traits import EngineTraits
from packager.engines.adapters import adapter_traits
from packager.engines.capability import check_capability
from packager.engines.compiled_start import with_compiled
from packager.engines.prequantized import check_arrived
from packager.engines.rules import plan_facts
from packager.engines.sagemaker import check_environment
from packager.engines.schema import find_schema
from packager.engines.shared import (
    OFFLINE_ENV,
    VLLM_LAYOUT,
    check_engine_options,
    check_input_limit,
    check_layout_options,
    draft_dir,
    model_dir,
)
from packager.engines.supported_models import check_listed
from packager.engines.traits import engine_traits
from packager.engines.vllm.check import (
    check_draft,
    check_options,
    check_proven,
    check_requested_draft,
    check_sagemaker_env,
)
from packager.engines.vllm.options import draft_files, requested_names, schema_of
from packager.engines.vllm.pooling import (
    check_modules,
    check_template,
    pooling_files,
    pooling_tasks,
)
from packager.engines.vllm.render import (
    PORT,
    by_environment,
    command,
    compiled_env,
    launched,
    options,
    own_options,
    runtime_env,
    sagemaker_env,
)
from packager.engines.vllm.traits import native_options, server_traits


class VllmFamily:
    """Describes images whose server is vLLM itself, on GPUs or on the processor."""

    name = "vllm"

    def traits(self, container: ContainerFacts) -> EngineTraits:
        """Return what this vLLM can start; on the processor, one copy."""
        engine = replace(
            engine_traits(container),
            bakes_compile_caches=container.engine == "vllm",
            takes_port=True,
            health_path="/health",
            reads_buckets=container.engine == "vllm",
            adapters=adapter_traits(container.engine, container.engine_version),
        )
        schema = find_schema("vllm", container.engine_version)
        engine = replace(
            engine,
            native_options=native_options(schema),
            pools=pooling_tasks(schema, container.engine_version),
        )
        on_gpus = server_traits(container, schema, engine)
        if container.kind == "cpu":
            return replace(
                engine,
                who="vLLM for processors",
                tool_parsers=on_gpus.tool_parsers,
                reasoning_parsers=on_gpus.reasoning_parsers,
                stopping=on_gpus.stopping,
            )
        return on_gpus

    def check(self, plan: Plan) -> Iterator[Finding]:
        """Yield findings for settings that the server refuses, ignores or does not enforce."""
        if plan.profile.pooling is None:
            yield from check_input_limit(plan)
        yield from check_modules("vLLM", plan)
        yield from check_template("vLLM", plan)
        schema = schema_of(plan)
        yield from check_proven("vLLM", plan, schema)
        yield from check_layout_options(requested_names(plan, schema), VLLM_LAYOUT)
        yield from check_engine_options(plan, own_options(plan), requested_names(plan, schema))
        version, facts = plan.container.engine_version, plan_facts(plan)
        yield from check_options("vLLM", options(plan), schema, facts, version=version)
        yield from check_capability("vLLM", "vllm", version, options(plan), facts)
        yield from check_draft("vLLM", plan, schema)
        yield from check_arrived("vLLM", plan)
        yield from check_listed("vLLM", plan)
        yield from check_requested_draft("vLLM", plan, schema)
        if by_environment(plan):
            version = plan.container.engine_version
            env = sagemaker_env(options(plan), version, schema)
            yield from check_sagemaker_env(options(plan), version, schema)
            yield from check_environment(plan, {**OFFLINE_ENV, **env})

    def render(self, plan: Plan, artifacts: Artifacts) -> ServingConfig:  # noqa: ARG002
        """Return variables, or the launcher with its command and the adapter for other schemas."""
        if by_environment(plan):
            version = plan.container.engine_version
            env = {**sagemaker_env(options(plan), version, schema_of(plan)), **runtime_env(plan)}
            config = with_compiled(ServingConfig(env={**OFFLINE_ENV, **env}, port=PORT), plan)
        else:
            config = launched(
                command(options(plan), schema_of(plan), version=plan.container.engine_version),
                {**compiled_env(plan), **runtime_env(plan)},
                compiled=bool(plan.compiler),
                on_processor=plan.instance.kind == "cpu",
                pools=plan.profile.pooling is not None,
            )
        return replace(
            config,
            files=(*config.files, *draft_files(plan), *pooling_files(plan, options(plan))),
            model_dir=model_dir(plan),
            draft_dir=draft_dir(plan),
        )
