"""Steps of the quantizer as a build plans them for small checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from packager.core.facts import Facts
from packager.core.instance import Instance
from packager.core.samples import Sample, Samples
from packager.core.tool import ToolFacts
from packager.engines.vllm.family import VllmFamily
from packager.estimate.sizing.left_out import quantized_modules
from packager.models.local import LocalSource
from packager.models.reference import parse_model_reference
from packager.optimize.quantize.llmcompressor import LlmCompressorQuantizer
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.services import PlannerServices
from tests.support.doubles.containers import with_traits
from tests.support.headers import facts_of

TOOL = ToolFacts(name="llmcompressor", worker="a" * 64, requirements="b" * 64, packages={})
TEXTS = Samples(source="texts", samples=tuple(Sample(text=f"text {n}") for n in range(8)))


def planned_facts(
    checkpoint: Path,
    asked: str,
    instance: str | Instance = "ml.p5.48xlarge",
    *,
    left_out: tuple[str, ...] | None = None,
    layers: tuple[str, ...] | None = None,
    engine_version: str = "",
) -> Facts:
    """Gather what a plan needs to quantize a checkpoint, but for the modules that are left out.

    Without an engine version it is the catalog's newest image.
    """
    files = LocalSource().facts(parse_model_reference(str(checkpoint)))
    facts = facts_of(
        files,
        instance,
        quantize=asked,
        quantize_ignore=left_out,
        quantize_layer=layers,
        try_untested=True,
    )
    container = facts.container
    if engine_version:
        container = with_traits(replace(container, engine_version=engine_version))
    return replace(facts, container=container, samples=TEXTS, tools={"llmcompressor": TOOL})


def planned_parameters(
    checkpoint: Path,
    asked: str,
    left_out: tuple[str, ...] | None = None,
    *,
    instance: str = "ml.p5.48xlarge",
    layers: tuple[str, ...] | None = None,
    engine_version: str = "",
) -> dict[str, Any]:
    """Return what the worker is told to do; raises `PlanRejected`."""
    facts = planned_facts(
        checkpoint,
        asked,
        instance,
        left_out=left_out,
        layers=layers,
        engine_version=engine_version,
    )
    quantizer = LlmCompressorQuantizer()
    step = quantizer.step(
        facts, make_plan(facts, PlannerServices(family=VllmFamily(), quantizer=quantizer))
    )
    return {**step.parameters, "memory_bytes": 1}


def planned_modules(checkpoint: Path, ignore: Iterable[str]) -> set[str]:
    """Return the modules that a plan counts as quantized, by what the step is told to ignore."""
    files = LocalSource().facts(parse_model_reference(str(checkpoint)))
    return {name for name, _ in quantized_modules(files, tuple(ignore))}
