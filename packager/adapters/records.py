"""Keeping build records: in the state directory, and beside each layout."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from pydantic import ValidationError

from packager.adapters.files import explain_disk_errors, write_atomically
from packager.adapters.sinks.layout import split_layout_reference
from packager.core.record import RECORD_SCHEMA, BuildRecord
from packager.errors import NotFound, OutputFailed, UsageError


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
    data = (record.model_dump_json(indent=2, exclude_none=True) + "\n").encode()
    places = [state_dir / "records" / f"{record.digest.removeprefix('sha256:')}.json"]
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


def _write(place: Path, data: bytes) -> None:
    with explain_disk_errors(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(place, data)


def load_record(path: Path) -> BuildRecord:
    """Read a record, refusing what this version would misunderstand."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise NotFound(
            f"cannot read the record {str(path)!r}: {error.strerror}",
            hint="`packager build` writes one beside each oci: output and to --record FILE",
        ) from error
    try:
        record = BuildRecord.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the document"
        raise UsageError(
            f"{str(path)!r} is not a build record: {where}: {first['msg'].lower()}",
            hint="use a record written by this version of packager",
        ) from error
    if record.schema_version != RECORD_SCHEMA:
        raise UsageError(
            f"{str(path)!r} is a record of version {record.schema_version}; "
            f"this packager reads version {RECORD_SCHEMA}",
            hint=f"repeat the build with packager {record.packager_version}, which wrote it",
        )
    return record
