"""Training a draft head for a model, without building anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from packager.core.devices import GpuRequest
from packager.core.errors import PlanRejected, StepFailed
from packager.core.events import StagesEvent
from packager.core.findings import Finding, errors_in
from packager.core.model import ModelFile, ModelFiles, ModelProfile
from packager.core.recipe import Step, StepOutcome
from packager.core.tool import ToolFacts
from packager.core.training import (
    ANSWER,
    TRAIN,
    HeadTraining,
    Trained,
    TrainingReport,
    TrainingTexts,
)
from packager.models.architectures.profile import make_profile
from packager.optimize.drafts.train.steps import (
    ANSWERING,
    TOOLS,
    TrainingInputs,
    answers_step,
    is_large,
    texts_of,
    training_gpu_use,
    training_step,
)
from packager.optimize.drafts.training_checks import (
    check_continuing,
    check_head,
    check_training,
    completed,
)
from packager.optimize.steps.devices import gpus_for, refuse_missing_gpus, threads_for
from packager.optimize.steps.running import run_with_tool, with_cache_healed
from packager.optimize.steps.services import RunStep, StepServices


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadServices:
    """Services that only head training needs."""

    read_report: Callable[[tuple[ModelFile, ...]], TrainingReport]
    read_head: Callable[[tuple[ModelFile, ...]], ModelFiles]  # headers of a step's result
    write: Callable[[tuple[ModelFile, ...]], None]  # to where the user wants it


def train_head(
    reference: str,
    texts: TrainingTexts,
    asked: HeadTraining,
    services: StepServices,
    head_services: HeadServices,
    *,
    continue_from: str | None = None,
    gpus: GpuRequest = 0,
    threads: int | None = None,
) -> Trained:
    """Train a head for the model, or take it from the cache; check it against the model.

    Headers are checked before any step runs.
    """
    refuse_missing_gpus(gpus, services)
    answers = (ANSWER,) if asked.answers == "model" else ()
    services.on_event(StagesEvent(stages=("model", *answers, TRAIN)))
    model = services.find_model(services.parse_model_reference(reference))
    head = _head_at(continue_from, services) if continue_from else None
    profile, findings = make_profile(model)
    if errors_in(findings):
        raise PlanRejected(findings)
    if head is not None and asked.method != "mtp":
        findings += tuple(check_continuing(asked, head))
    asked = completed(asked, profile, head)
    values = services.read_head_values(head, model) if head else None
    findings += tuple(check_training(asked, model, profile, head, values))
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
            made = head_services.read_head(files)
            found = _check_trained(asked, made, model, profile, services)
            report = head_services.read_report(files)
            head_services.write(files)
            return Trained(
                asked=asked,
                report=report,
                outcomes=(*outcomes, outcome),
                weight_bytes=made.weight_bytes,
                findings=(*findings, *found),
            )

        return with_cache_healed(services, work)


def _check_trained(
    asked: HeadTraining,
    made: ModelFiles,
    model: ModelFiles,
    profile: ModelProfile,
    services: StepServices,
) -> tuple[Finding, ...]:
    """Check a head as a build with it would; raises where it does not fit the model."""
    values = services.read_head_values(made, model)
    found = tuple(check_head(asked, made, model, profile, values))
    if wrong := errors_in(found):
        raise StepFailed(
            f"the head that was trained does not fit the model: {wrong[0].message}",
            hint="this is a bug of the trainer: report it with the options you gave",
        )
    return found


def _head_at(reference: str, services: StepServices) -> ModelFiles:
    """Return the head from which training continues."""
    return services.find_draft(services.parse_model_reference(reference))


def _answered(
    model: ModelFiles,
    profile: ModelProfile,
    texts: TrainingInputs,
    asked: HeadTraining,
    services: StepServices,
    run_step: RunStep,
    outcomes: list[StepOutcome],
    devices: tuple[int, int],
) -> TrainingInputs:
    """Generate the model's answers to the texts: the training data of the head."""

    gpus, threads = devices

    def describe(tool: ToolFacts) -> Step:
        return answers_step(model, profile, texts, asked, tool, gpus=gpus, threads=threads)

    _, outcome = run_with_tool(describe, ANSWERING, services, run_step, gpus=gpus)
    outcomes.append(outcome)
    answered = services.pin_files(replace(model, files=outcome.files)).files
    return replace(texts, files=answered)
