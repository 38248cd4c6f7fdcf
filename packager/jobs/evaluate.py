"""Comparing two checkpoints, without building anything."""

from __future__ import annotations

from dataclasses import dataclass

from packager.build.cache_policy import with_cache_healed
from packager.build.devices import refuse_missing_gpus
from packager.build.quality import run_evaluation
from packager.build.services import BuildServices
from packager.core.devices import GpuWish
from packager.core.quality import Evaluation, QualityReport
from packager.core.recipe import StepOutcome
from packager.core.samples import Samples


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
    services: BuildServices,
    *,
    gpus: GpuWish = None,
    threads: int | None = None,
) -> Evaluated:
    """Compare `candidate` with `base`, each named as for a build."""
    refuse_missing_gpus(gpus, services)
    ours = services.pin_files(services.find_model(base))
    theirs = services.pin_files(services.find_model(candidate))
    with services.run_steps() as run_step:

        def work() -> Evaluated:
            _, outcome = run_evaluation(
                ours, theirs.files, samples, asked, services, run_step, gpus=gpus, threads=threads
            )
            return Evaluated(report=services.read_quality(outcome.files), outcome=outcome)

        return with_cache_healed(services, work)
