"""The build record attached to an image, for readers without access to the building machine.

It describes the image's inputs, and leaves out the machine: paths, names of other outputs, times.
(Credentials in a request are refused when it is planned.) Equal builds attach equal bytes, so that
building again attaches nothing more.
"""

from __future__ import annotations

import re
from typing import Any

from packager.core.documents import NotStrict, parse_model
from packager.core.errors import PackagerError
from packager.core.image import Attached, Descriptor
from packager.core.record import READ_SCHEMAS, BuildRecord, RecordedFinding, RecordedStep, Transfer
from packager.core.text import hide_userinfo
from packager.images.attached import MAX_BYTES, MEDIA_RECORD, attach_document, document_of
from packager.images.opened import OpenImage
from packager.images.target import LAYOUT
from packager.pipeline.records import record_document

MODEL = "org.opencontainers.image.title"  # annotation; not every registry lists annotations
_LONGEST_DETAIL = 64
_KIND = re.compile(r"[a-z0-9_]+:(?!//)")  # of a draft: `eagle3:REF`


def record_artifact(record: BuildRecord, subject: Descriptor) -> Attached | None:
    """Return the artifact that attaches the record to its image; None where it is too large."""
    data = record_document(published(record))
    if len(data) > MAX_BYTES // 2:
        return None
    return attach_document(subject, data, MEDIA_RECORD, {MODEL: record.served_name})


def attached_records(found: OpenImage) -> tuple[BuildRecord, ...]:
    """Return the readable records attached to an image.

    They are unproven claims of anybody with push access; records of another image are left out.
    """
    records = (_parse(artifact) for artifact in found.attached(MEDIA_RECORD))
    return tuple(one for one in records if one and found.image.digest in one.digests)


def published(record: BuildRecord) -> BuildRecord:
    """Return what of a record others may read."""
    request = record.request
    fields: dict[str, Any] = {
        name: _without_path(value)
        for name in ("draft", "calibration", "evaluate", "workload")
        if isinstance(value := getattr(request, name), str)
    }
    local = record.model.source == "local"
    fields["model"] = f"./{_last(request.model)}" if local else _without_path(request.model)
    fields["outputs"] = ()
    fields["base"] = request.base and published_base(request.base)
    base = record.base.model_copy(update={"reference": published_base(record.base.reference)})
    draft = record.draft and record.draft.model_copy(
        update={"name": _without_path(record.draft.name)}
    )
    return record.model_copy(
        update={
            "request": request.model_copy(update=fields),
            "model": record.model.model_copy(update={"name": _without_path(record.model.name)}),
            "base": base,
            "draft": draft,
            "images": (),
            "trees": (),
            "findings": tuple(
                RecordedFinding(severity=one.severity, code=one.code, message="")
                for one in record.findings
            ),
            "steps": tuple(map(_step, record.steps)),
            "transfer": Transfer(),
            "speculation": None,
            "bench": None,
            "smoke": None,
            "seconds": 0.0,
        }
    )


def _step(step: RecordedStep) -> RecordedStep:
    """Return what made a result, without when and how long."""
    return step.model_copy(
        update={
            "reused": False,
            "seconds": 0.0,
            "peak_memory_bytes": 0,
            "details": {name: one for name, one in step.details.items() if _is_plain(one)},
        }
    )


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= _LONGEST_DETAIL and "/" not in value
    return isinstance(value, bool | int | float)


def _without_path(text: str) -> str:
    """Return a reference without the directories of this machine, and without who logs in."""
    if "://" in text:
        return hide_userinfo(text).partition("?")[0]
    kind, colon, rest = text.partition(":") if _KIND.match(text) else ("", "", text)
    if rest.startswith(("/", ".", "~")) or rest.count("/") > 1:
        return f"{kind}{colon}./{_last(rest)}"
    return text


def published_base(reference: str) -> str:
    """Return the base image's reference, of a layout without the directories above it."""
    scheme, colon, rest = reference.partition(":")
    if scheme in (LAYOUT, "tar"):
        return f"{scheme}{colon}{_last(rest)}"
    return hide_userinfo(reference)


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2] or "model"


def _parse(artifact: Attached) -> BuildRecord | None:
    try:
        data = document_of(artifact, MEDIA_RECORD)
        record = parse_model(BuildRecord, data, max_bytes=MAX_BYTES) if data else None
    except (NotStrict, PackagerError):
        return None
    return record if record and record.schema_version in READ_SCHEMAS else None
