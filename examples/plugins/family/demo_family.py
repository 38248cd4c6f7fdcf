"""Serving family `demo`: a server that is configured by three variables."""

from __future__ import annotations

from collections.abc import Iterator

from packager.core.artifact import Artifacts
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.serving import ServingConfig
from packager.core.traits import EngineTraits
from packager.engines.shared import check_engine_options, model_dir


class DemoFamily:
    """Describes images whose server is Demo."""

    name = "demo"

    def traits(self, container: ContainerFacts) -> EngineTraits:
        """Return what Demo can start: stages of a pipeline, and one copy."""
        return EngineTraits(
            who=f"Demo {container.engine_version}",
            pipeline=True,
            when_full="more are refused with status 503",
        )

    def check(self, plan: Plan) -> Iterator[Finding]:
        """Refuse what Demo has no setting for."""
        asked = {name: name.upper().replace("-", "_") for name, _ in plan.engine_options}
        yield from check_engine_options(plan, settings(plan), asked)
        if plan.draft is not None:
            yield Finding("error", "draft-unsupported", "Demo has no speculation", "leave it out")

    def render(self, plan: Plan, artifacts: Artifacts) -> ServingConfig:
        """Return the environment."""
        asked = {name.upper().replace("-", "_"): value for name, value in plan.engine_options}
        env = {**settings(plan), **asked}
        return ServingConfig(env=env, port=8080, model_dir=model_dir(plan))


def settings(plan: Plan) -> dict[str, str]:
    """Spell the plan in Demo's variables."""
    return {
        "DEMO_MODEL": model_dir(plan),
        "DEMO_SPLIT": f"{plan.tp_degree}x{plan.pp_degree}",
        "DEMO_LENGTH": str(plan.shape.max_total_tokens),
    }
