"""Tells from its form alone where a model reference points."""

from __future__ import annotations

import re
from pathlib import Path

from packager.errors import UsageError

HUB_ID = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95})(@(?P<revision>[\w./-]{1,255}))?",
    re.ASCII,
)
S3_URL = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(/(?P<prefix>.*))?")
# `.`, `/` or `~` in front, `/` at the end, or more than one `/`.
PATH = re.compile(r"[./~].*|.*/|[^/]*/[^/]*/.*", re.DOTALL)


def choose_source(reference: str) -> str:
    """Name the source. A path that exists wins over a hub id of the same form."""
    is_url = "://" in reference
    if reference and not is_url and _exists(reference):
        return "local"
    if HUB_ID.fullmatch(reference):
        return "hub"
    if PATH.fullmatch(reference) and not is_url:
        return "local"
    if reference.startswith("hf://") and HUB_ID.fullmatch(reference, len("hf://")):
        return "hf"
    if S3_URL.fullmatch(reference):
        return "s3"
    raise UsageError(
        f"{reference!r} is neither a directory nor a hub id",
        hint="write a directory as `./DIR`, a hub id as `org/name` or `org/name@revision`; "
        "`hf://org/name` and `s3://BUCKET/PREFIX` are streamed",
    )


def _exists(reference: str) -> bool:
    try:
        return Path(reference).exists()
    except OSError:  # too long for a path, or below a directory that may not be read
        return False
