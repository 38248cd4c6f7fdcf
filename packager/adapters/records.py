"""Keeping build records: in the state directory, and beside each layout."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from packager.adapters.files import explain_disk_errors, write_atomically
from packager.adapters.sinks.layout import split_layout_reference
from packager.adapters.user_files import read_user_file
from packager.core.documents import NotStrict, parse_model
from packager.core.record import RECORD_SCHEMA, BuildRecord
from packager.core.speculation import SpeculationReport
from packager.errors import OutputFailed, PackagerError, UsageError

MAX_RECORD_BYTES = 64 * 1024 * 1024  # it may list thousands of layers and answers


def check_place(path: Path) -> None:
    """Refuse a record file that cannot be written, before there is anything to record."""
    with explain_disk_errors(path):
        parent = path.absolute().parent
        while not parent.exists():
            parent = parent.parent
        if not parent.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def save_record(
    record: BuildRecord, *, state_dir: Path, copy_to: Path | None
) -> tuple[OutputFailed, ...]:
    """Write the record to its places, each at once or not at all.

    The image is named already, so that a place which we chose and cannot write
    is no failure of the build: it is given back.  `copy_to` was asked for, and raises.
    """
    ours = _place(state_dir, record.digest)
    data = _document(_with_earlier_figures(record, ours))
    places = [ours]
    for target in record.request.outputs:
        if target.startswith("oci:"):
            root, _ = split_layout_reference(target.removeprefix("oci:"))
            places.append(root.with_name(f"{root.name}.record.json"))
    failures = []
    for place in places:
        try:
            _write(place, data)
        except OutputFailed as failure:
            failures.append(failure)
    if copy_to is not None:
        _write(copy_to, data)
    return tuple(failures)


def find_record(state_dir: Path, digests: Collection[str]) -> Path | None:
    """Find the record of an image on this machine, by any digest that an engine knows it by."""
    wanted = [digest.encode() for digest in digests]
    for place in sorted((state_dir / "records").glob("*.json")):
        with suppress(OSError, PackagerError):
            data = place.read_bytes()
            likely = any(digest in data for digest in wanted)
            if likely and is_record_of(load_record(place), digests):
                return place
    return None


def is_record_of(record: BuildRecord, digests: Collection[str]) -> bool:
    """Whether one of the digests is the image's, or its configuration's."""
    return record.digest in digests or record.config_digest in digests


def put_speculation(place: Path, report: SpeculationReport) -> None:
    """Put what was measured into a record that is there."""
    record = load_record(place)
    _write(place, _document(record.model_copy(update={"speculation": report})))


def _with_earlier_figures(record: BuildRecord, place: Path) -> BuildRecord:
    """Keep what was measured of the same image: building it again changes nothing of that."""
    if record.speculation is not None or not place.is_file():
        return record
    with suppress(PackagerError):
        return record.model_copy(update={"speculation": load_record(place).speculation})
    return record


def _place(state_dir: Path, digest: str) -> Path:
    return state_dir / "records" / f"{digest.removeprefix('sha256:')}.json"


def _document(record: BuildRecord) -> bytes:
    """Spell a record. What was not given is left out; a figure that is no number is null."""
    document = record.model_dump(mode="json", exclude_none=True)
    for name in ("quality", "speculation"):
        if (figures := getattr(record, name)) is not None:
            document[name] = figures.model_dump(mode="json")
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def _write(place: Path, data: bytes) -> None:
    with explain_disk_errors(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(place, data)


def load_record(path: Path) -> BuildRecord:
    """Read a record, refusing what this version would misunderstand."""
    data = read_user_file(
        path,
        what="the record",
        hint="`packager build` writes one beside each oci: output and to --record FILE",
        max_bytes=MAX_RECORD_BYTES,
    )
    try:
        record = parse_model(BuildRecord, data, max_bytes=MAX_RECORD_BYTES)
    except NotStrict as error:
        raise UsageError(
            f"{str(path)!r} is not a build record: {error}",
            hint="use a record written by this version of packager",
        ) from error
    if record.schema_version != RECORD_SCHEMA:
        raise UsageError(
            f"{str(path)!r} is a record of version {record.schema_version}; "
            f"this packager reads version {RECORD_SCHEMA}",
            hint=f"repeat the build with packager {record.packager_version}, which wrote it",
        )
    return record
