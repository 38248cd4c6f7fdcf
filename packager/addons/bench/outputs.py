"""Where the results of a benchmark go: one file, a directory of them, or a bucket."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from packager.addons.bench.export import (
    ARCHIVE,
    HISTORY,
    SWEEP,
    archive,
    aws_files,
    json_bytes,
    level_name,
    load_files,
    records,
    sweep_document,
)
from packager.addons.bench.load.values import LoadRun
from packager.addons.bench.search_history import history_document
from packager.addons.bench.session import OneLoad, Results
from packager.core.bench import BenchReport
from packager.core.errors import UsageError
from packager.core.files.atomic import explain_disk_errors, write_atomically
from packager.core.references import BucketPlace, parse_bucket_place
from packager.core.text import hide_secrets, json_text

Kind = Literal["json", "html", "archive", "directory"]

REPORT, PAGE, REQUESTS = "bench.json", "bench.html", "requests.jsonl"
ARCHIVE_FOLDER = "output"  # in which SageMaker's jobs have their archive
_KINDS: Mapping[str, Kind] = {".json": "json", ".html": "html", ".tar.gz": "archive"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPlace:
    """A place to write to, as the command line names it."""

    text: str
    kind: Kind
    bucket: BucketPlace | None = None  # None: of this machine's files


def parse_output(text: str) -> OutputPlace:
    """Return what a place holds, by its name; raise `UsageError` where the name does not tell."""
    name = PurePosixPath(text.rstrip("/")).name
    bucket = parse_bucket_place(text)
    if bucket is not None and not (bucket.bucket and bucket.key.strip("/")):
        raise UsageError(
            f"--output {text!r} names a bucket, and no place in it",
            hint="write s3://BUCKET/PREFIX/, or s3://BUCKET/KEY.json",
        )
    for ending, kind in _KINDS.items():
        if name.endswith(ending) and not text.endswith("/"):
            return OutputPlace(text=text, kind=kind, bucket=bucket)
    is_there = bucket is None and Path(text).is_dir()
    if "." in name and not (text.endswith("/") or is_there):
        raise UsageError(
            f"--output {text!r} ends like no form of a result",
            hint=f"name a file *.json, *.html or {ARCHIVE}, or a directory with a slash at its end",
        )
    return OutputPlace(text=text, kind="directory", bucket=bucket)


def check_archive(
    outputs: Sequence[OutputPlace], servers: int, loads: int, *, searches: bool
) -> None:
    """Refuse one archive for several loads: readers take the first that they find."""
    many = servers > 1 or (loads != 1 and not searches)
    archive = next((one for one in outputs if one.kind == "archive"), None)
    if archive is not None and many:
        raise UsageError(
            f"{archive.text!r} can hold one load of one server",
            hint="add --concurrency N, or name a directory: it gets an archive for each load",
        )


def files_of(
    output: OutputPlace,
    report: BenchReport,
    results: Results,
    page: Callable[[BenchReport], str],
) -> dict[str, bytes]:
    """Return the files of a place by relative path; that of a single file is ""."""
    if output.kind == "json":
        return {"": report_bytes(report)}
    if output.kind == "html":
        return {"": page(report).encode()}
    runs = runs_of(report, results)
    histories = {
        place: history_document(results.searches[variant.name])
        for place, variant in enumerate(report.variants)
        if variant.name in results.searches
    }
    archives = aws_files(report, runs, histories)
    if output.kind == "archive":
        chosen = [name for name in archives if name.endswith(f"/search/{ARCHIVE}")] or [*archives]
        return {"": archives[chosen[0]]} if chosen else {}
    return {
        REPORT: report_bytes(report),
        PAGE: page(report).encode(),
        **(_whole_archive(report, runs, histories) or archives),
        **_single_files(report, runs, histories, archives),
    }


def report_bytes(report: BenchReport) -> bytes:
    """Return a report as the JSON that `plan --measured` and `packager report` read."""
    return (json_text(report.model_dump(mode="json", exclude_none=True)) + "\n").encode()


def runs_of(report: BenchReport, results: Results) -> dict[tuple[int, int], list[LoadRun]]:
    """Return the rounds of each load, by the places of variant and load in the report."""
    found: dict[tuple[int, int], list[LoadRun]] = {}
    for place, variant in enumerate(report.variants):
        levels = list(results.by_level(variant.name))
        for number, (_, rounds) in enumerate(levels):
            found[place, number] = [one.run for one in rounds]
    return found


def write_files(place: Path, files: Mapping[str, bytes]) -> None:
    """Write each file whole or not at all; raise `OutputFailed`."""
    for name, data in files.items():
        path = place / name if name else place
        with explain_disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, data)


def write_output_files(output: OutputPlace, files: Mapping[str, bytes]) -> None:
    """Write the files of a place, on this machine or in its bucket."""
    if output.bucket is not None:
        from packager.core.remote.s3_write import put_files

        put_files(output.bucket, files)
    else:
        write_files(Path(output.text), files)


def append_requests(output: OutputPlace, done: OneLoad) -> None:
    """Append the requests of a load that has just ended; only a directory of this machine has them.

    A benchmark that is killed leaves those of all loads that ended before.
    """
    if output.kind != "directory" or output.bucket:
        return
    path = Path(output.text) / REQUESTS
    load = {"server": done.target, "load": done.level.words, "round": done.round}
    lines = [hide_secrets(json.dumps({**load, **record})) + "\n" for record in records([done.run])]
    with explain_disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.writelines(lines)


def forget_requests(output: OutputPlace) -> None:
    """Remove the requests of an earlier benchmark."""
    if output.kind == "directory" and not output.bucket:
        path = Path(output.text) / REQUESTS
        with explain_disk_errors(path):
            path.unlink(missing_ok=True)


def _whole_archive(
    report: BenchReport,
    runs: Mapping[tuple[int, int], Sequence[LoadRun]],
    histories: Mapping[int, Mapping[str, object]],
) -> dict[str, bytes]:
    """Return one archive of everything, where SageMaker's jobs have theirs; of one server alone.

    The files of one load are at its root, those of several in folders beside a table of all.  No
    other archive is there: readers take the first that they find.
    """
    if len(report.variants) != 1:
        return {}
    (variant,) = report.variants
    files = {HISTORY: json_bytes(histories[0])} if 0 in histories else {}
    if len(variant.loads) > 1:
        files[SWEEP] = json_bytes(sweep_document(variant))
    for number, load in enumerate(variant.loads):
        folder = f"{level_name(load)}/" if len(variant.loads) > 1 else ""
        found = load_files(report, variant, load, runs.get((0, number), ()))
        files |= {f"{folder}{name}": data for name, data in found.items()}
    return {f"{ARCHIVE_FOLDER}/{ARCHIVE}": archive(files)} if files else {}


def _single_files(
    report: BenchReport,
    runs: Mapping[tuple[int, int], Sequence[LoadRun]],
    histories: Mapping[int, Mapping[str, object]],
    archives: Mapping[str, bytes],
) -> dict[str, bytes]:
    """Return what the archives hold, beside them: for readers that open no archive."""
    found: dict[str, bytes] = {}
    folders = iter([str(PurePosixPath(name).parent) for name in archives])
    for place, variant in enumerate(report.variants):
        for number, load in enumerate(variant.loads):
            folder = next(folders)
            files = load_files(report, variant, load, runs.get((place, number), ()))
            found |= {f"{folder}/{name}": data for name, data in files.items()}
        if place in histories:
            found[f"{next(folders)}/{HISTORY}"] = json_bytes(histories[place])
    return found
