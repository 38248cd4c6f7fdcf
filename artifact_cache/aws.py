"""Sessions of boto3 that share what botocore's files say of AWS's services; settings of users.

Each session reads them anew otherwise: 55 of the 60 ms of processor time that a client of S3
takes.  Nothing of a user's is shared: each session looks for credentials, region and profile.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from artifact_cache.secrets import remember_headers

_MAKING = threading.Lock()
REQUEST_PAYER = "AWS_REQUEST_PAYER"  # `requester`: of buckets whose readers pay; GDAL's name for it
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


def s3_client_of(make: Callable[[dict[str, str] | None], Any]) -> Any:
    """Return a client of S3 that keeps to the user's own settings.

    `make` gets the part `s3` of a configuration of botocore.  Other servers than AWS seldom have a
    host name for each bucket: paths are used there unless `addressing_style` is set in AWS's files.
    With `request_checksum_calculation = when_required` no checksum is sent that S3 does not demand,
    since there are servers that refuse the header (boto/s3transfer#327).
    """
    client = make(None)
    host = urlsplit(client.meta.endpoint_url).hostname or ""
    if not host.endswith(_AWS) and "addressing_style" not in (client.meta.config.s3 or {}):
        client = make({"addressing_style": "path"})
    few = getattr(client.meta.config, "request_checksum_calculation", "") == "when_required"
    payer = os.environ.get(REQUEST_PAYER, "")

    def adapt(params: dict[str, Any], model: Any, **_: Any) -> dict[str, Any]:
        told = _without_checksums(params) if few else dict(params)
        if payer and "RequestPayer" in model.input_shape.members:
            told.setdefault("RequestPayer", payer)
        return told

    client.meta.events.register("provide-client-params.s3", adapt)
    return client


def _without_checksums(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: one for key, one in value.items() if not key.startswith("Checksum")}
        return {key: _without_checksums(one) for key, one in kept.items()}
    return [_without_checksums(one) for one in value] if isinstance(value, list) else value


@cache
def _loader(data_path: str | None) -> Any:
    from botocore.loaders import create_loader

    return create_loader(data_path)
