"""Measurements of a tune as a benchmark has them, so that one report shows both.

The figures of a candidate under a load are those of its middle round by throughput; its rounds
have their own figures beside them, which intervals are computed from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from packager.addons.bench.compare import compare
from packager.addons.bench.pareto import pareto
from packager.addons.bench.prices import prices_of
from packager.addons.bench.tune.candidates import Field, TuneCandidate
from packager.addons.bench.tune.journal import Built, Event, Rated, TuneJournal
from packager.addons.bench.tune.score import TOKENS
from packager.addons.bench.tune.session import Race, failures_in
from packager.core.bench import (
    BenchLoad,
    BenchReport,
    BenchVariant,
    BenchWorkload,
    Predicted,
    Prices,
)
from packager.core.bench_setup import BenchSetup
from packager.core.version import __version__
from packager.core.workload import Workload

MIDDLE = "figures of a load are those of its middle round by tokens/s"

FOUND = (
    "packager tune found {!r} the best, by all rounds; a candidate that dropped out was measured "
    "in fewer"
)


def bench_report(
    field: Field,
    race: Race,
    journal: TuneJournal,
    *,
    workload: Workload,
    machine: str,
    data: str = "",
    adapters: str = "",
    command: str = "",
    best: str | None = None,
) -> BenchReport:
    """Return all measurements of a tune; the request as it is comes first, as the one compared."""
    variants = tuple(_variant(one, race, journal.events) for one in field.candidates)
    return BenchReport(
        packager_version=__version__,
        measured=journal.header.started,
        machine=machine,
        workload=BenchWorkload(
            name=workload.name,
            input_tokens=workload.input_tokens,
            output_tokens=workload.output_tokens,
            data=data,
            seed=race.seed,
            adapters=adapters,
        ),
        limits=race.limits,
        rounds=race.rounds,
        variants=variants,
        compared=compare(variants),
        pareto=pareto(variants),
        notes=(MIDDLE, *((FOUND.format(best),) if best else ())),
        command=command,
    )


def _variant(candidate: TuneCandidate, race: Race, events: Sequence[Event]) -> BenchVariant:
    mine = [
        one for one in events if isinstance(one, Built | Rated) and one.candidate == candidate.id
    ]
    built = next((one for one in reversed(mine) if isinstance(one, Built)), None)
    rated = [one for one in mine if isinstance(one, Rated)]
    failure = failures_in(events).get(candidate.id)
    return BenchVariant(
        name=candidate.name,
        setup=setup_of(candidate, built.digest if built else ""),
        loads=tuple(_loads(rated, candidate, race)),
        quality=built.quality if built else None,
        start_s=next((one.start_s for one in rated if one.start_s is not None), None),
        failure=failure.reason if failure else "",
    )


def setup_of(candidate: TuneCandidate, digest: str) -> BenchSetup:
    """Return what a candidate is, as its plan says."""
    plan = candidate.plan
    container = plan.container
    return BenchSetup(
        model=plan.served_name,
        instance=plan.instance.name,
        tp_degree=plan.tp_degree,
        precision=plan.precision,
        quantization=" ".join(
            (candidate.request.quantize or "none", *(candidate.request.quantize_layer or ()))
        ),
        draft=plan.draft.kind if plan.draft else "none",
        engine=f"{container.engine} {container.engine_version}".strip(),
        digest=digest,
    )


def _loads(rated: Sequence[Rated], candidate: TuneCandidate, race: Race) -> Iterator[BenchLoad]:
    """Yield each load of a candidate once, with the figures of its middle round."""
    if not rated:
        return
    for rounds in zip(*(one.loads for one in rated), strict=True):
        by_speed = sorted(rounds, key=_tokens_s)
        middle = by_speed[(len(by_speed) - 1) // 2]
        update = {"rounds": tuple(one for load in rounds for one in load.rounds)}
        found = middle.model_copy(update=update)
        more = {"prices": _prices(found, race), "predicted": _predicted(found, candidate)}
        yield found.model_copy(update=more)


def _tokens_s(load: BenchLoad) -> float:
    metric = load.metrics.get(TOKENS)
    return metric.avg if metric else 0.0


def _prices(load: BenchLoad, race: Race) -> Prices | None:
    return prices_of(load, race.budget.usd_hour) if race.budget.usd_hour else None


def _predicted(load: BenchLoad, candidate: TuneCandidate) -> Predicted | None:
    prediction = candidate.prediction
    if prediction is None or load.concurrency != prediction.point.concurrency:
        return None
    return Predicted(
        ttft_ms=prediction.point.ttft_s * 1e3 or None,
        tpot_ms=prediction.point.tpot_s * 1e3,
        output_token_throughput=prediction.point.output_tokens_s,
        band=prediction.band,
    )
