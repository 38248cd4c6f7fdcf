"""Benchmarks from files: reports, directories that hold one, and build records."""

from __future__ import annotations

from pathlib import Path

from packager.bench.merge import Named, report_of_record
from packager.build.records import MAX_RECORD_BYTES, load_record
from packager.core.bench import SCHEMA, BenchReport
from packager.core.documents import NotStrict, parse_model, parse_object, shorten
from packager.errors import UsageError
from packager.files.user_files import read_user_file

REPORT = "bench.json"  # in a directory
HINT = (
    "name a benchmark's bench.json, or a build record: `packager build` writes one beside each "
    "oci: output and to --record FILE"
)


def read_benchmark(path: Path) -> Named:
    """Read one file, or a directory that holds `bench.json`.

    Raises `NotFound`, or `UsageError` for what is neither a report nor a record.
    """
    place = path / REPORT if path.is_dir() else path
    name = path.name if path.is_absolute() else str(path)  # pages are handed on
    data = read_user_file(place, what="the benchmark", hint=HINT, max_bytes=MAX_RECORD_BYTES)
    try:
        document = parse_object(data, max_bytes=MAX_RECORD_BYTES)
        if "request" in document and "variants" not in document:
            return Named(name=name, report=report_of_record(load_record(place)))
        if "variants" not in document:
            raise NotStrict("it has neither 'variants', as a report, nor 'request', as a record")
        version = document.get("schema_version")
        if version != SCHEMA:
            raise UsageError(
                f"{shorten(str(place), 200)} is a report of version {shorten(version)}; this "
                f"packager reads version {SCHEMA}",
                hint="measure again, or use the packager that wrote it",
            )
        report = parse_model(BenchReport, data, max_bytes=MAX_RECORD_BYTES)
    except NotStrict as error:
        raise UsageError(
            f"{shorten(str(place), 200)} is not a benchmark: {error}", hint=HINT
        ) from error
    if not report.variants:
        raise UsageError(f"{shorten(str(place), 200)} has no variant", hint=HINT)
    return Named(name=name, report=report)
