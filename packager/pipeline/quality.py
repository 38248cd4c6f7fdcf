"""Measuring what quantizing cost, and refusing what cost too much."""

from __future__ import annotations

from dataclasses import replace

from packager.core.errors import QualityRejected
from packager.core.facts import Facts
from packager.core.plan import Plan
from packager.core.quality import STEP, TOOL
from packager.core.recipe import CacheStatus, Step
from packager.optimize.evaluate.measure import run_evaluation
from packager.optimize.evaluate.step import evaluation_effort, evaluation_gpu_use, is_large
from packager.optimize.steps.services import RunStep
from packager.pipeline.services import BuildServices
from packager.pipeline.stages import Finished


def evaluated(finished: Finished, services: BuildServices, run_step: RunStep | None) -> Finished:
    """Measure the model's loss of quality; raises where it exceeds the request's limits.

    The step is described here, after the others ran: before that, its inputs have no digests.
    """
    if run_step is None:
        return finished
    planned, artifacts = finished.planned, finished.artifacts
    facts, plan = planned.facts, planned.plan
    assert facts.evaluation is not None
    quantized = [step.name for step in planned.recipe.steps if step.gives == "model"]
    step, outcome = run_evaluation(
        facts.model,
        artifacts.outcomes[quantized[-1]].files if quantized else artifacts.model,
        facts.evaluation,
        plan.evaluation,
        services,
        run_step,
        gpus=plan.step_gpus,
        threads=plan.step_threads,
    )
    report = services.read_quality(outcome.files)
    if broken := list(plan.limits.broken_by(report)):
        raise QualityRejected(
            f"quantizing cost more quality than allowed: {'; '.join(broken)}",
            hint="leave modules out with --quantize-ignore, choose another method, or allow more "
            "with --max-kld, --min-top1 or --max-ppl-increase",
            figures=report.model_dump(),
        )
    done = {step.name: outcome}
    name = (step.name,)
    return Finished(
        planned=replace(
            planned, recipe=replace(planned.recipe, steps=(*planned.recipe.steps, step))
        ),
        artifacts=replace(
            artifacts,
            ran=artifacts.ran + (() if outcome.reused else name),
            reused=artifacts.reused + (name if outcome.reused else ()),
            outcomes={**artifacts.outcomes, **done},
        ),
        quality=report,
    )


def planned_evaluation(facts: Facts, plan: Plan) -> list[tuple[CacheStatus, Step]]:
    """Return the evaluation's inputs that are known before it runs."""
    texts = facts.evaluation
    if texts is None:
        return []
    refused = plan.limits.words
    count = len(texts.samples)
    reason = f"its input is the quantized model; {count} texts; nothing is built with {refused}"
    needs = evaluation_effort(facts.model, texts, plan.evaluation)
    env = {} if is_large(facts.model) else {"OMP_NUM_THREADS": "1"}
    use = evaluation_gpu_use(facts.model)
    step = Step(name=STEP, tool=TOOL, gives="quality", needs=needs, env=env, gpu_use=use)
    return [(CacheStatus(step=STEP, tool=TOOL, state="unknown", reason=reason), step)]
