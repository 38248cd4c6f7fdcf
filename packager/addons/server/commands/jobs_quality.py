"""What quantizing cost the model of an optimization job, read from where the result was written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, get_args

from packager.cli.wiring.builds import services_for
from packager.cli.wiring.settings import settings_for
from packager.cli.wiring.texts import evaluation_texts
from packager.core.errors import NotFound
from packager.core.quality import (
    EVALUATION_SAMPLES,
    EVALUATION_TOKENS,
    TOOL,
    Evaluation,
    QualityReport,
)
from packager.core.record import BuildRecord
from packager.core.request import parse_request
from packager.core.samples import DEFAULT
from packager.core.tool import Build
from packager.estimate.sizing.schemes import NONE
from packager.optimize.evaluate.run import evaluate
from packager.pipeline.resolve import find_samples

_INSTALL = f"install it with `packager tools install {TOOL}`"


def job_quality(
    fields: Mapping[str, Any],
    record: BuildRecord,
    output: str,
    *,
    within_s: float,
    on_event: Callable[[Any], None],
) -> QualityReport | None:
    """Compare the model with the job's result; None where it is not quantized.

    A build that evaluated has compared them already.  Raises what the comparison does, and where
    it takes longer than `within_s`.
    """
    request = parse_request(fields)
    if record.quality is not None:
        return record.quality
    if request.quantizing in (None, NONE):
        return None
    asked = Evaluation(
        max_tokens=request.evaluate_tokens or EVALUATION_TOKENS, seed=request.evaluate_seed or 0
    )
    settings = replace(settings_for(request), on_event=on_event)
    services = services_for(settings)
    calibration = find_samples(request, services)
    count = request.evaluate_samples or EVALUATION_SAMPLES
    texts = evaluation_texts(request.evaluation or DEFAULT, count, asked.seed, calibration)
    if settings.executor == "local" and not any(
        services.executor.find_tool(TOOL, build).installed for build in get_args(Build)
    ):  # with weights from a cache, no step has installed this tool
        raise NotFound(f"the tool {TOOL!r} is not installed here", hint=_INSTALL)
    return evaluate(
        request.model,
        output,
        texts,
        asked,
        services,
        services.read_quality,
        gpus=request.gpus,
        threads=request.threads,
        within_s=within_s,
    ).report
