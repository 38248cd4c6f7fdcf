"""`packager bench --startup`: cold starts instead of loads."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from packager.addons.bench.commands.bench_work import command_words, machine_words, needs_gpus
from packager.addons.bench.load.spec import RequestSpec
from packager.addons.bench.options import BenchOptions
from packager.addons.bench.outputs import OutputPlace, parse_output, write_output_files
from packager.addons.bench.starting import Starter
from packager.addons.bench.startup_report import make_startup_report
from packager.addons.bench.startup_session import ROUNDS, STEP, measure_starts
from packager.addons.bench.startup_text import start_report
from packager.addons.bench.targets import find_targets
from packager.addons.bench.usage import UseMeter
from packager.catalog.machine import used_gpu_bytes
from packager.cli.progress import shown_progress
from packager.cli.serving.opening import is_address
from packager.cli.serving.pulling import has_image, pull_image
from packager.cli.terminal import note, print_result
from packager.cli.wiring.builds import services_for
from packager.cli.wiring.settings import Settings, state_dir
from packager.core.errors import PackagerError, SmokeFailed, UsageError
from packager.core.events import StagesEvent, StepEvent
from packager.core.reports.page import report_html
from packager.core.startup import StartupReport
from packager.core.text import json_text
from packager.images.target import engine_name, names_registry
from packager.pipeline.records import put_starts

REPORT, PAGE = "startup.json", "startup.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupOptions:
    """A benchmark of cold starts, with everything decided but its images."""

    servers: tuple[str, ...]
    rounds: int | None
    env: Mapping[str, str]
    pulls: bool
    drafts_off: bool
    deadline_s: float
    outputs: tuple[OutputPlace, ...]
    catalog_file: Path | None
    progress: str
    quiet: bool
    output_format: str


def check_startup(asked: BenchOptions, spec: RequestSpec, others: Mapping[str, object]) -> None:
    """Refuse options of loads: a cold start has none."""
    for owner in (dataclasses.replace(asked, rounds=None), spec):
        for field in dataclasses.fields(owner):
            if getattr(owner, field.name) != _default(field):
                raise _no_load(f"--{field.name.removesuffix('_s').replace('_', '-')}")
    for flag, value in others.items():
        if value:
            raise _no_load(flag)


def parse_places(places: Sequence[str]) -> tuple[OutputPlace, ...]:
    """Parse the places of results; an archive holds a load, which there is none of."""
    outputs = tuple(map(parse_output, places))
    archive = next((one for one in outputs if one.kind == "archive"), None)
    if archive is not None:
        raise UsageError(
            f"{archive.text!r} holds a load, and --startup measures none",
            hint="name a file *.json or *.html, or a directory with a slash at its end",
        )
    return outputs


def bench_startup(
    asked: StartupOptions,
    engine: Callable[[], Any],
    record_places: Callable[..., Mapping[str, Path]],
) -> None:
    """Start images in turns, print and keep the figures; raise what failed."""
    for name in asked.servers:
        _refuse(name, pulls=asked.pulls)
    services = services_for(Settings(catalog_file=asked.catalog_file))
    as_json = asked.output_format != "text"
    with shown_progress(asked.progress, quiet=asked.quiet, as_json=as_json) as on_event:
        on_event(StagesEvent(stages=(STEP,)))

        def say(line: str) -> None:
            on_event(StepEvent(step=STEP, state="running", detail=line))

        if asked.pulls:
            for name in map(engine_name, asked.servers):
                if not has_image(engine(), name):
                    pull_image(engine(), name, say)
        targets = find_targets(
            asked.servers,
            asked.env,
            connect=engine,
            state_dir=state_dir(os.environ),
            needs_gpus=partial(needs_gpus, services),
            drafts_off=asked.drafts_off,
            only_images=True,
        )
        records = record_places(targets)
        starter = Starter(
            connect=engine,
            deadline_s=asked.deadline_s,
            on_progress=say,
            meter=lambda container: UseMeter(container, gpu_memory=used_gpu_bytes),
            pulls=asked.pulls,
        )
        results = measure_starts(targets, asked.rounds or ROUNDS, starter.start, on_event)
    report = make_startup_report(
        targets,
        results,
        measured=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        machine=machine_words(services),
        command=command_words(sys.argv[1:]),
    )
    _keep(report, asked.outputs, records, quiet=asked.quiet or as_json)
    _print(report, asked.output_format)
    if results.is_interrupted:
        raise KeyboardInterrupt
    for name, error in results.failures.items():
        raise _failed(name, error) from error


def _refuse(name: str, *, pulls: bool) -> None:
    if is_address(name):
        raise UsageError(
            "--startup starts images, and a URL is of a server that runs",
            hint="name its image; without --startup, the server is put under load",
        )
    if pulls and not names_registry(engine_name(name)):
        raise UsageError(
            f"--pull removes the image and pulls it anew, and {name!r} names no registry",
            hint="name it as HOST/REPOSITORY:TAG, or leave --pull out",
        )


def _failed(name: str, error: PackagerError) -> SmokeFailed:
    log = error.log if isinstance(error, SmokeFailed) else ""
    return SmokeFailed(f"{name!r} did not start: {error.message}", hint=error.hint, log=log)


def _keep(
    report: StartupReport,
    outputs: Sequence[OutputPlace],
    records: Mapping[str, Path],
    *,
    quiet: bool,
) -> None:
    """Write every requested output, and the figures into records."""
    page = report_html(start_report(report)).encode()
    document = (json_text(report.model_dump(mode="json", exclude_none=True)) + "\n").encode()
    for output in outputs:
        if output.kind == "json":
            write_output_files(output, {"": document})
        elif output.kind == "html":
            write_output_files(output, {"": page})
        else:
            write_output_files(output, {REPORT: document, PAGE: page})
    for variant in report.startups:
        if variant.name in records and variant.starts:
            own = {"startups": (variant,), "compared": ()}
            put_starts(records[variant.name], report.model_copy(update=own))
    if not quiet:
        for output in outputs:
            note(f"written to {output.text}")
        for place in records.values():
            note(f"in the record {place}")


def _print(report: StartupReport, output_format: str) -> None:
    document = report.model_dump(mode="json", exclude_none=True)
    print_result(output_format, document, start_report(report))


def _default(field: dataclasses.Field[Any]) -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _no_load(flag: str) -> UsageError:
    """Return an error: an option of loads was combined with `--startup`."""
    return UsageError(
        f"{flag} is of loads, and --startup puts none on servers",
        hint=f"leave {flag} out, or --startup",
        code="_NoLoad",
    )
