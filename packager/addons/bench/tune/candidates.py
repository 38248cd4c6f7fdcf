"""Candidates: planned, without doubles, without the hopeless, the most promising first.

A candidate is hopeless when the best that its prediction leaves possible is worse than the worst
that the leader's leaves possible.  Both bands are taken whole: a prediction of 100 tokens/s within
±60 % and one of 350 within ±60 % overlap, and both are measured.  What cannot be predicted, what
the user named, and the request as it is are always measured.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal

from packager.addons.bench.tune.space import Variation, request_with
from packager.core.catalog import Accelerator
from packager.core.errors import PackagerError, PlanRejected, UsageError
from packager.core.findings import errors_in
from packager.core.instance import Instance
from packager.core.measurement import MeasuredRun
from packager.core.plan import Plan
from packager.core.request import BuildRequest
from packager.core.workload import Workload
from packager.estimate.performance.calibration import predict_measured
from packager.estimate.performance.measured import NOT_CORRECTED, measured_points, telling
from packager.estimate.performance.predict import Point, setup_of
from packager.estimate.performance.presets import Goal

PlanRequest = Callable[[BuildRequest], Plan]

_LONGEST_REASON = 300

# Fields of a plan that do not distinguish builds of one model for one machine.
_BESIDE = frozenset(
    {"instance", "budget", "findings", "rejected", "containers", "workload"}
    # what the request says of the steps: `identity_of` takes what counts from the request itself
    | {"base", "layers", "quantizing", "evaluation", "limits", "step_gpus", "step_threads"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidatePrediction:
    """What is predicted of a candidate under the load that it will be measured with."""

    point: Point
    band: float  # relative: the figures may be off by this share
    is_corrected: bool = False  # by measurements of the plan
    others: tuple[str, ...] = ()  # why measurements do not apply to it

    def worth(self, goal: Goal) -> float:
        """Return the figure that the goal maximizes: answers a second of one user, or tokens/s."""
        return 1 / self.point.latency_s if goal == "latency" else self.point.output_tokens_s


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneCandidate:
    """A request that can be built, and what is predicted of it."""

    id: str  # short digest of what would be built: the same in every run
    name: str  # the options that ask for it, for people
    request: BuildRequest
    plan: Plan
    prediction: CandidatePrediction | None = None  # None: no prediction
    is_kept: bool = False  # whatever is predicted: the request as it is, and what was named


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A candidate that is not measured, and why."""

    name: str
    why: str  # one line
    kind: Literal["refused", "same", "hopeless"]  # by rules; as another's build; by prediction
    is_asked: bool = False  # by the user: report it at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """What will be measured, the most promising first, and what will not."""

    candidates: tuple[TuneCandidate, ...]
    dropped: tuple[Dropped, ...] = ()


def make_field(
    base: BuildRequest,
    varied: Sequence[Variation],
    plan_request: PlanRequest,
    predict: Callable[[Plan], CandidatePrediction | None],
    goal: Goal,
) -> Field:
    """Plan every variation of a request; raise what the first refusal was where none works."""
    found: dict[str, TuneCandidate] = {}
    dropped: list[Dropped] = []
    refusal: PackagerError | None = None
    for variation in varied:
        name = variation.name
        try:
            request = request_with(base, variation.changes)
            plan = plan_request(request)
        except (PlanRejected, UsageError) as error:
            if isinstance(error, UsageError) and (variation.is_asked or variation.is_spelled):
                raise _named_wrongly(name, error) from error
            refusal = refusal or error
            asked = variation.is_asked
            dropped.append(Dropped(name=name, why=_reason(error), kind="refused", is_asked=asked))
            continue
        identity = identity_of(plan, request)
        if identity in found:
            same = found[identity]
            if variation.is_asked and not same.is_kept:
                found[identity] = replace(same, is_kept=True)
            dropped.append(Dropped(name=name, why=f"the same build as: {same.name}", kind="same"))
            continue
        found[identity] = TuneCandidate(
            id=identity,
            name=name,
            request=request,
            plan=plan,
            prediction=predict(plan),
            is_kept=variation.is_asked or not variation.changes,
        )
    if not found:
        if refusal is not None:
            raise refusal
        raise UsageError("nothing is left to try", hint="name a request with --try")
    kept, hopeless = prune(tuple(found.values()), goal)
    return Field(candidates=in_order(kept, goal), dropped=(*dropped, *hopeless))


def predictor_for(
    accelerator_of: Callable[[Instance], Accelerator],
    request: BuildRequest,
    workload: Workload,
    concurrency: int,
    measured: Sequence[MeasuredRun] = (),
) -> Callable[[Plan], CandidatePrediction | None]:
    """Return a function that predicts a plan under a load; None if impossible.

    Each prediction is corrected by those of the `measured` runs that apply to its plan.
    """
    known_as = (request.model,)

    def predict(plan: Plan) -> CandidatePrediction | None:
        setup = setup_of(plan, accelerator_of(plan.instance))
        applicable = telling(
            plan,
            setup,
            measured,
            known_as=known_as,
            other_format=plan.quantization is not None and request.quantize is None,
        )
        points = measured_points(plan, setup, workload, applicable.runs, known_as=known_as)
        prediction = predict_measured(setup, workload, (concurrency,), points)
        if prediction is None:
            return None
        band = prediction.band_at(concurrency) if points else prediction.widest
        return CandidatePrediction(
            point=prediction.points[0],
            band=band,
            is_corrected=bool(points),
            others=applicable.others,
        )

    return predict


def check_measured(measured: Sequence[MeasuredRun], field: Field) -> None:
    """Raise `UsageError` where no measurement applies to any of the candidates."""
    predictions = [one.prediction for one in field.candidates if one.prediction]
    if measured and predictions and not any(one.is_corrected for one in predictions):
        reason = next((one.others[0] for one in predictions if one.others), NOT_CORRECTED)
        raise UsageError(
            f"--measured applies to none of the {len(predictions)} candidates: "
            f"{reason.removeprefix(NOT_CORRECTED)}",
            hint="measure the model that is tuned, or leave the option out",
        )


def prune(
    candidates: Sequence[TuneCandidate], goal: Goal
) -> tuple[tuple[TuneCandidate, ...], tuple[Dropped, ...]]:
    """Drop the candidates that the leader beats whatever the bands hide."""
    sure = [
        (one.prediction.worth(goal) * max(0.0, 1 - one.prediction.band), one)
        for one in candidates
        if one.prediction
    ]
    if not sure:
        return tuple(candidates), ()
    floor, leader = max(sure, key=lambda pair: pair[0])
    kept: list[TuneCandidate] = []
    hopeless: list[Dropped] = []
    for one in candidates:
        predicted = one.prediction
        if (
            predicted is None
            or one.is_kept
            or predicted.worth(goal) * (1 + predicted.band) >= floor
        ):
            kept.append(one)
            continue
        assert leader.prediction is not None
        share = predicted.worth(goal) / leader.prediction.worth(goal)
        why = (
            f"predicted at {share:.2f} of {leader.name!r}: beyond both bands, "
            f"±{predicted.band:.0%} and ±{leader.prediction.band:.0%}"
        )
        hopeless.append(Dropped(name=one.name, why=why, kind="hopeless"))
    return tuple(kept), tuple(hopeless)


def in_order(candidates: Sequence[TuneCandidate], goal: Goal) -> tuple[TuneCandidate, ...]:
    """Order by prediction, the unchanged request first; unpredicted ones keep their order."""
    first, *others = candidates

    def worth(one: TuneCandidate) -> float:
        return one.prediction.worth(goal) if one.prediction else 0.0

    return (first, *sorted(others, key=lambda one: -worth(one)))


def identity_of(plan: Plan, request: BuildRequest) -> str:
    """Return a short digest of what a plan builds: findings and the way to it do not count."""
    built = {
        one.name: _plain(getattr(plan, one.name)) for one in fields(plan) if one.name not in _BESIDE
    }
    calibrating = {
        name: value
        for name, value in request.model_dump(exclude_none=True).items()
        if name.startswith(("calibration", "quantize")) or name in ("compile", "base")
    }
    if plan.quantization is None or plan.quantization.existing:
        calibrating = {k: v for k, v in calibrating.items() if k in ("compile", "base")}
    text = json.dumps([built, _plain(calibrating)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _named_wrongly(name: str, error: UsageError) -> UsageError:
    return UsageError(f"candidate {name!r}: {error.message}", hint=error.hint)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it, sets in order: the same text in every process."""
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(map(str, value))
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _reason(error: PackagerError) -> str:
    """Return in one line why a request is refused, without the words that all refusals share."""
    errors = errors_in(error.findings) if isinstance(error, PlanRejected) else ()
    return (errors[0].message if errors else error.message)[:_LONGEST_REASON]
