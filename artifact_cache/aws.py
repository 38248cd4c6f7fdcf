"""Sessions of boto3 that share what botocore's files say of AWS's services; settings of users.

Each session reads them anew otherwise: 55 of the 60 ms of processor time that a client of S3
takes.  Nothing of a user's is shared: each session looks for credentials, region and profile.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from functools import cache
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

from artifact_cache.secrets import remember_headers

_MAKING = threading.Lock()
REQUEST_PAYER = "AWS_REQUEST_PAYER"  # `requester`: of buckets whose readers pay; GDAL's name for it
# Backblaze: "Unsupported header 'x-amz-checksum-sha256' received for this API call."
_OF_CHECKSUMS = re.compile(r"(?i)x-amz-(sdk-)?checksum|x-amz-trailer|UNSIGNED-PAYLOAD-TRAILER")
_LONGEST_TOLD = 1000
_WITHOUT: WeakSet[Any] = WeakSet()  # clients that send no checksums
_CHECKSUMS = "request_checksum_calculation"
_AWS = (".amazonaws.com", ".amazonaws.com.cn", ".amazonaws.eu", ".on.aws")


def aws_session() -> Any:
    """Return a new session of boto3, which must be installed."""
    import boto3
    from botocore.session import get_session

    found = get_session()
    found.register("request-created", _remember_credentials)
    with _MAKING:
        loader = _loader(found.get_config_variable("data_path"))
        found.register_component("data_loader", loader)
        session = boto3.Session(botocore_session=found)
        # boto3 adds its own place for each session.
        loader.search_paths[:] = dict.fromkeys(loader.search_paths)
    return session


def aws_client(service: str, session: Any = None, **given: Any) -> Any:
    """Return a client of boto3 whose read time-out is for a whole head or small answer.

    Of a large answer each 64 KiB have as long.
    """
    from botocore import awsrequest

    from artifact_cache.timely import TimelyResponse

    class Plain(awsrequest.AWSHTTPConnectionPool):  # type: ignore[misc]
        class ConnectionCls(awsrequest.AWSHTTPConnection):  # type: ignore[misc]
            response_class = TimelyResponse

    class Secure(awsrequest.AWSHTTPSConnectionPool):  # type: ignore[misc]
        class ConnectionCls(awsrequest.AWSHTTPSConnection):  # type: ignore[misc]
            response_class = TimelyResponse

    client = (session or aws_session()).client(service, **given)
    client._endpoint.http_session._pool_classes_by_scheme.update(http=Plain, https=Secure)
    return client


def _remember_credentials(request: Any, **_: Any) -> None:
    """Keep what a request was just signed with out of every text."""
    remember_headers(request.headers)


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
        told = _without_checksums(params) if client in _WITHOUT else dict(params)
        if payer and "RequestPayer" in model.input_shape.members:
            told.setdefault("RequestPayer", payer)
        return told

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
        told = str(error.response.get("Error", {}).get("Message", ""))
        if knew or not _OF_CHECKSUMS.search(told[:_LONGEST_TOLD]):
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


@cache
def _loader(data_path: str | None) -> Any:
    from botocore.loaders import create_loader

    return create_loader(data_path)
