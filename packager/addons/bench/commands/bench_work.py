"""What a benchmark needs of the machine: servers, requests, prices, plans."""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packager.addons.bench.assemble import Circumstances, HourPrice, make_report
from packager.addons.bench.load.adapters import mix_words
from packager.addons.bench.load.spec import PATHS, Lengths, RequestShape, RequestSpec, settle
from packager.addons.bench.load.tokenizer import TokenCounter, open_tokenizer
from packager.addons.bench.options import BenchOptions
from packager.addons.bench.planned import predict_loads
from packager.addons.bench.pool import START, ServerPool
from packager.addons.bench.sending import Sender
from packager.addons.bench.session import STEP, OneLoad, Results, Session
from packager.addons.bench.targets import BenchTarget, find_targets
from packager.addons.bench.templates import find_template
from packager.addons.bench.tokenizers import find_tokenizer
from packager.addons.bench.usage import UseMeter, used_bytes
from packager.catalog.machine import available_bytes, used_gpu_bytes
from packager.cli.plugins.tables import ROUTES
from packager.cli.serving.opening import Opener, OpenServer
from packager.cli.serving.routes import Route
from packager.cli.wiring.builds import services_for
from packager.cli.wiring.settings import Settings, settings_for, state_dir
from packager.core.bench import BenchLoad, BenchReport, BenchWorkload, Predicted
from packager.core.errors import BenchRejected, NotFound, PackagerError, SmokeFailed
from packager.core.events import EventSink, StagesEvent, StepEvent, ignore
from packager.core.instance import LOCAL
from packager.core.samples import Samples
from packager.core.text import hide_userinfo
from packager.core.units import counted, gib
from packager.core.workload import Workload, parse_workload
from packager.models.samples.lengths import load_lengths
from packager.models.samples.load import load_samples
from packager.pipeline.resolve import find_workload
from packager.pipeline.services import BuildServices

API_KEY = "OPENAI_API_KEY"
_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchWork:
    """A benchmark with everything decided but its servers."""

    asked: BenchOptions
    spec: RequestSpec
    workload: Workload
    samples: Samples | None
    lengths: Sequence[Lengths]
    counter: TokenCounter | None
    services: BuildServices
    engine: Callable[[], Any]
    deadline_s: float
    usd_per_hour: float | None
    discount: float
    own: Mapping[str, Any]  # settings of plans
    command: str = ""  # that measures the same again; "" where no command does

    def needs_gpus(self, instance: str) -> bool:
        """Return whether a container gets this machine's GPUs."""
        return needs_gpus(self.services, instance)

    def open_pool(self, on_event: EventSink) -> ServerPool:
        """Return what starts and ends servers."""

        def say(line: str) -> None:
            on_event(StepEvent(step=START, state="running", detail=line))

        opener = Opener(
            connect=self.engine,
            deadline_s=self.deadline_s,
            connections=2,
            on_progress=say,
            purpose="bench",
            headers=self.headers,
            timeout_s=self.asked.request_timeout_s,
        )
        return ServerPool(
            opener, free_bytes=available_bytes, used_bytes=used_bytes, on_event=on_event
        )

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of requests to addresses."""
        key = os.environ.get(API_KEY)
        return {"Authorization": f"Bearer {key}"} if key else {}

    def sender(self, stop: threading.Event) -> Sender:
        """Return what puts servers under load."""
        return Sender(
            spec=self.spec,
            workload=self.workload,
            asked=self.asked,
            lengths=self.lengths,
            samples=self.samples.samples if self.samples else (),
            counter=self.counter,
            headers=self.headers,
            stop=stop,
        )

    def targets(
        self, names: Sequence[str], env: Mapping[str, str], *, drafts_off: bool = False
    ) -> tuple[BenchTarget, ...]:
        """Find the servers of images, addresses and deployments."""
        return find_targets(
            names,
            env,
            connect=self.engine,
            state_dir=state_dir(os.environ),
            needs_gpus=self.needs_gpus,
            drafts_off=drafts_off,
            find_route=_find_route,
        )

    def measure(
        self,
        targets: Sequence[BenchTarget],
        sender: Sender,
        on_event: EventSink = ignore,
        on_load: Callable[[OneLoad], None] = ignore,
    ) -> tuple[BenchReport, Results]:
        """Measure every server under every load; return the report and what it is made of."""
        starts = any(not target.server.is_address for target in targets)
        on_event(StagesEvent(stages=(START, STEP) if starts else (STEP,)))
        with self.open_pool(on_event) as pool:
            results = Session(
                targets=targets,
                asked=self.asked,
                pool=pool,
                send=sender,
                on_event=on_event,
                on_load=on_load,
                meter=self.meter,
            ).measure()
        return make_report(targets, results, self.circumstances(targets)), results

    def meter(self, server: OpenServer) -> UseMeter:
        """Return what reads the use of a server's container."""
        return UseMeter(server.container, gpu_memory=used_gpu_bytes)

    def circumstances(self, targets: Sequence[BenchTarget]) -> Circumstances:
        """Return the contents of a report beside its figures."""
        starts = any(not target.server.is_address for target in targets)
        return Circumstances(
            workload=self._workload(),
            limits=self.asked.limits,
            measured=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            machine=machine_words(self.services) if starts else "",
            command=self.command,
            price_of=self._price_of,
            predict=self._predict,
            discount=self.discount,
        )

    def _workload(self) -> BenchWorkload:
        shape = settle(self.spec, self.workload, lengths=self.lengths)
        made = self.samples is None
        return BenchWorkload(
            name=_name(shape) if made else "own requests",
            input_tokens=shape.input_tokens if made else None,
            output_tokens=shape.output_tokens or None if made or shape.states_output else None,
            endpoint=PATHS[shape.endpoint] if shape.texts else "",
            data=self.samples.source if self.samples else "",
            data_digest=self.samples.digest if self.samples else "",
            seed=self.spec.seed,
            adapters=mix_words(self.spec.adapter_shares, self.spec.adapter_zipf),
        )

    def _price_of(self, target: BenchTarget) -> HourPrice | None:
        if self.usd_per_hour is not None:
            return HourPrice(usd=self.usd_per_hour, source="--usd-per-hour")
        if target.setup.instance in ("", LOCAL):
            return None
        try:
            found = self.services.find_instance(target.setup.instance)
        except PackagerError:
            return None
        if found.price_usd_hour is None:
            return None
        words = ", ".join(filter(None, (found.name, found.price_basis, found.date)))
        return HourPrice(usd=found.price_usd_hour, source=f"catalog: {words}")

    def _predict(self, target: BenchTarget, loads: Sequence[BenchLoad]) -> Mapping[int, Predicted]:
        if target.record is None or not loads:
            return {}
        request = target.record.request
        settings = replace(settings_for(request), **self.own, headers_only=True)
        try:
            return predict_loads(target.record, services_for(settings), loads)
        except PackagerError:  # the model is not here any more
            return {}


def _name(shape: RequestShape) -> str:
    """Return what requests are called; of vectors and scores, with how many texts each has."""
    return f"{shape.name} of {counted(shape.texts, 'text')}" if shape.texts else shape.name


def _find_route(name: str) -> Route | None:
    """Return the way to a deployment, such as `sagemaker://NAME`; None for another name."""
    scheme = name.partition("://")[0]
    return ROUTES.find(scheme).make(name, os.environ) if scheme in ROUTES else None


def make_work(
    asked: BenchOptions,
    spec: RequestSpec,
    *,
    engine: Callable[[], Any],
    tokenizer: str | None,
    usd_per_hour: float | None,
    discount: float,
    deadline_s: float,
    catalog_file: Path | None,
    command: str = "",
) -> BenchWork:
    """Read the workload, the data and the tokenizer; raises what reading them does."""
    own = {"catalog_file": catalog_file}
    spec = replace(spec, request_template=find_template(spec.request_template))
    services = services_for(Settings(catalog_file=catalog_file))
    workload = find_workload(spec.workload, services.read_workload)
    is_file = parse_workload(spec.workload) is None
    lengths = load_lengths(spec.workload) if is_file else ()
    settle(spec, workload, lengths=lengths)  # raises before a server is started
    return BenchWork(
        asked=asked,
        spec=spec,
        workload=workload,
        samples=_samples(spec),
        lengths=lengths,
        counter=open_tokenizer(find_tokenizer(tokenizer)) if tokenizer else None,
        services=services,
        engine=engine,
        deadline_s=deadline_s,
        usd_per_hour=usd_per_hour,
        discount=discount,
        own=own,
        command=command,
    )


def judge(report: BenchReport, results: Results, asked: BenchOptions) -> None:
    """Raise what the results come to; an interrupted one is a `KeyboardInterrupt`."""
    if results.is_interrupted:
        raise KeyboardInterrupt
    for name, error in results.failures.items():
        log = error.log if isinstance(error, SmokeFailed) else ""
        raise SmokeFailed(
            f"{name!r} could not be measured to the end: {error.message}", hint=error.hint, log=log
        ) from error
    loads = [load for variant in report.variants for load in variant.loads]
    if loads and not any(load.answered for load in loads):
        reason = next((error.reason for load in loads for error in load.errors), "")
        raise SmokeFailed(
            f"no request was answered{f': {reason}' if reason else ''}",
            hint="ask the server with curl, and see its log",
        )
    missed = [load.good for load in loads if load.good is not None]
    if asked.min_goodput is not None and missed and min(missed) < asked.min_goodput:
        raise BenchRejected(
            f"only {100 * min(missed):.4g} % of the requests of a load keep the limits; "
            f"{100 * asked.min_goodput:.4g} % are demanded",
            hint="the figures are above; fewer requests at a time, or a faster server, may",
            figures=report.model_dump(mode="json", exclude_none=True),
        )


def needs_gpus(services: BuildServices, instance: str) -> bool:
    """Return whether a container of an image for `instance` gets this machine's GPUs."""
    here = services.find_instance(LOCAL)
    if here.kind != "nvidia" or instance in ("", LOCAL):
        return here.kind == "nvidia"
    try:
        return services.find_instance(instance).kind == "nvidia"
    except NotFound:
        return True


def machine_words(services: BuildServices) -> str:
    """Describe this machine."""
    here = services.find_instance(LOCAL)
    if here.kind == "cpu":
        memory = gib(here.device_bytes)
        return f"{here.device_name}, {counted(here.vcpus or 1, 'CPU')}, {memory}"
    return f"{here.devices} x {here.device_name}, {gib(here.device_bytes)} each"


def command_words(arguments: Sequence[str]) -> str:
    """Return a command that measures the same again, without passwords and keys."""
    shown: list[str] = []
    for before, argument in zip(["", *arguments], arguments, strict=False):
        name, equals, _ = argument.removeprefix("--env=").partition("=")
        is_variable = before == "--env" or argument.startswith("--env=")
        if is_variable and equals and any(word in name.upper() for word in _SECRET):
            prefix = "--env=" if argument.startswith("--env=") else ""
            argument = f"{prefix}{name}=…"
        shown.append(hide_userinfo(argument))
    return shlex.join(["packager", *shown])


def _samples(spec: RequestSpec) -> Samples | None:
    if not spec.data:
        return None
    return load_samples(spec.data, broken="skip")
