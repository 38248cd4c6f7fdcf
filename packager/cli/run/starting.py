"""A run from its request to its first answer: the container it needs, its image, its start."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from packager.cli.capture_options import TrafficCapture
from packager.cli.run.capturing import with_capture
from packager.cli.run.containers import ContainerSpec, Started, check_free, started
from packager.cli.run.fits_this_machine import not_this_machine, why_not_here
from packager.cli.run.images import find_packaged
from packager.cli.run.names import image_name, run_name
from packager.cli.run.report import Serving
from packager.cli.run.serving import wait_until_ready
from packager.cli.wiring.bases import build_missing_base
from packager.cli.wiring.builds import parse_model_reference, services_for
from packager.cli.wiring.policies import check_running
from packager.cli.wiring.settings import Settings, settings_for, state_dir
from packager.core.errors import UsageError
from packager.core.events import EventSink, StepEvent, StepState, followed_by
from packager.core.instance import LOCAL
from packager.core.plan import Plan
from packager.core.request import BuildRequest
from packager.core.stopping import PLATFORM_GRACE_S
from packager.models.local import refuse_missing_directory
from packager.pipeline import pipeline
from packager.pipeline.report import brief_lines
from packager.pipeline.stages import FIRST_STAGES


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What is asked of the container."""

    name: str | None
    port: int | None
    env: Mapping[str, str]
    deadline_s: float
    detach: bool
    capture: TrafficCapture | None = None


def check_runnable(request: BuildRequest) -> None:
    """Raise `UsageError` where what is requested has no server, or no weights, to run."""
    if request.weights == "mounted":
        raise UsageError(
            "mounted weights are not there to be served",
            hint="leave --weights mounted out of the request to run it here",
        )
    if request.base == "scratch":
        raise UsageError("a base that is empty has no server to run", hint="leave --base out")
    refuse_missing_directory(parse_model_reference(request.model))


def container_of_image(
    engine: Any, text: str, asked: RunOptions, settings: Settings
) -> ContainerSpec:
    """Return the container of an image that is there."""
    image = find_packaged(engine, text, state_dir(os.environ))
    is_held = check_running(image.name, image.digests, settings)
    services = services_for(settings)
    here, wished = services.find_instance(LOCAL), services.find_instance(image.instance)
    if reason := why_not_here(wished, here):
        raise not_this_machine(image.instance, reason, f"packager push {image.name} HOST/NAME:TAG")
    name = asked.name or run_name(image.model or image.name.partition(":")[0])
    check_free(engine, name, asked.port)
    return ContainerSpec(
        name=name,
        # What was looked at is what is started: a name may mean another image by then.
        image=image.id if is_held else image.name,
        model=image.model,
        port=asked.port,
        env=asked.env,
        gpus=here.kind == "nvidia",
        grace_s=image.grace_s,
    )


def container_of_model(
    engine: Any,
    request: BuildRequest,
    asked: RunOptions,
    own: Mapping[str, Any],
    say: Callable[[str], None],
) -> tuple[ContainerSpec, Callable[[EventSink], list[str]]]:
    """Plan; return the container, and what builds its image: the line that `build` runs."""
    planning = replace(settings_for(request), **own, headers_only=True)
    services = services_for(planning)
    here = services.find_instance(LOCAL)
    if reason := why_not_here(services.find_instance(request.instance), here):
        build = f"packager build --model {request.model} --instance {request.instance}"
        raise not_this_machine(request.instance, reason, f"{build} --output HOST/NAME:TAG")
    plan = pipeline.plan(request, services).plan
    wanted = _container_of(plan, asked, gpus=here.kind == "nvidia")
    check_free(engine, wanted.name, asked.port)
    base = request.base or plan.container.default_base
    finished = request.model_copy(update={"outputs": (f"docker:{wanted.image}",)})

    def build_image(on_event: EventSink) -> list[str]:
        whole = followed_by(on_event, *FIRST_STAGES.stages, "start")
        build_missing_base(base, say, whole, plan.platform)
        settings = replace(settings_for(finished), **own, on_event=followed_by(on_event, "start"))
        record = pipeline.build(finished, services_for(settings))
        return brief_lines(record)

    return wanted, build_image


def start(
    engine: Any, wanted: ContainerSpec, asked: RunOptions, ending: ExitStack, on_event: EventSink
) -> tuple[Started, Serving]:
    """Start the container and wait for its first answer; `ending` removes it."""

    def tell(detail: str, state: StepState = "running") -> None:
        on_event(StepEvent(step="start", detail=detail, state=state))

    wanted = with_capture(engine, wanted, asked.capture)
    tell(wanted.image, "started")
    server = ending.enter_context(started(engine, wanted, tell))
    ready = wait_until_ready(server, asked.deadline_s, tell)
    tell(f"{wanted.name} answers at {server.url}", "finished")
    return server, Serving(
        name=wanted.name,
        address=ready.address,
        image=wanted.image,
        container=server.container.short_id,
        seconds=ready.seconds,
        detached=asked.detach,
    )


def _container_of(plan: Plan, asked: RunOptions, *, gpus: bool) -> ContainerSpec:
    name = asked.name or run_name(plan.served_name)
    return ContainerSpec(
        name=name,
        image=image_name(name),
        model=plan.served_name,
        takes_port=plan.container.traits.takes_port,
        port=asked.port,
        env=asked.env,
        gpus=gpus,
        grace_s=plan.stopping.grace_s if plan.stopping else PLATFORM_GRACE_S,
    )
