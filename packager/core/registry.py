"""Known limits and behaviour of a registry before the first request.

They are a first guess only: what the registry says or refuses while it is used wins.
0 means that no limit is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# The ways of sending a blob, all of the distribution specification:
# one PATCH of all of it, several PATCHes that name their ranges, or the closing PUT with a body,
# which must name the digest before the bytes have been seen.
UploadForm = Literal["stream", "ranges", "put"]

UPLOAD_FORMS: tuple[UploadForm, ...] = ("stream", "ranges", "put")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryTraits:
    """Limits and habits of the registries whose `HOST[:PORT]` fits a pattern of `hosts`."""

    name: str
    hosts: tuple[str, ...] = ()  # as in file names: `*.dkr.ecr.*.amazonaws.com`
    layer_bytes: int = 0  # the largest layer
    layers: int = 0  # of one image
    manifest_bytes: int = 0  # the largest manifest; the specification asks for 4 MiB at least
    upload_s: float = 0.0  # until the upload of a layer is cut off
    body_bytes: int = 0  # of one request
    chunk_bytes: int = 0  # of one PATCH that names its range
    forms: tuple[UploadForm, ...] = UPLOAD_FORMS  # that work, the preferred first
    mounts: str = ""  # in words: `yes`, `yes, from is required`, `account setting`
    referrers: str = ""  # in words; computed on each call
    create: str = ""  # the command that makes a missing repository, with {repository} and {host}
    note: str = ""
    source: str = ""
    date: str = ""


UNKNOWN_REGISTRY = RegistryTraits(name="")
