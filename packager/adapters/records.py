"""Keeping build records: in the state directory, and beside each layout."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from packager.adapters.files import explain_disk_errors, write_atomically
from packager.adapters.sinks.layout import split_layout_reference
from packager.core.record import BuildRecord
from packager.errors import NotFound, UsageError


def save_record(record: BuildRecord, *, state_dir: Path, copy_to: Path | None) -> None:
    """Write the record to its places, each at once or not at all."""
    data = (record.model_dump_json(indent=2, exclude_none=True) + "\n").encode()
    places = [state_dir / "records" / f"{record.digest.removeprefix('sha256:')}.json"]
    for target in record.request.outputs:
        if target.startswith("oci:"):
            root, _ = split_layout_reference(target.removeprefix("oci:"))
            places.append(root.with_name(f"{root.name}.record.json"))
    if copy_to is not None:
        places.append(copy_to)
    for place in places:
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
        return BuildRecord.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the document"
        raise UsageError(
            f"{str(path)!r} is not a build record: {where}: {first['msg'].lower()}",
            hint="use a record written by this version of packager",
        ) from error
