"""Comparing two checkpoints, without building anything."""

from __future__ import annotations

from dataclasses import dataclass

from packager.core.devices import GpuWish
from packager.core.quality import Evaluation, QualityReport
from packager.core.recipe import StepOutcome
from packager.core.samples import Samples
from packager.pipeline import Tools, refuse_missing_gpus, run_evaluation, with_cache_healed


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """The figures, and how they came."""

    report: QualityReport
    outcome: StepOutcome


def evaluate(
    base: str,
    candidate: str,
    samples: Samples,
    asked: Evaluation,
    tools: Tools,
    *,
    gpus: GpuWish = None,
    threads: int | None = None,
) -> Evaluated:
    """Compare `candidate` with `base`, each named as for a build."""
    refuse_missing_gpus(gpus, tools)
    ours = tools.pin_files(tools.find_model(base))
    theirs = tools.pin_files(tools.find_model(candidate))
    with tools.run_steps() as run_step:

        def work() -> Evaluated:
            _, outcome = run_evaluation(
                ours, theirs.files, samples, asked, tools, run_step, gpus=gpus, threads=threads
            )
            return Evaluated(report=tools.read_quality(outcome.files), outcome=outcome)

        return with_cache_healed(tools, work)
