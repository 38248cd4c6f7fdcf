"""Measuring what quantizing cost, and refusing what cost too much."""

from __future__ import annotations

from dataclasses import replace

from packager.build.devices import gpus_for, threads_for
from packager.build.running import run_with_tool
from packager.build.services import BuildServices, RunStep
from packager.build.stages import Planned
from packager.core.artifact import Artifacts
from packager.core.devices import GpuWish
from packager.core.facts import Facts
from packager.core.model import ModelFile, ModelFiles
from packager.core.quality import EVALUATION_TOKENS, STEP, TOOL, Evaluation, Limits, QualityReport
from packager.core.recipe import Recipe, Step, StepForecast, StepOutcome
from packager.core.samples import Samples
from packager.core.tool import ToolFacts
from packager.errors import QualityRejected
from packager.techniques.evaluation import (
    evaluation_effort,
    evaluation_gpu_use,
    evaluation_step,
    is_large,
)


def evaluated(
    planned: Planned, artifacts: Artifacts, services: BuildServices, run_step: RunStep
) -> tuple[Planned, Artifacts, QualityReport]:
    """Measure what the recipe did to the model; raise when that is more than was allowed.

    It is no step of the recipe: what it compares has no digests before that has run.
    """
    facts, request = planned.facts, planned.facts.request
    assert facts.evaluation is not None
    asked = Evaluation(
        max_tokens=request.evaluate_tokens or EVALUATION_TOKENS, seed=request.evaluate_seed or 0
    )
    step, outcome = run_evaluation(
        facts.model,
        artifacts.model,
        facts.evaluation,
        asked,
        services,
        run_step,
        gpus=request.gpus,
        threads=request.threads,
    )
    report = services.read_quality(outcome.files)
    limits = Limits(
        max_kld=request.max_kld,
        min_top1=request.min_top1,
        max_ppl_increase=request.max_ppl_increase,
    )
    if broken := list(limits.broken_by(report)):
        raise QualityRejected(
            f"quantizing cost more quality than allowed: {'; '.join(broken)}",
            hint="leave modules out with --quantize-ignore, choose another method, or allow more",
            quality=report,
        )
    done = {step.name: outcome}
    name = (step.name,)
    return (
        replace(planned, recipe=Recipe((*planned.recipe.steps, step))),
        replace(
            artifacts,
            ran=artifacts.ran + (() if outcome.reused else name),
            reused=artifacts.reused + (name if outcome.reused else ()),
            outcomes={**artifacts.outcomes, **done},
        ),
        report,
    )


def run_evaluation(
    base: ModelFiles,
    candidate: tuple[ModelFile, ...],
    samples: Samples,
    asked: Evaluation,
    services: BuildServices,
    run_step: RunStep,
    *,
    gpus: GpuWish = None,
    threads: int | None = None,
) -> tuple[Step, StepOutcome]:
    """Compare two checkpoints, or take the figures from the cache."""
    chosen = gpus_for(gpus, evaluation_gpu_use(base), services)
    at_once = threads_for(threads, services, is_large=is_large(base))

    def describe(tool: ToolFacts) -> Step:
        return evaluation_step(base, candidate, samples, asked, tool, gpus=chosen, threads=at_once)

    return run_with_tool(describe, TOOL, services, run_step, gpus=chosen)


def foreseen_evaluation(facts: Facts) -> list[tuple[StepForecast, Step]]:
    """What is known of measuring before there is something to measure."""
    texts, request = facts.evaluation, facts.request
    if texts is None:
        return []
    reason = f"its input is the quantized model; {len(texts.samples)} texts"
    asked = Evaluation(max_tokens=request.evaluate_tokens or EVALUATION_TOKENS)
    needs = evaluation_effort(facts.model, texts, asked)
    env = {} if is_large(facts.model) else {"OMP_NUM_THREADS": "1"}
    use = evaluation_gpu_use(facts.model)
    step = Step(name=STEP, tool=TOOL, gives="quality", needs=needs, env=env, gpu_use=use)
    return [(StepForecast(step=STEP, tool=TOOL, state="unknown", reason=reason), step)]
