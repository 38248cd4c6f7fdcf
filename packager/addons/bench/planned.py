"""What the plan of an image predicted for the loads that were measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from packager.addons.bench.tables import value
from packager.core.bench import BenchLoad, Predicted
from packager.core.errors import PackagerError
from packager.core.record import BuildRecord
from packager.core.workload import Workload
from packager.estimate.performance.predict import Prediction, predict, setup_of
from packager.pipeline import pipeline
from packager.pipeline.services import BuildServices


def predict_loads(
    record: BuildRecord, services: BuildServices, loads: Sequence[BenchLoad]
) -> Mapping[int, Predicted]:
    """Plan an image's request again and predict its loads; those of a rate are left out.

    Empty where the model is not here any more, or no figures of the devices are published.
    """
    closed = [load for load in loads if load.concurrency and not load.rate]
    workload = _workload_of(closed)
    if workload is None:
        return {}
    with suppress(PackagerError):
        plan = pipeline.plan(record.request, services).plan
        found = predict(
            setup_of(plan, services.accelerator_of(plan.instance)),
            workload,
            sorted({load.concurrency for load in closed if load.concurrency}),
        )
        return dict(_by_concurrency(found)) if found else {}
    return {}


def _by_concurrency(found: Prediction) -> list[tuple[int, Predicted]]:
    shows_first = found.bands is None or found.bands.ttft is not None
    return [
        (
            point.concurrency,
            Predicted(
                ttft_ms=round(1e3 * point.first_token_s, 3) if shows_first else None,
                tpot_ms=round(1e3 * point.tpot_s, 4),
                output_token_throughput=round(point.output_tokens_s, 3),
                band=found.widest,
            ),
        )
        for point in found.points
    ]


def _workload_of(loads: Sequence[BenchLoad]) -> Workload | None:
    """Return the mean lengths of the sent requests over all loads; None if uncounted."""
    prompts = [value(load, "input_sequence_length") for load in loads]
    answers = [value(load, "output_sequence_length") for load in loads]
    known = [(one, other) for one, other in zip(prompts, answers, strict=True) if one and other]
    if not known:
        return None
    return Workload(
        name="measured",
        input_tokens=max(1, round(sum(one for one, _ in known) / len(known))),
        output_tokens=max(1, round(sum(other for _, other in known) / len(known))),
    )
