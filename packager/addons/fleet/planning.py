"""Conversion of a grid into a plan: each artifact once, cached ones left out, the rest in order."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import rfc8785
from pydantic import ValidationError

from packager.addons.fleet.grid import expand
from packager.core.devices import GpuUse
from packager.core.errors import PackagerError, PlanRejected
from packager.core.findings import Finding
from packager.core.instance import LOCAL, Instance
from packager.core.plan import Plan
from packager.core.recipe import CacheStatus, Step
from packager.core.references import DirectoryReference, HubReference
from packager.core.request import BuildRequest
from packager.core.samples import DEFAULT
from packager.core.techniques import DraftRequest
from packager.core.validation import first_fault
from packager.core.version import __version__
from packager.core.warmup import (
    FETCH,
    Grid,
    Hit,
    Job,
    Refused,
    RefusedFinding,
    Resources,
    WarmPlan,
)
from packager.core.workload import parse_workload
from packager.estimate.performance.effort import install_seconds, method_of
from packager.estimate.performance.job import (
    MachineOffer,
    Market,
    cheapest_place,
    time_here,
    time_on,
)
from packager.images.target import LAYOUT, parse_layout_target
from packager.optimize.compile.choose import NOT_REQUESTED
from packager.optimize.drafts.request import AUTO, spell_draft
from packager.pipeline.effort import market_of
from packager.pipeline.pipeline import plan as plan_request
from packager.pipeline.record import with_devices_pinned
from packager.pipeline.services import BuildServices
from packager.pipeline.stages import Planned

STREAMED = (
    "weights that are quantized while they are read leave nothing to make ahead; "
    '`quantize = "llmcompressor:METHOD"` has a tool make them'
)


def canonical(plan: WarmPlan) -> bytes:
    """Write a plan as RFC 8785 has it: one way only."""
    return rfc8785.dumps(plan.model_dump(mode="json", by_alias=True, exclude_none=True))


def make_warm_plan(grid: Grid, services: BuildServices) -> WarmPlan:
    """Plan every request of the grid. A rejected one is listed and does not stop the others."""
    host = services.find_instance(grid.host_instance) if grid.host_instance else None
    made = _PlanBuilder(market=cache(lambda: market_of(services)), host=host)
    for fields in expand(grid):
        made.requests += 1
        try:
            request = BuildRequest.model_validate(fields)
            made.add(plan_job(request, services))
        except ValidationError as error:
            said = first_fault(error, "the request")
            made.refused.append(Refused(request=_plain(fields), error=said))
        except PackagerError as error:
            made.refused.append(_refused(fields, error))
    return made.plan()


def plan_job(request: BuildRequest, services: BuildServices) -> Planned:
    """Plan one request. What is compiled is compiled for a base image, so it is pinned, too."""
    return plan_request(request, services, with_base=request.compile not in NOT_REQUESTED)


def pinned(request: BuildRequest, planned: Planned) -> BuildRequest:
    """Return the request with the model's commit and absolute paths.

    A branch may have moved on when the job runs, and it runs in another directory.
    """
    ref = planned.facts.model.ref
    reference = planned.reference
    if isinstance(reference, HubReference) and ref.revision:
        reference = reference.at(ref.revision)
    elif isinstance(reference, DirectoryReference):
        reference = reference.absolute()
    devices = with_devices_pinned(planned)
    changes: dict[str, Any] = {
        "model": reference.text,
        "gpus": devices.gpus,
        "threads": devices.threads,
    }
    if request.draft and request.draft != AUTO:
        changes["draft"] = absolute_draft(request.draft, planned.facts.draft_request)
    if request.adapters:
        changes["adapters"] = {name: _absolute(ref) for name, ref in request.adapters.items()}
    for name in ("calibration", "evaluate"):
        data = getattr(request, name)
        if data and data != DEFAULT:
            changes[name] = _absolute(data)
    if request.base and request.base.startswith(f"{LAYOUT}:"):
        changes["base"] = parse_layout_target(request.base).absolute().text
    if request.workload and parse_workload(request.workload) is None:
        changes["workload"] = _absolute(request.workload)
    return request.model_copy(update=changes)


def absolute_draft(written: str, asked: DraftRequest | Finding | None) -> str:
    """Return a draft with the whole path of its directory; anything else stays as it is."""
    if isinstance(asked, DraftRequest) and isinstance(asked.model, DirectoryReference):
        return spell_draft(asked, asked.model.absolute().text)
    return written


def _absolute(written: str) -> str:
    """Return a file or directory by its absolute path, and anything else unchanged."""
    return str(Path(written).absolute()) if Path(written).exists() else written


@dataclass(slots=True, kw_only=True)
class _PlanBuilder:
    """A plan on the way: jobs by id."""

    market: Callable[[], Market]
    host: Instance | None
    requests: int = 0
    duplicates: int = 0
    idle: int = 0
    jobs: dict[str, Job] = field(default_factory=dict)
    hits: dict[str, Hit] = field(default_factory=dict)
    refused: list[Refused] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)

    def add(self, planned: Planned) -> None:
        """Add the jobs that one request needs."""
        plan, request = planned.plan, pinned(planned.facts.request, planned)
        if not planned.recipe.steps:
            if "quantize" in planned.recipe.finishes:
                self.notes[STREAMED] = None
            else:
                _refuse_undoable(planned)
            self.idle += 1
        earlier: dict[str, Job] = {}
        forecasts = {one.step: one for one in planned.forecasts}
        for step in planned.recipe.steps:
            forecast = forecasts[step.name]
            if forecast.installs:
                self.notes[
                    f"{step.tool} is not installed here, which takes about "
                    f"{install_seconds():.0f} s more: keys hold until it turns out to have "
                    f"other versions than declared; `packager tools install {step.tool}` first"
                ] = None
            if forecast.state == "hit":
                self._add_hit(step, forecast, plan)
                continue
            after = [
                earlier[given.result_of]
                for given in step.inputs.values()
                if given.result_of in earlier
            ]
            if not after and (fetch := self._fetch(request, planned)):
                after = [fetch]
            earlier[step.name] = self._add_job(step, plan, request, after)

    def plan(self) -> WarmPlan:
        """Return the plan, with jobs in dependency order."""
        return WarmPlan(
            packager=__version__,
            requests=self.requests,
            duplicates=self.duplicates,
            idle=self.idle,
            jobs=_in_order(self.jobs.values()),
            hits=tuple(self.hits.values()),
            refused=tuple(self.refused),
            notes=tuple(self.notes),
        )

    def _add_hit(self, step: Step, forecast: CacheStatus, plan: Plan) -> None:
        if forecast.key in self.hits:
            self.duplicates += 1
            return
        self.hits[forecast.key] = Hit(
            artifact=step.key.kind if step.key else "",
            key=forecast.key,
            step=step.name,
            model=plan.served_name,
            seconds=round(forecast.seconds),
        )

    def _add_job(self, step: Step, plan: Plan, request: BuildRequest, after: list[Job]) -> Job:
        from artifact_cache.key import key_of

        key = key_of(step.key) if step.key else ""
        asked = request.model_dump(mode="json", exclude_none=True)
        name = key or _digest({"step": step.name, "request": asked, "after": [j.id for j in after]})
        if name in self.jobs:
            self.duplicates += 1
            return self.jobs[name]
        resources = resources_of(step, plan)
        place = self._place(step, plan, resources)
        seconds = max(1, round(place.timing.seconds)) if place.timing.seconds else None
        price = place.instance.price_usd_hour
        return self._put(
            Job(
                index=len(self.jobs),
                id=name,
                step=step.name,
                tool=step.tool,
                artifact=step.key.kind if step.key else "",
                key=key,
                model=plan.served_name,
                request=request,
                needs=tuple(job.index for job in after),
                stage=max((job.stage + 1 for job in after), default=0),
                resources=resources,
                seconds=seconds,
                seconds_from=place.timing.origin,
                usd=round(seconds / 3600 * price, 4) if seconds and price else None,
                instance="" if place.instance.name == LOCAL else place.instance.name,
            )
        )

    def _fetch(self, request: BuildRequest, planned: Planned) -> Job | None:
        """Return a job that downloads a Hub's files once for all jobs.

        Hubs throttle parallel fleets.
        """
        if planned.reference.source != "hub":
            return None
        name = _digest({"fetch": request.model})
        if name in self.jobs:
            return self.jobs[name]
        return self._put(
            Job(
                index=len(self.jobs),
                id=name,
                step=FETCH,
                model=planned.plan.served_name,
                request=BuildRequest(model=request.model, instance=request.instance),
                resources=Resources(disk_bytes=planned.facts.model.weight_bytes),
            )
        )

    def _put(self, job: Job) -> Job:
        self.jobs[job.id] = job
        return job

    def _place(self, step: Step, plan: Plan, resources: Resources) -> MachineOffer:
        """Choose the machine that time and price are of.

        The request's own where the result is for its device, else the grid's host, else the
        one on which all of the job costs the least, else this machine.
        """
        market = self.market()
        is_for_it = step.gives in ("compiled", "ranks")
        if resources.devices and is_for_it and plan.instance.name != LOCAL:
            return MachineOffer(instance=plan.instance, timing=time_on(plan.instance, step, market))
        if self.host is not None and not resources.devices:
            return MachineOffer(instance=self.host, timing=time_on(self.host, step, market))
        pinned = replace(step, gpu_use=GpuUse())  # a job runs on what it was planned for
        if found := cheapest_place(pinned, market):
            self._note_gpu(step, found, market)
            return found
        here = market.here or plan.instance
        return MachineOffer(instance=replace(here, name=LOCAL), timing=time_here(step, market))

    def _note_gpu(self, step: Step, place: MachineOffer, market: Market) -> None:
        """Record where a GPU, which the grid can request, would make a job cheaper."""
        other = cheapest_place(step, market) if not step.gpus else None
        if other is None or not other.gpus or place.usd is None or other.usd is None:
            return
        there = f"{other.timing.seconds / 3600:.1f} h and ${other.usd:.2f} on {other.instance.name}"
        here = f"{place.timing.seconds / 3600:.1f} h and ${place.usd:.2f} on {place.instance.name}"
        self.notes[
            f"{step.name} with {method_of(step)} would take {there}, not {here}: "
            f"add `gpus = {other.gpus}` to the grid"
        ] = None


def resources_of(step: Step, plan: Plan) -> Resources:
    """Return the resources that a step needs; compiling needs as many devices as serving."""
    devices = step.gpus
    if step.gives == "compiled" and plan.instance.kind != "cpu":
        devices = max(devices, plan.split.server_devices)
    if step.gives == "compiled" or not devices:
        accelerator, device = plan.instance.kind, plan.instance.device_name
    else:
        accelerator, device = "nvidia", step.gpu  # of any model, whatever will serve
    return Resources(
        cpus=max(1, step.thread_count),
        memory_bytes=step.needs.memory_bytes,
        disk_bytes=step.needs.disk_bytes,
        accelerator=accelerator if devices else "cpu",
        device=device if devices else "",
        devices=devices,
    )


def _in_order(jobs: Iterable[Job]) -> tuple[Job, ...]:
    """Number jobs so that those of one stage and one sort of machine follow each other."""
    ordered = sorted(jobs, key=lambda job: (job.stage, class_of(job), job.index))
    numbers = {job.index: number for number, job in enumerate(ordered)}
    return tuple(
        job.model_copy(
            update={
                "index": numbers[job.index],
                "needs": tuple(numbers[needed] for needed in job.needs),
            }
        )
        for job in ordered
    )


def class_of(job: Job) -> tuple[str, str, int]:
    """Return the machine class that a job needs."""
    needs = job.resources
    return needs.accelerator, needs.device, needs.devices


def _refuse_undoable(planned: Planned) -> None:
    """Refuse a plan with a quantization that packager cannot run."""
    wanted = planned.plan.quantization
    if wanted and not wanted.existing:
        raise PackagerError(
            f"quantizing with {wanted.method} can be planned, not done",
            hint="`packager list quantizers` shows what can be",
        )


def _refused(fields: Mapping[str, Any], error: PackagerError) -> Refused:
    found = error.findings if isinstance(error, PlanRejected) else ()
    return Refused(
        request=_plain(fields),
        error=error.message,
        hint=error.hint,
        findings=tuple(
            RefusedFinding(severity=one.severity, code=one.code, message=one.message, hint=one.hint)
            for one in found
            if one.severity == "error"
        ),
    )


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain JSON values: TOML also has dates."""
    return {
        name: value if isinstance(value, str | int | float | bool | list | dict) else str(value)
        for name, value in fields.items()
    }


def _digest(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(b"packager-warm-v1\n" + rfc8785.dumps(dict(document))).hexdigest()
