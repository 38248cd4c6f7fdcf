"""Objects of S3 as segments: every request holds only for the content that was listed.

boto3 does the talking, and takes region, endpoint and credentials from the
usual AWS environment.  It is an optional extra, imported when first needed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

from artifact_cache.aws import REQUEST_PAYER, aws_client, aws_session, call_s3, s3_client_of
from artifact_cache.buckets import strong_etag
from artifact_cache.distribution import install_command
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
from packager.core.remote.resume import (
    TRANSIENT,
    BrokenOff,
    read_resumed,
    retry_after_s,
    wrong_content,
)

PIECE = 64 * 1024
CONNECT_TIMEOUT_S = 10
READ_TIMEOUT_S = 30
CONNECTIONS = 16
ATTEMPTS = 3  # where the user's settings have no other number
LONGEST_ANSWER = 16 * 1024 * 1024  # bytes; a page of a thousand objects has some 2 MB
ANSWER_S = 300.0
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
        from botocore.config import Config
    except ImportError as error:
        raise UsageError(
            "reading from s3:// needs boto3, which is not installed",
            hint=f"install it with `{install_command('boto3', 's3')}`",
        ) from error
    with explained("", None):
        session = aws_session()
        attempts = session._session.get_config_variable("max_attempts") or ATTEMPTS
        mode = session._session.get_config_variable("retry_mode")

        def make(**own: Any) -> Any:
            config = Config(
                connect_timeout=patience_s or CONNECT_TIMEOUT_S,
                read_timeout=patience_s or READ_TIMEOUT_S,
                max_pool_connections=CONNECTIONS,
                retries={
                    "mode": "adaptive" if mode == "adaptive" else "standard",
                    "total_max_attempts": 1 if patience_s else attempts,
                },
                user_agent_extra="packager",
                **own,
            )
            return aws_client("s3", session, config=config)

        client = s3_client_of(make)
    return limit_answers(client)


def limit_answers(client: Any) -> Any:
    """Limit how many bytes of any response boto3 reads.

    boto3 reads every answer whole but the body of an object, and that too when it is an error.
    """

    def send(request: Any, **_: Any) -> Any:
        wants_body = request.stream_output
        request.stream_output = True  # leave the body on the wire
        answer = client._endpoint.http_session.send(request)
        if not wants_body or answer.status_code >= 300:
            answer._content = _document(answer.raw)
        return answer

    client.meta.events.register("before-send.s3", send)
    return client


def _document(raw: Any) -> bytes:
    data = bytearray()
    started = time.monotonic()
    for piece in raw.stream(PIECE, decode_content=False):
        data += piece
        if len(data) > LONGEST_ANSWER:
            raw.close()
            raise ProtocolFailed(
                f"an answer of S3 has more than {LONGEST_ANSWER} bytes",
                hint="check AWS_ENDPOINT_URL: a complete S3 must answer there",
            )
        if time.monotonic() - started > ANSWER_S:
            raw.close()
            raise Unavailable(
                f"an answer of S3 was not there after {ANSWER_S:.0f} s", hint="run again later"
            )
    return bytes(data)


@contextmanager
def explained(bucket: str, file: S3Address | None) -> Iterator[None]:
    """Explain failures of boto3 inside the block; with a `file`, what may pass is `BrokenOff`.

    Its messages are not passed on: they can hold addresses with signatures.
    """
    from botocore import exceptions
    from botocore.parsers import ResponseParserError

    try:
        yield
    except exceptions.ClientError as error:
        raise _by_answer(error.response, bucket, file) from error
    except exceptions.FlexibleChecksumError as error:
        raise wrong_content(file.key if file else bucket, "its checksum differs") from error
    except (
        exceptions.NoCredentialsError,
        exceptions.PartialCredentialsError,
        exceptions.CredentialRetrievalError,
        exceptions.TokenRetrievalError,
        exceptions.SSOError,
    ) as error:
        raise AccessDenied(
            f"there are no usable AWS credentials for bucket {bucket!r}",
            hint="set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; "
            "`aws sts get-caller-identity` shows who you are",
        ) from error
    except (exceptions.HTTPClientError, exceptions.ConnectionError) as error:
        raise _passing(_no_answer(bucket, error), file) from error
    except (exceptions.IncompleteReadError, OSError) as error:
        raise _passing(_no_answer(bucket, error), file) from error
    except RecursionError as error:  # a redirect to the same address, without end
        raise ProtocolFailed(
            f"S3 sends requests for bucket {bucket!r} in a circle",
            hint="check AWS_REGION and AWS_ENDPOINT_URL",
        ) from error
    except (ResponseParserError, ArithmeticError, LookupError, TypeError, RuntimeError) as error:
        raise ProtocolFailed(
            f"the answer for bucket {bucket!r} is none of S3",
            hint="check AWS_ENDPOINT_URL: a complete S3 must answer there",
        ) from error
    except (exceptions.BotoCoreError, ValueError) as error:
        of_settings = not bucket and isinstance(error, exceptions.BotoCoreError)
        where = f": {error}" if of_settings else f" for bucket {bucket!r}" if bucket else ""
        raise UsageError(
            f"the AWS settings do not work{where}",
            hint="check AWS_PROFILE, AWS_REGION and AWS_ENDPOINT_URL, and the bucket's name",
        ) from error


def _by_answer(answer: dict[str, Any], bucket: str, file: S3Address | None) -> Exception:
    code = shorten(str(answer.get("Error", {}).get("Code", "")))[1:-1]
    metadata = answer.get("ResponseMetadata", {})
    status = int(metadata.get("HTTPStatusCode", 0))
    name = f"'s3://{bucket}/{file.key}'" if file else f"bucket {bucket!r}"
    told = str(answer.get("Error", {}).get("Message", ""))
    refusal = find_refusal("storage", "", status, ServerError(codes=(code,), text=told))
    if refusal is not None and refusal.kind == "access":
        return S3Refused(name, refusal, code or str(status))
    if file and (status in (404, 412, 416) or code == "PreconditionFailed"):
        return object_changed(file)
    if status == 404 or code == "NoSuchBucket":
        return NotFound(f"there is no {name}", hint="check the name, and AWS_ENDPOINT_URL")
    if code in ("SlowDown", "RequestTimeout", "InternalError") or status in TRANSIENT:
        busy = Unavailable(f"S3 answers {code or status} for {name}", hint="run again later")
        asked = metadata.get("HTTPHeaders", {}).get("retry-after")
        return _passing(busy, file, retry_after_s(asked))
    if status in (401, 403):
        return AccessDenied(
            f"S3 refuses access to {name} ({code or status})",
            hint="the credentials need s3:ListBucket on the bucket and s3:GetObject on its "
            f"objects; where its owner lets readers pay, set {REQUEST_PAYER}=requester",
        )
    lacks = status == 501 or code == "NotImplemented"
    hint = (
        "that server lacks a part of S3: docs/reference/s3-servers.md"
        if lacks
        else "check AWS_REGION"
    )
    return ProtocolFailed(f"S3 answers {code or status} for {name}", hint=hint)


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
