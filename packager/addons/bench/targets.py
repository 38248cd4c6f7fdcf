"""Targets of a measurement: images of the Docker Engine, with their labels and records; addresses.

Labels and records are untrusted: values in another form than packager's are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packager.cli.run.images import find_pinned
from packager.cli.serving.containers import digests_of
from packager.cli.serving.openai import Server
from packager.cli.serving.opening import MeasuredServer, is_address
from packager.cli.serving.routes import Route
from packager.cli.wiring.settings import parse_started
from packager.core.bench_setup import BenchSetup
from packager.core.documents import NotStrict, parse_object
from packager.core.errors import UsageError
from packager.core.record import BuildRecord
from packager.engines.without_draft import without_draft
from packager.images.stored import RECORD
from packager.pipeline.records import find_record, load_record

INSTANCE, TITLE = "dev.packager.instance", "org.opencontainers.image.title"
NONE = "none"
_ADDRESS = re.compile(
    r"(?:localhost|\d{1,3}(?:\.\d{1,3}){3}|\[[\da-f:]+\]):\d{1,5}(?:/.*)?", re.ASCII
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchTarget:
    """A server to measure, and the facts known before the first request."""

    name: str  # in reports; without anything secret
    server: MeasuredServer
    setup: BenchSetup = field(default_factory=BenchSetup)
    record_place: Path | None = None  # of its build, on this machine
    record: BuildRecord | None = None


def find_targets(
    names: Iterable[str],
    env: Mapping[str, str],
    *,
    connect: Callable[[], Any],
    state_dir: Path,
    needs_gpus: Callable[[str], bool],
    drafts_off: bool = False,
    find_route: Callable[[str], Route | None] = lambda _: None,
    only_images: bool = False,
) -> tuple[BenchTarget, ...]:
    """Find every image and address; raises `NotFound`, or `UsageError` for what cannot be measured.

    `needs_gpus` gets the instance that an image was planned for, "" if unknown.  `find_route`
    returns the route to names with a scheme of their own, such as `sagemaker://`. `drafts_off` adds
    each image that has a draft once more, with its draft switched off. `only_images` takes
    HOST:PORT/NAME for an image's name, which else is an address misspelt.
    """
    found: list[BenchTarget] = []
    for name in names:
        if is_address(name) and (route := find_route(name)) is not None:
            server = MeasuredServer(name=name, env={}, route=route)
            found.append(BenchTarget(name=route.shown, server=server))
            continue
        if is_address(name):
            server = MeasuredServer(name=name, env={})
            found.append(BenchTarget(name=Server(name).shown, server=server))
            continue
        if not only_images:
            _refuse_bare_address(name)
        target, config = _find_image(name, env, connect, state_dir, needs_gpus)
        found.append(target)
        if drafts_off and target.setup.draft not in (None, NONE):
            found.append(_without_draft(target, config))
    _refuse_repeated(found)
    return tuple(found)


def _find_image(
    text: str,
    env: Mapping[str, str],
    connect: Callable[[], Any],
    state_dir: Path,
    needs_gpus: Callable[[str], bool],
) -> tuple[BenchTarget, Mapping[str, Any]]:
    wanted = parse_started(text, "bench")
    name, image = find_pinned(connect(), wanted, state_dir)
    config = image.attrs.get("Config") or {}
    labels = config.get("Labels") or {}
    digests = digests_of(image)
    place = find_record(state_dir, digests)
    record = load_record(place) if place else None
    setup = setup_of_labels(labels, digest=record.digest if record else digests[-1])
    gpus = needs_gpus(setup.instance)
    target = BenchTarget(
        name=name,
        server=MeasuredServer(name=name, env=dict(env), shown=name, gpus=gpus),
        setup=setup,
        record_place=place,
        record=record,
    )
    return target, config


def setup_of_labels(labels: Mapping[str, Any], *, digest: str = "") -> BenchSetup:
    """Return the facts on an image's labels; none for images of others."""
    try:
        record = parse_object(str(labels.get(RECORD, "{}")).encode())
    except (NotStrict, UnicodeEncodeError):
        record = {}
    if not record:
        return BenchSetup(digest=digest)
    asked, draft, tp_degree = record.get("request"), record.get("draft"), record.get("tp_degree")
    asked = asked if isinstance(asked, dict) else {}
    kind = draft.get("kind") if isinstance(draft, dict) else NONE
    return BenchSetup(
        model=_text(labels.get(TITLE)),
        instance=_text(labels.get(INSTANCE)),
        tp_degree=tp_degree if isinstance(tp_degree, int) and tp_degree > 0 else None,
        precision=_text(record.get("precision")),
        quantization=_text(asked.get("quantize")) or NONE,
        draft=_text(kind) or NONE,
        engine=_text(record.get("engine")),
        digest=digest,
    )


def _without_draft(target: BenchTarget, config: Mapping[str, Any]) -> BenchTarget:
    changes = without_draft(config)
    if changes is None:
        raise UsageError(
            f"no variable switches off the draft of {target.name!r}",
            hint="name the same image built with --draft none beside it, and leave "
            "--without-draft out",
        )
    shown = f"{target.name} without its draft"
    return BenchTarget(
        name=shown,
        server=MeasuredServer(
            name=target.server.name,
            env={**target.server.env, **changes},
            shown=shown,
            gpus=target.server.gpus,
        ),
        setup=target.setup.model_copy(update={"draft": NONE}),
    )


def _refuse_bare_address(text: str) -> None:
    """Refuse an address without its scheme, which would be looked for as an image."""
    if _ADDRESS.fullmatch(text):
        raise UsageError(
            f"{text!r} is read as an image of that name",
            hint=f"a server is named by its URL: http://{text}",
        )


def _refuse_repeated(found: Iterable[BenchTarget]) -> None:
    """Refuse one name twice: its rows would be indistinguishable."""
    names: set[str] = set()
    for target in found:
        if target.name in names:
            raise UsageError(
                f"{target.name!r} is named twice",
                hint="name it once; --rounds N measures it several times",
            )
        names.add(target.name)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
