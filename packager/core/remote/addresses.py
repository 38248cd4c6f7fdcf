"""Addresses of remote files that can only ever mean one content.

    hf://ORG/NAME@COMMIT/PATH?size=N&sha256=HEX      (or git_sha1=HEX)
    s3://BUCKET/KEY?size=N&etag=ETAG&modified=MICROSECONDS

What identifies the content is in the address: a digest that was computed for
an address is still right when the address is met again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlencode

from packager.core.errors import PackagerError
from packager.core.image import RemoteRange

HUB, S3 = "hf", "s3"

_HUB_URL = re.compile(r"hf://(?P<name>[^/@?]+/[^/@?]+)@(?P<commit>[0-9a-f]{40})/(?P<path>[^?]+)")
_S3_URL = re.compile(r"s3://(?P<bucket>[^/?]+)/(?P<key>[^?]+)")
_REGISTRY_URL = re.compile(r"registry://[^?]+@sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubAddress:
    """Address of one file of a Hub commit, with its listed size and digest."""

    name: str  # `org/name`
    commit: str
    path: str
    size: int
    sha256: str = ""  # of Git LFS files, hexadecimal
    git_sha1: str = ""  # of the others

    @property
    def url(self) -> str:
        query: dict[str, str | int] = {"size": self.size}
        if self.sha256:
            query["sha256"] = self.sha256
        if self.git_sha1:
            query["git_sha1"] = self.git_sha1
        return f"hf://{self.name}@{self.commit}/{quote(self.path)}?{urlencode(query)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Address:
    """Address of one S3 object, with size and ETag as listed."""

    bucket: str
    key: str
    size: int
    etag: str  # with its quotation marks, as S3 spells it
    modified_us: int

    @property
    def url(self) -> str:
        query = {"size": self.size, "etag": self.etag, "modified": self.modified_us}
        return f"s3://{self.bucket}/{quote(self.key)}?{urlencode(query)}"


def parse_hub(url: str) -> HubAddress:
    """Parse the URL that `HubAddress.url` returned."""
    place, _, query = url.partition("?")
    found = _HUB_URL.fullmatch(place)
    fields = dict(parse_qsl(query))
    if found is None or not fields.get("size", "").isdecimal():
        raise _not_an_address(url)
    return HubAddress(
        name=found["name"],
        commit=found["commit"],
        path=unquote(found["path"]),
        size=int(fields["size"]),
        sha256=fields.get("sha256", ""),
        git_sha1=fields.get("git_sha1", ""),
    )


def parse_s3(url: str) -> S3Address:
    """Parse the URL that `S3Address.url` returned."""
    place, _, query = url.partition("?")
    found = _S3_URL.fullmatch(place)
    fields = dict(parse_qsl(query))
    if (
        found is None
        or not fields.get("etag")
        or not fields.get("size", "").isdecimal()
        or not fields.get("modified", "").isdecimal()
    ):
        raise _not_an_address(url)
    return S3Address(
        bucket=found["bucket"],
        key=unquote(found["key"]),
        size=int(fields["size"]),
        etag=fields["etag"],
        modified_us=int(fields["modified"]),
    )


def content_of(segment: RemoteRange) -> str:
    """Return the content identity of a segment; "" where its bytes may change.

    A hub's file with a sha256 is that content wherever it is: a new commit
    leaves the shards it does not touch known.  A part of a file cannot be held
    against its digest, unless the parts are read in order.  S3 answers a range
    only while the ETag is the listed one.
    """
    scheme = segment.url.partition("://")[0]
    try:
        if scheme == HUB:
            file = parse_hub(segment.url)
            if (segment.offset, segment.length) != (0, file.size) and not is_in_order(segment):
                return ""
            return f"sha256:{file.sha256}" if file.sha256 else segment.url if file.git_sha1 else ""
        if scheme == S3:
            return "" if parse_s3(segment.url).etag.startswith("W/") else segment.url
    except PackagerError:
        return ""
    return segment.url if _REGISTRY_URL.fullmatch(segment.url) else ""


def is_in_order(segment: RemoteRange) -> bool:
    """Whether only reading the file's parts one after another proves them all."""
    return segment.in_order and segment.url.startswith(f"{HUB}://")


def _not_an_address(url: str) -> PackagerError:
    return PackagerError(f"{url!r} is not the address of a pinned file")
