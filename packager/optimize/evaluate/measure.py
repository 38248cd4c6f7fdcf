"""Running the step that compares a quantized model with its source."""

from __future__ import annotations

import math
from dataclasses import replace

from packager.core.devices import GpuRequest
from packager.core.model import ModelFile, ModelFiles
from packager.core.quality import TOOL, Evaluation
from packager.core.recipe import Step, StepOutcome
from packager.core.samples import Samples
from packager.core.tool import ToolFacts
from packager.optimize.evaluate.step import evaluation_gpu_use, evaluation_step, is_large
from packager.optimize.steps.devices import gpus_for, threads_for
from packager.optimize.steps.running import run_with_tool
from packager.optimize.steps.services import RunStep, StepServices


def run_evaluation(
    base: ModelFiles,
    candidate: tuple[ModelFile, ...],
    samples: Samples,
    asked: Evaluation,
    services: StepServices,
    run_step: RunStep,
    *,
    gpus: GpuRequest = None,
    threads: int | None = None,
    within_s: float = math.inf,
) -> tuple[Step, StepOutcome]:
    """Compare two checkpoints, or take the figures from the cache."""
    chosen = gpus_for(gpus, evaluation_gpu_use(base), services)
    at_once = threads_for(threads, services, is_large=is_large(base))

    def describe(tool: ToolFacts) -> Step:
        step = evaluation_step(base, candidate, samples, asked, tool, gpus=chosen, threads=at_once)
        return replace(step, timeout_s=min(step.timeout_s, within_s))

    return run_with_tool(describe, TOOL, services, run_step, gpus=chosen)
