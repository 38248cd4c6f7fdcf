"""A compiler that notes which model it was given, where an engine's compiler would leave code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from packager.core.facts import Facts
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.ports import Compiler
from packager.core.recipe import Estimate, Step, StepInput
from packager.core.serving import ServingConfig
from packager.optimize.compile.vllm_cache import VllmCacheCompiler

TOOL = Path(__file__).parent / "graph-notes"  # its entry point is in the group packager.tools


class GraphNotesCompiler(Compiler):
    """Describes runs of the tool `graph-notes`."""

    name = "graph_notes"
    tool = "graph-notes"

    def check(self, facts: Facts, plan: Plan) -> Iterable[Finding]:
        """Refuse what the tool cannot do."""
        if plan.draft:
            message = "graph_notes compiles no draft models"
            yield Finding("error", "compile-unsupported", message, "use --draft none")

    def step(
        self, facts: Facts, plan: Plan, serving: ServingConfig, inputs: Mapping[str, StepInput]
    ) -> Step:
        """Describe the run, with everything in the key that decides the result."""
        with_ours = replace(facts, tools={**facts.tools, "vllm-cache": facts.tools[self.tool]})
        keyed = VllmCacheCompiler().step(with_ours, plan, serving, inputs)
        return Step(
            name="compile",
            tool=self.tool,
            gives="compiled",
            parameters={"tp_degree": plan.split.tp_degree},
            inputs={"model": inputs["model"]},
            env=keyed.env,
            key=keyed.key,
            needs=Estimate(seconds=1.0),
        )
