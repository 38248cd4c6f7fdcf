"""What a tune needs of the machine: plans, builds, servers and what they are sent."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from packager.addons.bench.load.adapters import mix_words
from packager.addons.bench.load.spec import Lengths, RequestSpec, settle
from packager.addons.bench.load.values import Level
from packager.addons.bench.open_servers import OpenServers
from packager.addons.bench.options import BenchOptions as LoadAsked
from packager.addons.bench.sending import Sender
from packager.addons.bench.tune.candidates import (
    Field,
    TuneCandidate,
    check_measured,
    make_field,
    predictor_for,
)
from packager.addons.bench.tune.figures import bench_report
from packager.addons.bench.tune.journal import TuneJournal, key_of
from packager.addons.bench.tune.options import TuneOptions, levels_for
from packager.addons.bench.tune.session import STEP, Race, TuneBudget
from packager.addons.bench.tune.space import Axis, Variation, base_of, request_with, variations
from packager.addons.bench.tune.workshop import (
    BuiltImage,
    ImageWorkshop,
    TunedServers,
    purpose_of,
    remove_images,
    remove_leftovers,
)
from packager.addons.bench.usage import used_bytes
from packager.catalog.machine import available_bytes
from packager.cli.run.fits_this_machine import why_not_here
from packager.cli.serving.containers import find_image
from packager.cli.serving.opening import Opener
from packager.cli.wiring.bases import build_missing_base
from packager.cli.wiring.builds import parse_model_reference, services_for
from packager.cli.wiring.settings import settings_for, state_dir
from packager.core.bench import BenchReport, Limits
from packager.core.errors import NotFound, UsageError
from packager.core.events import Event, EventSink, StepEvent
from packager.core.image import FileRange
from packager.core.instance import LOCAL, Instance
from packager.core.measurement import MeasuredRun
from packager.core.model import ModelFiles
from packager.core.plan import Plan
from packager.core.recipe import CacheStatus, Step
from packager.core.record import BuildRecord
from packager.core.request import BuildRequest
from packager.core.tuning import TuneReport
from packager.core.units import gib
from packager.core.version import __version__
from packager.core.workload import Workload, parse_workload
from packager.models.architectures.profile import read_head
from packager.models.local import refuse_missing_directory
from packager.models.samples.lengths import load_lengths
from packager.models.samples.load import load_samples
from packager.pipeline import pipeline
from packager.pipeline.resolve import find_workload
from packager.pipeline.services import BuildServices


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads:
    """How candidates are put under load."""

    spec: RequestSpec
    load: LoadAsked
    env: Mapping[str, str]
    deadline_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneWork:
    """A tune with everything decided but its candidates."""

    request: BuildRequest  # as requested
    base: BuildRequest  # that candidates change
    race: Race
    services: BuildServices  # for plans
    own: Mapping[str, Any]  # settings of builds
    instance: Instance
    model: ModelFiles
    workload: Workload
    loads: Loads
    concurrency: tuple[int, ...]
    keep_images: bool
    serving_base: str  # that most candidates have
    lengths: Sequence[Lengths] = ()  # of a workload that is a file
    measured: tuple[MeasuredRun, ...] = ()  # that predictions are corrected by

    def asked(self) -> dict[str, Any]:
        """Return what a journal must agree in: everything that figures depend on."""
        fixed = self.base.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
        limits = self.race.limits.model_dump(exclude_none=True)
        return {
            "packager": __version__,
            "model": self.request.model,
            "instance": self.request.instance,
            "goal": self.race.goal,
            "limits": limits,
            "concurrency": list(self.concurrency),
            "workload": self.workload.words,
            "data": self.loads.spec.data,
            "seed": self.loads.spec.seed,
            "endpoint": self.loads.spec.endpoint,
            "temperature": self.loads.spec.temperature,
            **_told(self.loads.spec),
            "extra": list(self.loads.spec.extra),
            "requests": self.loads.load.requests,
            "duration": self.loads.load.duration_s,
            "warm_up": self.loads.load.warm_up,
            "env": dict(self.loads.env),
            "files": _files_digest(self.model),
            "request": {name: fixed[name] for name in fixed if name not in ("model", "instance")},
        }

    def names(self) -> dict[str, Any]:
        """Return what reports say of the question."""
        return {
            "model": self.request.model,
            "instance": self.request.instance,
            "concurrency": self.concurrency,
        }

    def check_here(self) -> None:
        """Raise `UsageError` where candidates for the instance cannot run here."""
        if reason := why_not_here(self.instance, self.services.find_instance(LOCAL)):
            raise UsageError(
                f"candidates for {self.request.instance!r} cannot be measured on this machine: "
                f"{reason}",
                hint=f"run it there; `--instance {LOCAL}` tunes for this machine, and --dry-run "
                "lists the candidates anywhere",
            )

    def journal_place(self) -> Path:
        """Return where the journal is by default: one for each question."""
        name = f"{key_of(self.asked())[:16]}.jsonl"
        return state_dir(os.environ) / "tune" / name


def make_work(
    request: BuildRequest,
    asked: TuneOptions,
    loads: Loads,
    own: Mapping[str, Any],
    *,
    budget_s: float | None,
    usd_per_hour: float | None,
    measured: tuple[MeasuredRun, ...] = (),
) -> TuneWork:
    """Find the model and the instance, and decide under which loads candidates are measured."""
    if request.goal is None:
        raise UsageError(
            "no goal is given", hint="add --goal cost, --goal latency or --goal throughput"
        )
    if request.weights == "mounted":
        raise UsageError(
            "mounted weights are not there to be served",
            hint="leave `weights` out of the request; build with --weights mounted afterwards",
        )
    refuse_missing_directory(parse_model_reference(request.model))
    base = base_of(request, request.goal)
    planning = replace(
        settings_for(base),
        **own,
        region=request.region,
        usd_per_hour=usd_per_hour,
        headers_only=True,
    )
    services = _for_plans(services_for(planning))
    instance = services.find_instance(request.instance)
    workload = find_workload(request.workload, services.read_workload)
    lengths = () if parse_workload(request.workload) else load_lengths(request.workload or "")
    model = services.find_model(services.parse_model_reference(request.model))
    plan = pipeline.plan(request_with(base, {}), services).plan
    spec = _for_adapters(loads.spec, plan)
    settle(spec, workload, lengths=lengths)  # raises before anything is built
    limits = Limits(
        ttft_ms=request.ttft_limit_ms,
        tpot_ms=request.tpot_limit_ms,
        latency_ms=loads.load.latency_ms,
    )
    budget = TuneBudget(
        seconds=budget_s,
        usd=asked.budget_usd,
        measurements=asked.budget_measurements,
        usd_hour=usd_per_hour or plan.usd_hour,
    )
    return TuneWork(
        request=request,
        base=base,
        race=Race(
            goal=request.goal,
            limits=limits,
            budget=budget,
            rounds=asked.rounds,
            seed=loads.spec.seed,
        ),
        services=services,
        own=own,
        instance=instance,
        model=model,
        workload=workload,
        loads=replace(loads, spec=spec),
        concurrency=asked.concurrency or levels_for(request.goal, workload, plan),
        keep_images=asked.keep_images,
        lengths=lengths,
        measured=tuple(run for run in measured if run.has_loads),
        serving_base=request.base or plan.container.default_base,
    )


def make_candidates(
    work: TuneWork, varied: Sequence[Axis], named: Sequence[Variation], *, only: bool
) -> Field:
    """Plan the candidates; raises what the first is refused for where none works."""
    goal = work.race.goal
    found: tuple[Variation, ...] = (Variation(),)
    if not only:
        found = variations(
            work.base,
            work.instance,
            goal,
            quantized=bool(work.model.config.get("quantization_config")),
            brings_draft=read_head(work.model).layers > 0,
            adapters=len(work.loads.spec.adapter_shares),
            varied=varied,
        )
    accelerator_of, load = work.services.accelerator_of, work.concurrency[0]
    predict = predictor_for(accelerator_of, work.request, work.workload, load, work.measured)
    field = make_field(
        work.base,
        (*found, *named),
        lambda request: pipeline.plan(request, work.services).plan,
        predict,
        goal,
    )
    check_measured(work.measured, field)
    return field


@contextmanager
def work_in_engine(
    work: TuneWork, engine: Any, journal: TuneJournal, on_event: EventSink
) -> Iterator[ImageWorkshop]:
    """Yield a workshop in this machine's Docker Engine; end its servers with the block."""

    def tell(words: str) -> None:
        on_event(StepEvent(step=STEP, state="running", detail=words))

    def build_image(candidate: TuneCandidate, name: str) -> BuiltImage:
        record = build_into(work, candidate.request, (f"docker:{name}",), on_event)
        return BuiltImage(digest=record.digest, quality=record.quality)

    def has_image(name: str) -> bool:
        with suppress(NotFound):
            return bool(find_image(engine, name))
        return False

    purpose = purpose_of(journal.path)
    remove_leftovers(engine, purpose)
    opener = Opener(
        connect=lambda: engine,
        deadline_s=work.loads.deadline_s,
        connections=max(work.concurrency),
        on_progress=tell,
        purpose=purpose,
    )
    build_missing_base(work.serving_base, tell, on_event)
    on_event(StepEvent(step=STEP, state="started"))
    with OpenServers(opener, free_bytes=available_bytes, used_bytes=used_bytes) as servers:
        yield ImageWorkshop(
            build_image=build_image,
            has_image=has_image,
            servers=TunedServers(
                servers,
                env=work.loads.env,
                gpus=work.services.find_instance(LOCAL).kind == "nvidia",
            ),
            send=sender(work),
            levels=[Level(concurrency=number) for number in work.concurrency],
            limits=work.race.limits,
            on_answers=tell,
        )
    on_event(StepEvent(step=STEP, state="finished"))


def build_into(
    work: TuneWork, request: BuildRequest, outputs: tuple[str, ...], on_event: EventSink
) -> BuildRecord:
    """Build a candidate; what is in the cache is not made again."""
    asked = request.model_copy(update={"outputs": outputs})

    def within(event: Event) -> None:
        """Pass on what a build does, but not its stages: those of the tune stay."""
        if isinstance(event, StepEvent):
            on_event(event)

    settings = replace(settings_for(asked), **work.own, on_event=within)
    return pipeline.build(asked, services_for(settings))


def finish(
    work: TuneWork, engine: Any, report: TuneReport, field: Field, on_event: EventSink
) -> TuneReport:
    """Write the best build to the requested outputs; remove the images of the others."""
    best = next((one for one in report.candidates if one.state == "best"), None)
    images = [one.image for one in report.candidates if one.image and one is not best]
    if not work.keep_images:
        remove_images(engine, images)
    if best is None:
        return report
    request = next(one.request for one in field.candidates if one.id == best.id)
    if not work.request.outputs:
        return report.model_copy(update={"images": (f"{best.image}@{best.digest}",)})
    record = build_into(work, request, work.request.outputs, on_event)
    written = (f"{image.name}@{image.digest}" for image in record.images)
    names = (*written, *(f"{tree.name}@{tree.digest}" for tree in record.trees))
    return report.model_copy(update={"images": names})


def figures_of(
    work: TuneWork, field: Field, journal: TuneJournal, best: str | None, command: str
) -> BenchReport:
    """Return all measurements as `packager bench` would."""
    here = work.services.find_instance(LOCAL)
    return bench_report(
        field,
        work.race,
        journal,
        workload=work.workload,
        machine=f"{here.devices} x {here.device_name}, {gib(here.device_bytes)} each",
        data=work.loads.spec.data,
        adapters=mix_words(work.loads.spec.adapter_shares, work.loads.spec.adapter_zipf),
        command=command,
        best=best,
    )


def _for_adapters(spec: RequestSpec, plan: Plan) -> RequestSpec:
    """Return requests that are for all adapters of a plan."""
    served = plan.adapters.adapters if plan.adapters else ()
    return replace(spec, adapter_shares=tuple(one.name for one in served))


def _told(spec: RequestSpec) -> dict[str, Any]:
    """Return what is asked of the requests beside what `asked` names; nothing by default."""
    names = ("input_stddev", "output_stddev", "prefix_tokens", "ignore_eos", "stream",
             "adapter_shares", "adapter_zipf")  # fmt: skip
    plain = RequestSpec()
    stated = {name: getattr(spec, name) for name in names}
    return {name: value for name, value in stated.items() if value != getattr(plain, name)}


def _for_plans(services: BuildServices) -> BuildServices:
    """Return services that plan one model many times: looked up once, nothing suggested."""
    return replace(
        services,
        parse_model_reference=cache(services.parse_model_reference),
        find_model=cache(services.find_model),
        peek_model=lambda _: None,  # every plan takes what was found
        instances=None,
        check_cache=_unchecked,
        pin_files=_unpinned,
    )


def _unchecked(step: Step) -> CacheStatus:
    return CacheStatus(step=step.name, tool=step.tool, state="unknown")


def _unpinned(model: ModelFiles) -> ModelFiles:
    return model


def _files_digest(model: ModelFiles) -> str:
    """Return a digest of which files a model has: by their own digests, else as the disk says."""
    lines = []
    for file in model.files:
        content, mark = file.content, file.sha256
        if not mark and isinstance(content, FileRange):
            status = Path(content.path).stat()
            mark = f"{status.st_size} {status.st_mtime_ns}"
        lines.append(f"{file.path} {file.size} {mark}")
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def sender(work: TuneWork) -> Sender:
    """Return what puts servers under load; the same round of all candidates has equal prompts."""
    spec = work.loads.spec
    return Sender(
        spec=spec,
        workload=work.workload,
        asked=work.loads.load,
        samples=load_samples(spec.data).samples if spec.data else (),
        lengths=work.lengths,
    )
