"""Plans and images: `plan`, `build` and `push`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, Unpack

import packager.api.shown
from packager.api.fields import RequestFields
from packager.api.requests import (
    PathOrName,
    api_settings,
    events_to,
    log,
    make_api_request,
    texts_of,
)
from packager.cli.wiring.builds import services_for
from packager.cli.wiring.settings import PolicyChoice, Settings, parse_output
from packager.core.errors import UsageError
from packager.core.events import EventSink, StagesEvent
from packager.core.image import ImageRef
from packager.core.plan import Plan
from packager.core.record import BuildRecord
from packager.pipeline import pipeline

packager.api.shown.prepare()
View = Literal["weights", "modelpack", "kserve", "modelcar", "docker"]


def plan(model: PathOrName, instance: str, **fields: Unpack[RequestFields]) -> Plan:
    """Decide how a model runs on an instance; read headers only and build nothing.

    Raises `PlanRejected` with every finding where no plan works.
    """
    request = make_api_request(model, instance, fields)
    settings = replace(api_settings(request), headers_only=True, region=request.region)
    return pipeline.plan(request, services_for(settings)).plan


def build(
    model: PathOrName,
    instance: str,
    *,
    output: str | Sequence[str],
    progress: EventSink | None = None,
    **fields: Unpack[RequestFields],
) -> BuildRecord:
    """Write the image to `output`, one place or several, and return its record.

    An output is `oci:DIR[:TAG]`, `docker:NAME:TAG`, `REGISTRY/REPOSITORY:TAG`, `dir:DIR` or
    `s3://BUCKET/PREFIX`.  Steps run and their results are kept in the artifact cache, as `packager
    build` does without options.  `progress` is called with each event, from several threads.
    """
    outputs = texts_of(output)
    request = make_api_request(model, instance, fields, outputs)
    if not outputs:
        raise UsageError("no output is given", hint="name one, such as output='oci:DIR'")
    settings = replace(api_settings(request, progress), policy=PolicyChoice(is_enforced=True))
    return pipeline.build(request, services_for(settings))


def push(
    source: str,
    destination: str | Sequence[str],
    *,
    view: View | None = None,
    adapter_only: str | None = None,
    platform: str = "linux/amd64",
    progress: EventSink | None = None,
) -> tuple[ImageRef, ...]:
    """Copy an image, a view of it, or one of its adapters alone; return what was written.

    Both are `oci:DIR[:TAG]`, `docker:NAME` or `REGISTRY/REPOSITORY:TAG`.  Layers that are there,
    or can be mounted, are not read.
    """
    from packager.cli.shared_options import parse_platform
    from packager.cli.wiring.images import image_services_for
    from packager.images.copy import copy_attached, copy_image
    from packager.images.views import view_of

    make = view_of(view, adapter_only)
    targets = tuple(map(parse_output, texts_of(destination)))
    if not targets:
        raise UsageError("no destination is given", hint="name one, such as 'HOST/NAME:TAG'")
    on_event = events_to(progress)
    on_event(StagesEvent(stages=("image", "layers", "publish")))
    tools = image_services_for(
        Settings(
            outputs=targets,
            on_event=on_event,
            on_warning=log.warning,
            policy=PolicyChoice(is_enforced=True),
        )
    )
    found = tools.open(parse_output(source), parse_platform(platform))
    written, _ = copy_image(
        found,
        tools.write,
        runnable_only=tools.runnable_only,
        view=make,
    )
    copy_attached(found, written, tools.attach, log.warning)
    return tuple(written.refs)
