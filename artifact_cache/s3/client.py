"""Clients of S3 that keep to the user's own settings, and whose answers have limits."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

from artifact_cache.aws import aws_client, aws_session
from artifact_cache.s3.failures import AnswerTooLate, AnswerTooLong

REQUEST_PAYER = "AWS_REQUEST_PAYER"  # `requester`: of buckets whose readers pay; GDAL's name for it
# Backblaze: "Unsupported header 'x-amz-checksum-sha256' received for this API call."
_OF_CHECKSUMS = re.compile(r"(?i)x-amz-(sdk-)?checksum|x-amz-trailer|UNSIGNED-PAYLOAD-TRAILER")
_LONGEST_TOLD = 1000
_WITHOUT: WeakSet[Any] = WeakSet()  # clients that send no checksums
_CHECKSUMS = "request_checksum_calculation"
_AWS = (".amazonaws.com", ".amazonaws.com.cn", ".amazonaws.eu", ".on.aws")
ATTEMPTS = 3
LONGEST_ANSWER = 16 * 1024 * 1024  # bytes; a page of a thousand objects has some 2 MB
ANSWER_S = 300.0
_PIECE = 64 * 1024


def connect_s3(
    *, connect_s: float, read_s: float, attempts: int | None, connections: int, **place: str | None
) -> Any:
    """Return a client; raises `ImportError` without boto3, and what it raises for its settings.

    `attempts` None is as many as the user's settings say, three by default.  `place` is
    `endpoint_url` and `region_name`, where they are not the user's.
    """
    from botocore.config import Config

    session = aws_session()
    said = session._session.get_config_variable

    def make(**own: Any) -> Any:
        config = Config(
            connect_timeout=connect_s,
            read_timeout=read_s,
            max_pool_connections=connections,
            retries={
                "mode": "adaptive"
                if not attempts and said("retry_mode") == "adaptive"
                else "standard",
                "total_max_attempts": attempts or said("max_attempts") or ATTEMPTS,
            },
            user_agent_extra="packager",
            **own,
        )
        return aws_client("s3", session, config=config, **place)

    return limit_answers(s3_client_of(make))


def s3_client_of(make: Callable[..., Any]) -> Any:
    """Return a client of S3 that keeps to the user's own settings.

    `make` gets fields of a configuration of botocore.  Other servers than AWS seldom have a host
    name for each bucket: paths are used there unless `addressing_style` is set in AWS's files.  Nor
    do they all know botocore's own CRC32, which comes as a trailer in chunks of AWS's kind
    (ovh/public-cloud-roadmap#781); the checksums that we compute are plain headers and stay.
    With `request_checksum_calculation = when_required` no checksum is sent that S3 does not demand,
    since there are servers that refuse the header (boto/s3transfer#327).
    """
    client = make()
    few = getattr(client.meta.config, _CHECKSUMS, "") == "when_required"
    is_aws = (urlsplit(client.meta.endpoint_url).hostname or "").endswith(_AWS)
    if not is_aws:
        own: dict[str, Any] = {} if few else {_CHECKSUMS: "when_required"}
        if "addressing_style" not in (client.meta.config.s3 or {}):
            own["s3"] = {"addressing_style": "path"}
        client = make(**own)
    payer = os.environ.get(REQUEST_PAYER, "")

    def adapt(params: dict[str, Any], model: Any, **_: Any) -> dict[str, Any]:
        adapted = _without_checksums(params) if client in _WITHOUT else dict(params)
        if payer and "RequestPayer" in model.input_shape.members:
            adapted.setdefault("RequestPayer", payer)
        return adapted

    client.meta.events.register("provide-client-params.s3", adapt)
    if few:
        _WITHOUT.add(client)
    return client


def call_s3(client: Any, operation: str, **request: Any) -> Any:
    """Send an operation of S3; a server that refuses headers of checksums gets none from then on.

    Raises what the client does.
    """
    from botocore.exceptions import ClientError

    knew = client in _WITHOUT  # before: another thread may learn it meanwhile
    try:
        return getattr(client, operation)(**request)
    except ClientError as error:
        message = str(error.response.get("Error", {}).get("Message", ""))
        if knew or not _OF_CHECKSUMS.search(message[:_LONGEST_TOLD]):
            raise
    _WITHOUT.add(client)
    client.meta.config.response_checksum_validation = "when_required"
    body: Any = request.get("Body")
    if hasattr(body, "seek"):
        body.seek(0)
    return getattr(client, operation)(**request)


def _without_checksums(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: one for key, one in value.items() if not key.startswith("Checksum")}
        return {key: _without_checksums(one) for key, one in kept.items()}
    return [_without_checksums(one) for one in value] if isinstance(value, list) else value


def limit_answers(client: Any) -> Any:
    """Limit how many bytes of any response boto3 reads; for how long.

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
    for piece in raw.stream(_PIECE, decode_content=False):
        data += piece
        if len(data) > LONGEST_ANSWER:
            raw.close()
            raise AnswerTooLong(f"an answer of S3 has more than {LONGEST_ANSWER} bytes")
        if time.monotonic() - started > ANSWER_S:
            raw.close()
            raise AnswerTooLate(f"an answer of S3 was not there after {ANSWER_S:.0f} s")
    return bytes(data)
