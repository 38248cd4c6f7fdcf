"""Load formats of weights: which an engine supports, which is chosen, and its options.

The table is `data/load_formats.toml`.  A format becomes options of the engine by its own
names, so that every family renders and checks it like an option that the user set.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from packager.catalog.listing import Filter, Record
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding
from packager.core.key_options import plain_name
from packager.core.plan import Plan
from packager.core.references import parse_bucket_place
from packager.core.share import read_shipped
from packager.core.suggestions import guessed
from packager.core.units import decimal
from packager.core.user_catalog import UserCatalog
from packager.core.versions import is_before, version_key

TABLE = Path(__file__).parent / "data" / "load_formats.toml"
OPTION, SETTINGS = "load-format", "model-loader-extra-config"
AUTO, OWN = "auto", ""
STREAMER = "runai_streamer"  # the one format that reads buckets

_THREADS = re.compile(r"threads=([1-9]\d{0,3})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFormat:
    """One way of loading with one engine, and what was measured of it."""

    name: str
    engine: str
    since: str
    devices: tuple[str, ...]
    least_bytes: int
    measured: str
    source: str
    date: str
    threads: str = ""
    switch: str = ""
    default_threads: int = 0  # that `auto` asks for
    package: str = ""
    package_since: str = ""

    def is_in(self, container: ContainerFacts) -> bool:
        """Return whether this version of the engine has the format, for the container's device."""
        return (
            self.engine == container.engine
            and container.kind in self.devices
            and version_key(container.engine_version) is not None
            and not is_before(container.engine_version, self.since)
        )

    def is_installed(self, container: ContainerFacts) -> bool:
        """Return whether images of this version are known to hold what the format needs."""
        if not self.package:
            return True
        since = self.package_since
        return bool(since) and not is_before(container.engine_version, since)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenLoadFormat:
    """How the weights will be loaded; `name` "": as the engine does by itself."""

    name: str = OWN
    options: tuple[tuple[str, str], ...] = ()  # of the engine
    streams_from: str = ""  # a bucket's place that the engine reads itself
    findings: tuple[Finding, ...] = ()


@cache
def load_formats() -> tuple[LoadFormat, ...]:
    """Return every row, the preferred first."""
    rows = read_shipped(TABLE)["format"]
    return tuple(LoadFormat(**{**row, "devices": tuple(row["devices"])}) for row in rows)


def choose_load_format(
    requested: str | None, plan: Plan, place: str, *, compiles: bool
) -> ChosenLoadFormat:
    """Return what `--load-format` means for a plan: options of the engine, or why it cannot be.

    Weights that are mounted, and lie in a bucket, are streamed from there by who can. `place` is
    the model as requested; `compiles`: a step without a network starts the engine.
    """
    chosen = _chosen(requested, plan)
    if (
        chosen.name != STREAMER
        or parse_bucket_place(place) is None
        or plan.weights != "mounted"
        or plan.one_mount
        or compiles
        or not plan.container.traits.reads_buckets
    ):
        return chosen
    message = f"the server reads {place} itself when it starts: nothing is to be mounted"
    hint = "give it credentials that may read there; what changes there is served unchecked"
    noted = Finding("note", "load-format-streams", message, hint)
    return replace(chosen, streams_from=place, findings=(*chosen.findings, noted))


def _chosen(asked: str | None, plan: Plan) -> ChosenLoadFormat:
    if asked is None:
        return ChosenLoadFormat()
    name, _, setting = asked.partition(",")
    threads = _THREADS.fullmatch(setting)
    if setting and threads is None:
        message = f"{setting[:40]!r} is not a setting of a load format"
        hint = f"write `--load-format {name[:40]},threads=8`, or leave it out"
        return _refused(message, hint)
    if said := sorted(
        {plain_name(one).removeprefix("option.") for one, _ in plan.engine_options}
        & {OPTION, SETTINGS}
    ):
        message = f"--load-format {asked[:40]} and the engine's own option {said[0]} say the same"
        return _refused(message, "give one of them", code="options-conflict")
    count = int(threads[1]) if threads else 0
    if name == AUTO:
        return _known_best(plan, count)
    return _named(name, count, plan)


def _known_best(plan: Plan, threads: int) -> ChosenLoadFormat:
    """Return the first format that was measured to be faster for weights of this size."""
    for row in _worth_it(plan):
        if threads and not row.threads:
            continue
        message = f"weights are loaded with {row.name}: {row.measured} ({row.source})"
        noted = Finding("note", "load-format-chosen", message, "measure it on your own disk")
        return _with_options(row, threads or row.default_threads, (noted,))
    size = decimal(plan.profile.weight_bytes)
    engine = f"{plan.container.engine} {plan.container.engine_version}"
    message = f"nothing is known to load {size} faster than {engine} does by itself"
    return ChosenLoadFormat(findings=(Finding("note", "load-format-own", message),))


def _named(name: str, threads: int, plan: Plan) -> ChosenLoadFormat:
    container = plan.container
    had = [row for row in load_formats() if row.is_in(container)]
    row = next((row for row in had if row.name == name), None)
    engine = f"{container.engine} {container.engine_version}"
    if row is None:
        names = [one.name for one in had]
        message = f"{engine} for {container.family} on {container.kind} has no load format "
        message += f"{name[:40]!r} that packager knows"
        hint = f"use one of {', '.join((AUTO, *names))}" if names else "leave --load-format out"
        return _refused(message, guessed(name, (AUTO, *names), hint))
    if threads and not row.threads:
        message = f"{engine} cannot be told with how many threads {name} reads"
        return _refused(message, f"use `--load-format {name}`")
    findings: tuple[Finding, ...] = ()
    if not row.is_installed(container):
        message = f"{name} needs the package {row.package}, which nobody knows to be in the image"
        hint = "look for it in the image, or use `--load-format auto`"
        findings = (Finding("warning", "load-format-package", message, hint),)
    return _with_options(row, threads, findings)


def _with_options(row: LoadFormat, threads: int, findings: tuple[Finding, ...]) -> ChosenLoadFormat:
    options = [(OPTION, row.name)]
    if threads:
        settings: dict[str, bool | int] = {row.switch: True} if row.switch else {}
        settings[row.threads] = threads
        options.append((SETTINGS, json.dumps(settings)))
    return ChosenLoadFormat(name=row.name, options=tuple(options), findings=findings)


def _refused(message: str, hint: str, *, code: str = "load-format-unsupported") -> ChosenLoadFormat:
    return ChosenLoadFormat(findings=(Finding("error", code, message, hint),))


def list_load_formats(own: UserCatalog, wanted: Filter) -> list[Record]:  # noqa: ARG001
    """Return one record per load format of an engine, the preferred first."""
    return [
        {
            "engine": row.engine,
            "format": row.name,
            "since": row.since,
            "devices": list(row.devices),
            "threads": row.threads or None,
            "package": row.package or None,
            "in_images_since": (row.package_since or None) if row.package else row.since,
            "auto_from_gb": row.least_bytes / 1e9 or None,
            "measured": row.measured or None,
            "source": row.source,
            "date": row.date,
        }
        for row in load_formats()
        if wanted.device in (None, *row.devices)
    ]


def suggest_load_format(plan: Plan) -> Iterator[Finding]:
    """Yield a note on a faster load format that this engine has, for large weights on a GPU."""
    asked = {plain_name(name).removeprefix("option.") for name, _ in plan.engine_options}
    if plan.instance.kind != "nvidia" or {OPTION, SETTINGS} & asked or plan.compiler:
        return
    for row in _worth_it(plan):
        message = f"{row.name} may load the weights faster: {row.measured} ({row.source})"
        hint = f"try --load-format {row.name}; measure it on your own disk"
        yield Finding("note", "load-format-to-try", message, hint)
        return


def _worth_it(plan: Plan) -> Iterator[LoadFormat]:
    """Yield formats that were measured to be faster, in images that hold all they need."""
    for row in load_formats():
        is_measured = row.least_bytes and plan.profile.weight_bytes >= row.least_bytes
        if is_measured and row.is_in(plan.container) and row.is_installed(plan.container):
            yield row
