"""Keeping build records: in the state directory, and beside each layout."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from packager.core.bench import BenchReport
from packager.core.documents import NotStrict, parse_model
from packager.core.errors import OutputFailed, PackagerError, UsageError
from packager.core.files.atomic import explain_disk_errors, write_atomically
from packager.core.files.user_files import read_user_file
from packager.core.quality import QualityReport
from packager.core.record import READ_SCHEMAS, RECORD_SCHEMA, BuildRecord, RecordedSmoke
from packager.core.speculation import SpeculationReport
from packager.core.startup import StartupReport
from packager.core.text import hide_secrets

_LATER = ("speculation", "bench", "starts", "smoke")  # measured after a build
MAX_RECORD_BYTES = 64 * 1024 * 1024  # it may list thousands of layers and answers


def save_record(
    record: BuildRecord,
    *,
    state_dir: Path,
    copy_to: Path | None,
    beside: Sequence[Path] = (),
) -> tuple[OutputFailed, ...]:
    """Write the record to its places atomically; return the errors of optional places.

    The image already has its name, so a place of our own that cannot be written does not fail the
    build: its error is returned.  `copy_to` was requested, and raises.  `beside` are places beside
    the images.
    """
    ours = _place(state_dir, record.digest)
    data = record_document(_with_earlier_figures(record, ours))
    failures = []
    for place in (ours, *beside):
        try:
            _write(place, data)
        except OutputFailed as failure:
            failures.append(failure)
    if copy_to is not None:
        _write(copy_to, data)
    return tuple(failures)


def find_record(state_dir: Path, digests: Collection[str]) -> Path | None:
    """Find the record of an image on this machine, by any digest that an engine shows for it."""
    wanted = [digest.encode() for digest in digests]
    for place in sorted((state_dir / "records").glob("*.json")):
        with suppress(OSError, PackagerError):
            data = place.read_bytes()
            likely = any(digest in data for digest in wanted)
            if likely and is_record_of(load_record(place), digests):
                return place
    return None


def find_quality(state_dir: Path, keys: Collection[str]) -> QualityReport | None:
    """Find the measured quality of a step's result, by its key, in the records of this machine."""
    wanted = [key.encode() for key in keys if key]
    for place in sorted((state_dir / "records").glob("*.json")) if wanted else ():
        with suppress(OSError, PackagerError):
            data = place.read_bytes()
            if not any(key in data for key in wanted):
                continue
            record = load_record(place)
            if record.quality and any(step.key in keys for step in record.steps if step.key):
                return record.quality
    return None


def is_record_of(record: BuildRecord, digests: Collection[str]) -> bool:
    """Whether one of the digests is the image's, or its configuration's."""
    return any(digest in digests for digest in (*record.digests, record.config_digest))


def put_speculation(place: Path, report: SpeculationReport) -> None:
    """Add a measurement of speculation to an existing record."""
    _put(place, {"speculation": report})


def put_bench(place: Path, report: BenchReport) -> None:
    """Add a benchmark to an existing record; it takes the place of an earlier one."""
    _put(place, {"bench": report})


def put_measured(place: Path, report: BenchReport | None, quality: QualityReport | None) -> None:
    """Add a job's measurements to its record; other measurements stay as they are."""
    found = {"bench": report, "quality": quality}
    _put(place, {name: figures for name, figures in found.items() if figures is not None})


def put_smoke(place: Path, answer: RecordedSmoke) -> None:
    """Add a deployment's answer to an existing record; it takes the place of an earlier one."""
    _put(place, {"smoke": answer})


def put_starts(place: Path, report: StartupReport) -> None:
    """Add measured cold starts to an existing record; they take the place of earlier ones."""
    _put(place, {"starts": report})


def _put(place: Path, figures: Mapping[str, object]) -> None:
    record = load_record(place)
    changes = {"schema_version": RECORD_SCHEMA, **figures}
    _write(place, record_document(record.model_copy(update=changes)))


def _with_earlier_figures(record: BuildRecord, place: Path) -> BuildRecord:
    """Return the record with earlier measurements of the same image."""
    missing = [name for name in _LATER if getattr(record, name) is None]
    if not missing or not place.is_file():
        return record
    with suppress(PackagerError):
        earlier = load_record(place)
        return record.model_copy(update={name: getattr(earlier, name) for name in missing})
    return record


def _place(state_dir: Path, digest: str) -> Path:
    return state_dir / "records" / f"{digest.removeprefix('sha256:')}.json"


def record_document(record: BuildRecord) -> bytes:
    """Serialize a record without absent fields; NaN becomes null."""
    document = record.model_dump(mode="json", exclude_none=True)
    for name in ("quality", *_LATER):
        if (figures := getattr(record, name)) is not None:
            document[name] = figures.model_dump(mode="json")
    return hide_secrets(json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def _write(place: Path, data: bytes) -> None:
    with explain_disk_errors(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(place, data)


def load_record(path: Path) -> BuildRecord:
    """Read a record, refusing versions that this one cannot interpret."""
    data = read_user_file(
        path,
        what="the record",
        hint="`packager build` writes one beside each oci: output and to --record FILE",
        max_bytes=MAX_RECORD_BYTES,
    )
    return parse_record(data, str(path))


def parse_record(data: bytes, name: str) -> BuildRecord:
    """Parse a record, refusing versions that this one cannot interpret; `name` is for messages."""
    try:
        record = parse_model(BuildRecord, data, max_bytes=MAX_RECORD_BYTES)
    except NotStrict as error:
        raise UsageError(
            f"{name!r} is not a build record: {error}",
            hint="use a record written by this version of packager",
        ) from error
    if record.schema_version not in READ_SCHEMAS:
        raise UsageError(
            f"{name!r} is a record of version {record.schema_version}; "
            f"this packager reads versions {READ_SCHEMAS[0]} to {READ_SCHEMAS[-1]}",
            hint=f"repeat the build with packager {record.packager_version}, which wrote it",
        )
    return record
