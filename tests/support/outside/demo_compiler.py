"""A compiler of another package: what vLLM's would do, with a tool that only copies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.ports import Compiler
from packager.core.recipe import Step, StepInput
from packager.core.serving import ServingConfig
from packager.optimize.compile.vllm_cache import VllmCacheCompiler


class DemoCompiler(Compiler):
    """Copies the model beside itself, under the key of a real compilation."""

    name = "demo_compiler"
    tool = "demo-tool"

    def check(self, facts: Facts, plan: Plan) -> Iterable[Finding]:
        """Have nothing against what vLLM's has nothing against."""
        return VllmCacheCompiler().check(facts, plan)

    def step(
        self, facts: Facts, plan: Plan, serving: ServingConfig, inputs: Mapping[str, StepInput]
    ) -> Step:
        """Describe the run."""
        ours = replace(facts, tools={"vllm-cache": facts.tools[self.tool]})
        step = VllmCacheCompiler().step(ours, plan, serving, inputs)
        return replace(
            step,
            tool=self.tool,
            parameters={"do": "copy"},
            inputs={"model": inputs["model"]},
            image=None,
            places=MappingProxyType({}),
        )
