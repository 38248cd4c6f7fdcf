"""The TGI family: Hugging Face's Text Generation Inference; see `render` for its variables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from packager.core.artifact import Artifacts
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.serving import ServingConfig
from packager.core.stopping import Stopping
from packager.core.techniques import cache_option
from packager.core.traits import EngineTraits
from packager.engines.adapters import adapter_traits
from packager.engines.rules import plan_facts
from packager.engines.sagemaker import check_environment
from packager.engines.schema import check_version
from packager.engines.shared import (
    check_engine_options,
    check_layout_options,
    check_one_stage,
    check_unnamed,
    medusa_dirs,
    model_dir,
)
from packager.engines.supported_models import check_listed
from packager.engines.tgi.attention import check_cache
from packager.engines.tgi.check import check_draft, check_format, check_settings, check_shards
from packager.engines.tgi.render import (
    PORT,
    QUANTIZED_DTYPES,
    env_name,
    has_medusa,
    is_for_sagemaker,
    medusa_file,
    planned,
    schema_of,
    settings,
)
from packager.engines.traits import engine_traits

STOPPING = Stopping(
    drain_s=90,  # the launcher's default
    option="GRACEFUL_TERMINATION_TIMEOUT",
    source="text-generation-inference at db931fcf: launcher/src/main.rs",
)

LAYOUT = {
    "CUDA_VISIBLE_DEVICES": "use --tp-degree, or another instance",
    "NVIDIA_VISIBLE_DEVICES": "use --tp-degree, or another instance",
}


class TgiFamily:
    """Describes images whose server is TGI, on GPUs."""

    name = "tgi"

    def traits(self, container: ContainerFacts) -> EngineTraits:
        """Return what TGI's launcher can start: one copy, with every head on one shard alone."""
        return replace(
            engine_traits(container),
            awq_format="awq",
            who=f"TGI {container.engine_version}".strip(),
            copies_kv_heads=False,
            answers_as="directory",
            stopping=STOPPING,
            quantized_dtypes=QUANTIZED_DTYPES,
            adapters=adapter_traits(container.engine, container.engine_version),
        )

    def check(self, plan: Plan) -> Iterator[Finding]:
        """Yield findings for settings that launcher, router or shards refuse or do not enforce."""
        yield from check_one_stage(plan, "TGI")
        yield from check_format(plan)
        yield from check_listed("TGI", plan)
        yield from check_draft(plan)
        spelled = {name: env_name(name) for name, _ in plan.engine_options}
        yield from check_engine_options(plan, planned(plan), spelled)
        yield from check_layout_options(spelled, LAYOUT)
        env, facts = settings(plan), plan_facts(plan)
        version = plan.container.engine_version
        yield from check_version("TGI", version, schema_of(plan))
        yield from check_settings(
            env, version, facts, by_script=is_for_sagemaker(plan), drafts=plan.draft is not None
        )
        option = cache_option(plan.quantization)
        yield from check_cache(env, facts, medusa=has_medusa(plan), option=option)
        yield from check_shards(plan)
        yield from check_environment(plan, env)
        message = (
            f"TGI fills its batches by the tokens that fit in memory; "
            f"max_batch {plan.shape.max_batch} is planned with, not enforced"
        )
        yield Finding("note", "batch-not-enforced", message, "set MAX_BATCH_SIZE to enforce it")
        yield from check_unnamed(plan, "TGI")

    def render(self, plan: Plan, artifacts: Artifacts) -> ServingConfig:  # noqa: ARG002
        """Return the environment and, for Medusa, the config.json that joins heads and model."""
        env = settings(plan)
        if plan.weights == "baked":
            env = {"HF_HUB_OFFLINE": "1", "USAGE_STATS": "off", **env}
        if not has_medusa(plan):
            return ServingConfig(env=env, port=PORT, model_dir=model_dir(plan))
        heads, model = medusa_dirs(plan)
        return ServingConfig(
            files=(medusa_file(plan, heads),),
            env=env,
            port=PORT,
            model_dir=model,
            draft_dir=heads,
        )
