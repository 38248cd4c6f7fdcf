"""Selection of measurements that apply to a plan.

A file that names another model, quantization or draft is refused: its times say little about the
plan.  Points of another instance or degree are predicted as they were measured; what they differ by
carries over, with a wider band.  A file without names counts as measured for the plan.  Requests
of other lengths are predicted with their own lengths.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from packager.catalog.accelerators import accelerator_of
from packager.catalog.instances import find_instance
from packager.core.errors import UsageError
from packager.core.measurement import MeasuredLoad, MeasuredRun
from packager.core.plan import Plan
from packager.core.startup import StartedVariant
from packager.core.workload import Workload
from packager.estimate.performance.calibration import Measured
from packager.estimate.performance.predict import Setup

NONE = "none"
NOT_CORRECTED = "not corrected: "  # begins the message about a file of another plan


class MeasuredElsewhere(UsageError):
    """A file has measurements of something else than the plan."""

    def __init__(self, source: str, what: str, measured: str, planned: str, hint: str = "") -> None:
        super().__init__(
            f"{source!r} was measured with {what} {measured!r}, and the plan has {planned!r}",
            hint=hint or "plan what was measured, or leave the file out",
        )


def measured_points(
    plan: Plan,
    setup: Setup,
    workload: Workload,
    runs: Iterable[MeasuredRun],
    *,
    known_as: Iterable[str] = (),
) -> tuple[Measured, ...]:
    """Return the points of files about this plan; raise `MeasuredElsewhere` for another's.

    `known_as` are further names of the model, as the user wrote it.
    """
    names = {plan.served_name, plan.model.name, *known_as}
    points: list[Measured] = []
    for run in runs:
        found = run_of(plan, run, names)
        points += _points(plan, setup_measured(plan, setup, found), workload, found)
    return tuple(points)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyingRuns:
    """The files that apply to one plan, and the reasons against the others."""

    runs: tuple[MeasuredRun, ...] = ()
    others: tuple[str, ...] = ()  # sentences


def check_places(runs: Iterable[MeasuredRun]) -> None:
    """Raise `UsageError` for measurements without an instance: several machines are planned."""
    for run in runs:
        if not run.setup.instance:
            raise UsageError(
                f"{run.source!r} does not say on which instance it was measured, and several are "
                "requested",
                hint="name it in the point, as in 'TPOT 17.9 ms at 16, 8xB200', or plan that one",
            )


def telling(
    plan: Plan,
    setup: Setup,
    runs: Iterable[MeasuredRun],
    *,
    known_as: Iterable[str],
    other_format: bool,
) -> ApplyingRuns:
    """Choose the files that apply to one of several plans of a model.

    `other_format`: the plan quantizes though the request does not.  A file that does not say
    which weights it measured is of the model as it was requested.
    """
    found: list[MeasuredRun] = []
    others: list[str] = []
    for run in runs:
        try:
            measured_points(plan, setup, plan.workload, (run,), known_as=known_as)
        except UsageError as error:
            others.append(f"{NOT_CORRECTED}{error.message}")
            continue
        if other_format and not run.setup.quantization:
            others.append(f"{NOT_CORRECTED}{run.source!r} does not say that it was quantized so")
        else:
            found.append(run)
    return ApplyingRuns(runs=tuple(found), others=tuple(others))


def run_of(plan: Plan, run: MeasuredRun, names: Iterable[str]) -> MeasuredRun:
    """Return the server of a file that the plan is about, or one of its model in another layout.

    Raises `MeasuredElsewhere` for the first where none is.
    """
    known = frozenset(names)
    for check in (check_setup, check_model):
        for one in (run, *run.others):
            with suppress(MeasuredElsewhere):
                check(plan, one, known)
                return one
    check_model(plan, run, known)
    return run


def setup_measured(plan: Plan, setup: Setup, run: MeasuredRun) -> Setup:
    """Return the set-up that a run was measured with, where it says another than the plan's.

    Raises `UnknownInstance` and its kin for an instance that the catalog does not have.
    """
    stated = run.setup
    degree = stated.tp_degree or setup.tp_degree
    if not stated.instance or _bare(stated.instance) == _bare(plan.instance.name):
        instance = plan.instance
    else:
        instance = find_instance(stated.instance)
    if instance.kind != plan.instance.kind:
        raise MeasuredElsewhere(
            run.source, "devices of another kind:", instance.device_name, plan.instance.device_name
        )
    machine = (instance.device_name, instance.devices)
    if degree == setup.tp_degree and machine == (plan.instance.device_name, plan.instance.devices):
        return setup
    degree = min(degree, instance.devices)
    return replace(
        setup,
        accelerator=accelerator_of(instance),
        tp_degree=degree,
        replicas=max(1, instance.devices // degree),
        pp_degree=1,
        dp_degree=1,
    )


def measured_starts(
    plan: Plan, runs: Iterable[MeasuredRun], *, known_as: Iterable[str] = ()
) -> tuple[StartedVariant, ...]:
    """Return the cold starts of files about this plan; raise `MeasuredElsewhere` for another's.

    Start times of another instance do not apply.
    """
    names = {plan.served_name, plan.model.name, *known_as}
    found = []
    for run in runs:
        if any(one.started for one in (run, *run.others)):
            one = run_of(plan, run, names)
            check_setup(plan, one, names)
            found.append(one.started)
    return tuple(filter(None, found))


def measured_acceptance(plan: Plan, runs: Iterable[MeasuredRun]) -> float | None:
    """Return the measured tokens of a step with the plan's draft; the last file decides."""
    kind = plan.draft.kind if plan.draft else NONE
    found = [
        one.acceptance_length
        for run in runs
        for one in (run, *run.others)
        if one.acceptance_length is not None and one.setup.draft in (None, kind)
    ]
    return found[-1] if found and plan.draft else None


def check_setup(plan: Plan, run: MeasuredRun, names: Iterable[str]) -> None:
    """Raise where a file says that it was measured on something else than the plan."""
    check_model(plan, run, names)
    stated = run.setup
    if stated.instance and _bare(stated.instance) != _bare(plan.instance.name):
        raise MeasuredElsewhere(run.source, "the instance", stated.instance, plan.instance.name)
    if stated.tp_degree and stated.tp_degree != plan.tp_degree:
        degrees = (str(stated.tp_degree), str(plan.tp_degree))
        raise MeasuredElsewhere(run.source, "tensor parallel", *degrees)


def check_model(plan: Plan, run: MeasuredRun, names: Iterable[str]) -> None:
    """Raise where a file says that another model was measured, or in another format."""
    stated = run.setup
    if stated.model and _last(stated.model) not in {_last(name) for name in names}:
        raise MeasuredElsewhere(
            run.source,
            "the model",
            stated.model,
            plan.model.name,
            hint=f"if the server only calls it so, add --served-name {_last(stated.model)}",
        )
    spellings = _quantizations(plan)
    if stated.quantization and stated.quantization.lower() not in spellings:
        raise MeasuredElsewhere(run.source, "weights", stated.quantization, spellings[0])
    kind = plan.draft.kind if plan.draft else NONE
    if stated.draft and stated.draft != kind and not (kind == NONE and run.plain_loads):
        raise MeasuredElsewhere(run.source, "the draft", stated.draft, kind)


def _points(plan: Plan, setup: Setup, workload: Workload, run: MeasuredRun) -> Iterator[Measured]:
    has_both = bool(run.plain_loads)
    loads = run.plain_loads if has_both and plan.draft is None else run.loads
    if not loads:
        raise UsageError(
            f"{run.source!r} has no load {'without' if plan.draft is None else 'with'} a draft",
            hint="measure the set-up that is planned",
        )
    for load in loads:
        yield Measured(
            setup=setup,
            workload=_workload(load, workload),
            concurrency=load.concurrency,
            tpot_s=load.tpot_s,
            ttft_s=load.ttft_s,
            output_tokens_s=load.output_tokens_s,
            source=run.source,
        )


def _workload(load: MeasuredLoad, planned: Workload) -> Workload:
    """Return the requests of a load, with the planned lengths where it does not say."""
    if load.input_tokens is None and load.output_tokens is None:
        return planned
    return replace(
        planned,
        name="measured",
        input_tokens=max(1, round(load.input_tokens or planned.input_tokens)),
        output_tokens=max(1, round(load.output_tokens or planned.output_tokens)),
        p95_input_tokens=0,
        p95_output_tokens=0,
    )


def _quantizations(plan: Plan) -> tuple[str, ...]:
    """Return how a plan's quantization may be spelled, the first for messages."""
    if plan.quantization is None:
        return (plan.precision.lower(), plan.dtype.lower(), NONE)
    found = plan.quantization
    # A mix is not what was measured of one of its schemes.
    own = () if len(found.parts) > 1 else (found.scheme.lower(), found.method.lower())
    return tuple(word for word in (*own, plan.precision.lower()) if word)


def _last(name: str) -> str:
    """Return the last part of a name or path: benchmarks name hubs' models and directories."""
    return PurePosixPath(name.rstrip("/")).name.lower()


def _bare(instance: str) -> str:
    return instance.lower().removeprefix("ml.")
