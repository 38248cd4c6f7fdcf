"""Parsing model references: a directory, `org/name[@revision]`, `hf://…` or `s3://BUCKET/PREFIX`.

A JumpStart id that the catalog has stands for the hub id of its model.

The only module that parses this grammar.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from artifact_cache.s3.buckets import why_no_bucket
from packager.catalog.models import find_model, similar_model
from packager.core.errors import UsageError
from packager.core.references import (
    BucketReference,
    DirectoryReference,
    HubReference,
    ModelReference,
    parse_bucket_place,
)
from packager.core.suggestions import nearest
from packager.models.suggestions import hub_id_of_page, is_below_directory, similar_directory

# A revision is whatever git calls a branch or a tag (git-check-ref-format), in ASCII.
_HUB_ID = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95})"
    r"(@(?P<revision>[!-)+-9;->@-Z\]_-}]{1,255}))?",
    re.ASCII,
)
# `.`, `/` or `~` in front, `/` at the end, more than one `/`, or Windows' own slash.
_PATH = re.compile(r"[./~].*|.*/|[^/]*/[^/]*/.*|.*\\.*", re.DOTALL)
_STREAMED = "hf://"
_SCHEMES = ("hf", "s3")


def _is_ours(scheme: str) -> bool:  # noqa: ARG001
    return False


def parse_model_reference(
    text: str, is_outside: Callable[[str], bool] = _is_ours
) -> ModelReference:
    """Parse the reference of a model; raises `UsageError` for an invalid one.

    A path that exists wins over a hub id of the same form, and so does a path whose parent
    directory exists: a misspelt path is never requested from a hub.  With a revision it is a hub
    id. `is_outside` recognizes sources of plug-ins, which accept `NAME://…`.
    """
    scheme, colon, _ = text.partition("://")
    if colon and is_outside(scheme):
        return ModelReference(text=text, source=scheme)
    if text and not colon and _exists(text):
        return DirectoryReference(text=text, source="local", path=text)
    if is_hub_id(text) and is_below_directory(text):
        return DirectoryReference(text=text, source="local", path=text)
    if found := _parse_hub(text) or _parse_jumpstart(text):
        return found
    if _PATH.fullmatch(text) and not colon:
        return DirectoryReference(text=text, source="local", path=text)
    if place := parse_bucket_place(text):
        if why := why_no_bucket(place.bucket):
            hint = "write s3://BUCKET/PREFIX, or the ARN of an access point behind s3://"
            raise UsageError(f"{text!r} is neither a directory nor a bucket: {why}", hint=hint)
        prefix = place.key.rstrip("/")
        return BucketReference(
            text=text,
            source="s3",
            bucket=place.bucket,
            prefix=f"{prefix}/" if prefix else "",
        )
    raise UsageError(f"{text!r} is neither a directory nor a hub id", hint=_otherwise(text))


def is_hub_id(text: str) -> bool:
    """Whether the text is `org/name`, which a directory could be called, too."""
    found = _HUB_ID.fullmatch(text)
    return found is not None and found["revision"] is None


def hub_of(reference: ModelReference) -> HubReference:
    """Narrow a reference whose source is `hub` or `hf`."""
    if not isinstance(reference, HubReference):
        raise TypeError(f"{reference.text!r} is not on a hub")
    return reference


def directory_of(reference: ModelReference) -> DirectoryReference:
    """Narrow a reference whose source is `local`."""
    if not isinstance(reference, DirectoryReference):
        raise TypeError(f"{reference.text!r} is not a directory")
    return reference


def bucket_of(reference: ModelReference) -> BucketReference:
    """Narrow a reference whose source is `s3`."""
    if not isinstance(reference, BucketReference):
        raise TypeError(f"{reference.text!r} is not in a bucket")
    return reference


def _parse_hub(text: str) -> HubReference | None:
    is_streamed = text.startswith(_STREAMED)
    match = _HUB_ID.fullmatch(text, len(_STREAMED) if is_streamed else 0)
    if match is None:
        return None
    revision = match["revision"]
    if revision is not None and any(part in ("", ".", "..") for part in revision.split("/")):
        raise UsageError(
            f"{text!r} is not a hub id", hint="write `org/name` or `org/name@revision`"
        )
    return HubReference(
        text=text,
        source="hf" if is_streamed else "hub",
        name=match["name"],
        revision=revision,
        is_streamed=is_streamed,
    )


def _parse_jumpstart(text: str) -> HubReference | None:
    known = find_model(text) if text and "/" not in text else None
    return _parse_hub(known.hf_id) if known else None


def _otherwise(text: str) -> str:
    """Return the hint for a text that no source takes."""
    scheme, colon, rest = text.partition("://")
    meant = hub_id_of_page(text)
    if not colon:
        meant = similar_directory(text) or similar_model(text)
    elif not meant and rest and (close := nearest(scheme.lower(), _SCHEMES)):
        meant = f"{close}://{rest}" if close != scheme else ""
    if meant:
        return f"did you mean {meant!r}? a directory is written `./DIR`, a hub id `org/name`"
    return (
        "write a directory as `./DIR`, a hub id as `org/name` or `org/name@revision`; "
        "`hf://org/name` and `s3://BUCKET/PREFIX` are streamed"
    )


def _exists(text: str) -> bool:
    try:
        return Path(text).exists()
    except OSError:  # too long for a path, or below a directory that may not be read
        return False
