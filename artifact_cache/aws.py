"""Sessions of boto3 that share what botocore's files say of AWS's services.

Each session reads them anew otherwise: 55 of the 60 ms of processor time that a client of S3
takes.  Nothing of a user's is shared: each session looks for credentials, region and profile.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

from artifact_cache.secrets import remember_headers

_MAKING = threading.Lock()


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


@cache
def _loader(data_path: str | None) -> Any:
    from botocore.loaders import create_loader

    return create_loader(data_path)
