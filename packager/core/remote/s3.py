"""Objects of S3 as segments: every request holds only for the content that was listed.

boto3 does the talking, and takes region, endpoint and credentials from the
usual AWS environment.  It is an optional extra, imported when first needed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from artifact_cache.distribution import install_command
from artifact_cache.s3.buckets import list_pages, strong_etag
from artifact_cache.s3.client import REQUEST_PAYER, call_s3, connect_s3
from artifact_cache.s3.failures import AnswerTooLate, AnswerTooLong, S3Failure, failure_of
from packager.core.documents import shorten
from packager.core.errors import (
    AccessDenied,
    ModelRefused,
    NotFound,
    PackagerError,
    ProtocolFailed,
    Unavailable,
    UsageError,
)
from packager.core.image import RemoteRange
from packager.core.remote.addresses import S3, S3Address, parse_s3
from packager.core.remote.refusals import Refusal, ServerError, find_refusal
from packager.core.remote.resume import BrokenOff, read_resumed, wrong_content

PIECE = 64 * 1024
CONNECT_TIMEOUT_S = 10
READ_TIMEOUT_S = 30
CONNECTIONS = 16
LARGEST_OBJECT = 2**63 - 1  # what a layer may have; S3 itself ends long before
_SERVER = "check AWS_ENDPOINT_URL: a complete S3 must answer there"
_EXPLAINED: Mapping[str, tuple[type[PackagerError], str, str]] = {
    "credentials": (
        AccessDenied,
        "there are no usable AWS credentials for bucket {!r}",
        "set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; "
        "`aws sts get-caller-identity` shows who you are",
    ),
    "circle": (
        ProtocolFailed,
        "S3 sends requests for bucket {!r} in a circle",
        "check AWS_REGION and AWS_ENDPOINT_URL",
    ),
    "foreign": (ProtocolFailed, "the answer for bucket {!r} is none of S3", _SERVER),
}
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


def object_changed(file: S3Address) -> ModelRefused:
    """Return an error: an S3 object changed since it was listed."""
    return ModelRefused(
        f"'s3://{file.bucket}/{file.key}' changed since it was listed",
        hint="wait until nothing writes to the model's prefix, then build again",
        code="ObjectChanged",
    )


class S3Refused(AccessDenied):
    """S3 refuses, and says why: a row of the table of refusals."""

    def __init__(self, name: str, refusal: Refusal, code: str) -> None:
        super().__init__(f"S3 refuses {name}: {refusal.says} ({code})", hint=refusal.hint)


class S3Reader:
    """Fetches `s3` segments when they are needed. Safe to use from several threads."""

    scheme = S3

    def __init__(
        self, client: Any | None = None, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._sleep = sleep

    def read(self, segment: RemoteRange) -> Iterator[bytes]:
        """Yield the segment's bytes, all of one version of the object."""
        file = parse_s3(segment.url)
        with self._lock:
            self._client = self._client or s3_client()

        def open_at(done: int) -> Generator[bytes]:
            return self._open(file, segment.offset + done, segment.offset + segment.length)

        what = f"'s3://{file.bucket}/{file.key}'"
        yield from read_resumed(open_at, segment.length, what=what, sleep=self._sleep)

    def _open(self, file: S3Address, first: int, end: int) -> Generator[bytes]:
        assert self._client is not None
        etag = strong_etag(file.etag)  # a weak one never matches: RFC 9110, section 13.1.1
        request = {"Bucket": file.bucket, "Key": file.key, "IfMatch": etag}
        # Of a whole object boto3 checks the checksum, where it has one.
        if (first, end) != (0, file.size):
            request["Range"] = f"bytes={first}-{end - 1}"
        with explained(file.bucket, file):
            answer = call_s3(self._client, "get_object", **request)
            with closing(answer["Body"]) as body:
                _check_answer(answer, file, first, end)
                held = b""  # the checksum is checked behind the last piece
                for piece in body.iter_chunks(PIECE):
                    if held:
                        yield held
                    held = piece
                if held:
                    yield held


def s3_client(*, patience_s: float | None = None) -> Any:
    """Connect to S3 as the environment says; with `patience_s` a request is sent once."""
    try:
        import boto3  # noqa: F401
    except ImportError as error:
        raise UsageError(
            "reading from s3:// needs boto3, which is not installed",
            hint=f"install it with `{install_command('boto3', 's3')}`",
        ) from error
    with explained("", None):
        return connect_s3(
            connect_s=patience_s or CONNECT_TIMEOUT_S,
            read_s=patience_s or READ_TIMEOUT_S,
            attempts=1 if patience_s else None,
            connections=CONNECTIONS,
        )


def list_bucket(client: Any, bucket: str, prefix: str) -> Iterator[S3Address]:
    """Yield the objects whose keys begin with a prefix, without directories as consoles make them.

    Raises what `explained` raises, and `ProtocolFailed` for rows that cannot be used.
    """
    with explained(bucket, None):
        for page in list_pages(partial(call_s3, client), Bucket=bucket, Prefix=prefix):
            for found in page.get("Contents", ()):
                listed = _listed(bucket, found)
                if not (listed.key.endswith("/") and listed.size == 0):
                    yield listed


def whole_object(found: S3Address) -> RemoteRange:
    """Return all bytes of an object, as it was listed."""
    return RemoteRange(url=found.url, offset=0, length=found.size)


@contextmanager
def explained(bucket: str, file: S3Address | None) -> Iterator[None]:
    """Explain failures of boto3 inside the block; with a `file`, what may pass is `BrokenOff`."""
    try:
        yield
    except AnswerTooLong as error:
        raise ProtocolFailed(str(error), hint=_SERVER) from error
    except AnswerTooLate as error:
        raise Unavailable(str(error), hint="run again later") from error
    except Exception as error:
        failure = failure_of(error)
        if failure is None:
            raise
        raise _explain(failure, error, bucket, file) from error


def _explain(
    failure: S3Failure, error: Exception, bucket: str, file: S3Address | None
) -> Exception:
    if failure.status or failure.code:
        return _by_answer(failure, bucket, file)
    if failure.kind == "damaged":
        return wrong_content(file.key if file else bucket, "its checksum differs")
    if failure.kind == "silent":
        return _passing(_no_answer(bucket, error), file)
    if failure.kind == "settings":
        return _bad_settings(error, bucket)
    kind, text, hint = _EXPLAINED[failure.kind]
    return kind(text.format(bucket), hint=hint)


def _bad_settings(error: Exception, bucket: str) -> UsageError:
    from botocore.exceptions import BotoCoreError

    of_settings = not bucket and isinstance(error, BotoCoreError)
    where = f": {error}" if of_settings else f" for bucket {bucket!r}" if bucket else ""
    return UsageError(
        f"the AWS settings do not work{where}",
        hint="check AWS_PROFILE, AWS_REGION and AWS_ENDPOINT_URL, and the bucket's name",
    )


def _by_answer(failure: S3Failure, bucket: str, file: S3Address | None) -> Exception:
    code, status = shorten(failure.code)[1:-1], failure.status
    shown = code or str(status)
    name = f"'s3://{bucket}/{file.key}'" if file else f"bucket {bucket!r}"
    server = ServerError(codes=(code,), text=failure.message)
    refusal = find_refusal("storage", "", status, server)
    if refusal is not None and refusal.kind == "access":
        return S3Refused(name, refusal, shown)
    if file and (status in (404, 416) or failure.kind == "condition"):
        return object_changed(file)
    if failure.kind in ("missing", "bucket"):
        return NotFound(f"there is no {name}", hint="check the name, and AWS_ENDPOINT_URL")
    if failure.kind == "busy":
        busy = Unavailable(f"S3 answers {shown} for {name}", hint="run again later")
        return _passing(busy, file, failure.after_s)
    if failure.kind == "denied":
        return AccessDenied(
            f"S3 refuses access to {name} ({shown})",
            hint="the credentials need s3:ListBucket on the bucket and s3:GetObject on its "
            f"objects; where its owner lets readers pay, set {REQUEST_PAYER}=requester",
        )
    lacks = status == 501 or code == "NotImplemented"
    hint = (
        "that server lacks a part of S3: docs/reference/s3-servers.md"
        if lacks
        else "check AWS_REGION"
    )
    return ProtocolFailed(f"S3 answers {shown} for {name}", hint=hint)


def _check_answer(answer: dict[str, Any], file: S3Address, first: int, end: int) -> None:
    """Servers that ignore If-Match or Range exist."""
    # Proxies that may compress what they pass on make the ETag a weak one.
    if strong_etag(answer.get("ETag")) != strong_etag(file.etag):
        raise object_changed(file)
    if answer.get("ContentLength") != end - first:
        raise ProtocolFailed(
            f"S3 sent {answer.get('ContentLength')} bytes of {file.key!r}, not {end - first}",
            hint="the server behind AWS_ENDPOINT_URL must know ranges",
        )


def _passing(failure: PackagerError, file: S3Address | None, after_s: float = 0.0) -> Exception:
    return BrokenOff(failure, retry_after_s=after_s) if file else failure


def _no_answer(bucket: str, error: Exception) -> Unavailable:
    url = str(getattr(error, "kwargs", {}).get("endpoint_url") or "")
    own = next((name for name in _ENDPOINTS if os.environ.get(name)), "")
    host = urlsplit(url).hostname or ""
    # A server may send elsewhere: only the user's own address and AWS' are repeated.
    if not own and not host.endswith((".amazonaws.com", ".amazonaws.com.cn")):
        url = "https://s3.amazonaws.com"
    # It reads every exception of TLS and sockets: loaded where there is one.
    from packager.core.remote.unreachable import unreachable

    found = unreachable(error, url, own)
    return Unavailable(
        f"S3 does not answer for bucket {bucket!r}: {found.where}: {found.reason}",
        hint=found.hint,
    )


def _listed(bucket: str, found: Mapping[str, Any]) -> S3Address:
    """Read one row of a listing; servers that leave fields out exist."""
    key, size, etag = found.get("Key"), found.get("Size"), found.get("ETag")
    modified = found.get("LastModified")
    if (
        not (isinstance(key, str) and key and isinstance(etag, str) and etag)
        or not (isinstance(size, int) and 0 <= size <= LARGEST_OBJECT)
        or not isinstance(modified, datetime)
    ):
        raise ProtocolFailed(
            f"the server behind bucket {bucket!r} lists an object without a key, size, ETag and "
            "time that can be used",
            hint=_SERVER,
        )
    try:
        modified_us = max(0, int(modified.timestamp() * 1_000_000))
    except (OverflowError, ValueError):
        modified_us = 0  # outside the range of datetime
    return S3Address(bucket=bucket, key=key, size=size, etag=etag, modified_us=modified_us)
