"""Comparing two checkpoints, without building anything."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from packager.core.devices import GpuRequest
from packager.core.model import ModelFile
from packager.core.quality import Evaluation, QualityReport
from packager.core.recipe import StepOutcome
from packager.core.samples import Samples
from packager.optimize.evaluate.measure import run_evaluation
from packager.optimize.steps.devices import refuse_missing_gpus
from packager.optimize.steps.running import with_cache_healed
from packager.optimize.steps.services import StepServices


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """The figures, and whether they came from the cache."""

    report: QualityReport
    outcome: StepOutcome


def evaluate(
    base: str,
    candidate: str,
    samples: Samples,
    asked: Evaluation,
    services: StepServices,
    read_quality: Callable[[tuple[ModelFile, ...]], QualityReport],
    *,
    gpus: GpuRequest = None,
    threads: int | None = None,
    within_s: float = math.inf,
) -> Evaluated:
    """Compare `candidate` with `base`, each named as for a build.

    Raises `StepTimedOut` where that takes longer than `within_s`.
    """
    refuse_missing_gpus(gpus, services)
    ours = services.pin_files(services.find_model(services.parse_model_reference(base)))
    theirs = services.pin_files(services.find_model(services.parse_model_reference(candidate)))
    with services.run_steps() as run_step:

        def work() -> Evaluated:
            _, outcome = run_evaluation(
                ours, theirs.files, samples, asked, services, run_step,
                gpus=gpus, threads=threads, within_s=within_s,
            )  # fmt: skip
            return Evaluated(report=read_quality(outcome.files), outcome=outcome)

        return with_cache_healed(services, work)
