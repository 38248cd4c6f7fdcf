"""Benchmarks from files and buckets: reports, summaries of AIPerf and vLLM, build records."""

from __future__ import annotations

from pathlib import Path

from packager.addons.bench.aiperf_reports import is_aiperf, report_of_aiperf
from packager.addons.bench.merge import Named, report_of_record, report_of_starts
from packager.addons.bench.vllm_results import report_of_vllm
from packager.core.bench import SCHEMA, BenchReport
from packager.core.documents import NotStrict, parse_model, parse_object, shorten
from packager.core.errors import NotFound, UsageError
from packager.core.files.user_files import read_user_file
from packager.core.references import BucketPlace, parse_bucket_place
from packager.core.startup import StartupReport
from packager.estimate.performance.vllm_runs import is_vllm_run
from packager.pipeline.records import MAX_RECORD_BYTES, parse_record

HISTORY_SUFFIX = ".jsonl"  # of files with a benchmark a line
REPORTS = ("bench.json", "startup.json")  # in a directory, the first that it has
HINT = (
    "name a benchmark's bench.json or startup.json, AIPerf's profile_export_aiperf.json, what "
    "`vllm bench serve` saved, or a build record: `packager build` writes one beside each oci: "
    "output and to --record FILE"
)


def read_benchmark(reference: Path | str) -> Named:
    """Read one file, or a directory that holds one of `REPORTS`, of this machine or of a bucket.

    Raises `NotFound`, `UsageError` for a file that is not a benchmark, and errors of S3.
    """
    if isinstance(reference, str) and (place := parse_bucket_place(reference)) is not None:
        return _parse(_read_object(place, reference), reference, reference)
    path = Path(reference)
    file = _report_in(path) if path.is_dir() else path
    name = path.name if path.is_absolute() else str(path)  # pages are handed on
    data = read_user_file(file, what="the benchmark", hint=HINT, max_bytes=MAX_RECORD_BYTES)
    return _parse(data, str(file), name)


def read_history(reference: str) -> list[Named]:
    """Read every benchmark of a history, the oldest first; raise `UsageError` naming a bad line."""
    path = Path(reference)
    data = read_user_file(path, what="the history", hint=HINT, max_bytes=MAX_RECORD_BYTES)
    found = []
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            one = _parse(line, f"line {number} of {reference}", path.name)
            found.append(Named(name=one.report.measured, report=one.report))
    if not found:
        raise UsageError(f"{shorten(reference, 200)} has no benchmark in it", hint=HINT)
    return found


def read_baseline(reference: str) -> Named:
    """Read the benchmark that another is held against: of a history, its last one."""
    if reference.endswith(HISTORY_SUFFIX):
        return Named(name=reference, report=read_history(reference)[-1].report)
    return read_benchmark(reference)


def _report_in(directory: Path) -> Path:
    places = [directory / name for name in REPORTS]
    return next((place for place in places if place.is_file()), places[0])


def _read_object(place: BucketPlace, text: str) -> bytes:
    """Read an object, or the report of the directory of that name."""
    from packager.core.remote.s3 import S3Reader, list_bucket, s3_client, whole_object

    client = s3_client()
    directory = place.key.rstrip("/")
    wanted = [f"{directory}/{name}".lstrip("/") for name in REPORTS]
    if directory and directory == place.key:
        wanted.insert(0, directory)
    for key in wanted:
        # Keys are listed in order: the requested one is the first, or missing.
        found = next(list_bucket(client, place.bucket, key), None)
        if found is None or found.key != key:
            continue
        if found.size > MAX_RECORD_BYTES:
            raise UsageError(f"{shorten(text, 200)} is larger than any benchmark", hint=HINT)
        return b"".join(S3Reader(client).read(whole_object(found)))
    raise NotFound(f"no benchmark at {shorten(text, 200)}", hint=HINT)


def _parse(data: bytes, place: str, name: str) -> Named:
    try:
        document = parse_object(data, max_bytes=MAX_RECORD_BYTES)
        if "request" in document and "variants" not in document:
            record = parse_record(data, place)
            return Named(name=name, report=report_of_record(record))
        if is_aiperf(document):
            return Named(name=name, report=report_of_aiperf(document, name))
        if is_vllm_run(document):
            return Named(name=name, report=report_of_vllm(document, name))
        starts = "startups" in document and "variants" not in document
        if "variants" not in document and not starts:
            raise NotStrict("it has neither 'variants', as a report, nor 'request', as a record")
        version = document.get("schema_version")
        if version != SCHEMA:
            raise UsageError(
                f"{shorten(place, 200)} is a report of version {shorten(version)}; this "
                f"packager reads version {SCHEMA}",
                hint="measure again, or use the packager that wrote it",
            )
        if starts:
            report = report_of_starts(parse_model(StartupReport, data, max_bytes=MAX_RECORD_BYTES))
        else:
            report = parse_model(BenchReport, data, max_bytes=MAX_RECORD_BYTES)
    except NotStrict as error:
        raise UsageError(f"{shorten(place, 200)} is not a benchmark: {error}", hint=HINT) from error
    if not report.variants:
        raise UsageError(f"{shorten(place, 200)} has no variant", hint=HINT)
    return Named(name=name, report=report)
