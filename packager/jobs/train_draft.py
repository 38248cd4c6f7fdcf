"""Training a draft head for a model, without building anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from packager.build.cache_policy import with_cache_healed
from packager.build.devices import gpus_for, refuse_missing_gpus, threads_for
from packager.build.running import run_with_tool
from packager.build.services import BuildServices, RunStep
from packager.core.devices import GpuWish
from packager.core.findings import errors_in
from packager.core.model import ModelFile, ModelFiles, ModelProfile
from packager.core.recipe import Step, StepOutcome
from packager.core.tool import ToolFacts
from packager.core.training import HeadTraining, Trained, TrainingReport, TrainingTexts
from packager.errors import PlanRejected, StepFailed
from packager.planning.drafts.training import (
    check_continuing,
    check_head,
    check_training,
    completed,
)
from packager.planning.profile import make_profile
from packager.techniques.drafts.training import (
    ANSWERING,
    TOOLS,
    Texts,
    answers_step,
    is_large,
    texts_of,
    training_gpu_use,
    training_step,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadTools:
    """Doers that only training needs."""

    read_report: Callable[[tuple[ModelFile, ...]], TrainingReport]
    read_head: Callable[[tuple[ModelFile, ...]], ModelFiles]  # headers of what a step left
    write: Callable[[tuple[ModelFile, ...]], None]  # to where the user wants it


def train_head(
    reference: str,
    texts: TrainingTexts,
    asked: HeadTraining,
    services: BuildServices,
    doers: HeadTools,
    *,
    continue_from: str | None = None,
    gpus: GpuWish = 0,
    threads: int | None = None,
) -> Trained:
    """Train a head for the model, or take it from the cache; hold it against the model.

    What can be refused from headers is refused before anything runs.
    """
    refuse_missing_gpus(gpus, services)
    model = services.find_model(reference)
    assert services.find_draft is not None
    head = services.find_draft(continue_from) if continue_from else None
    profile, findings = make_profile(model)
    if errors_in(findings):
        raise PlanRejected(findings)
    if head is not None:
        findings += tuple(check_continuing(asked, head))
    asked = completed(asked, profile, head)
    findings += tuple(check_training(asked, model, profile, head))
    if errors_in(findings):
        raise PlanRejected(findings)
    chosen = gpus_for(gpus, training_gpu_use(profile), services)
    at_once = threads_for(threads, services, is_large=is_large(profile))
    model = services.pin_files(model)
    head = services.pin_files(head) if head else None
    with services.run_steps() as run_step:

        def work() -> Trained:
            outcomes: list[StepOutcome] = []
            given = texts_of(texts)
            if asked.answers == "model":
                devices = (chosen, at_once)
                given = _answered(
                    model, profile, given, asked, services, run_step, outcomes, devices
                )

            def describe(tool: ToolFacts) -> Step:
                return training_step(
                    model, profile, given, asked, head, tool, gpus=chosen, threads=at_once
                )

            trainer = TOOLS[asked.trainer]
            _, outcome = run_with_tool(describe, trainer, services, run_step, gpus=chosen)
            files = outcome.files
            made = doers.read_head(files)
            found = tuple(check_head(asked, made, model, profile))
            if wrong := errors_in(found):
                raise StepFailed(
                    f"the head that was trained does not fit the model: {wrong[0].message}",
                    hint="this is a bug of the trainer: report it with the options you gave",
                )
            report = doers.read_report(files)
            doers.write(files)
            return Trained(
                asked=asked,
                report=report,
                outcomes=(*outcomes, outcome),
                weight_bytes=made.weight_bytes,
                findings=(*findings, *found),
            )

        return with_cache_healed(services, work)


def _answered(
    model: ModelFiles,
    profile: ModelProfile,
    texts: Texts,
    asked: HeadTraining,
    services: BuildServices,
    run_step: RunStep,
    outcomes: list[StepOutcome],
    devices: tuple[int, int],
) -> Texts:
    """Have the model answer the texts: a head is to foresee what the model says, not others."""

    gpus, threads = devices

    def describe(tool: ToolFacts) -> Step:
        return answers_step(model, profile, texts, asked, tool, gpus=gpus, threads=threads)

    _, outcome = run_with_tool(describe, ANSWERING, services, run_step, gpus=gpus)
    outcomes.append(outcome)
    answered = services.pin_files(replace(model, files=outcome.files)).files
    return replace(texts, files=answered)
