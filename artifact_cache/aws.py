"""Sessions of boto3 that share what botocore's files say of AWS's services.

Each session reads them anew otherwise: 55 of the 60 ms of processor time that a client of S3
takes.  Nothing of a user's is shared: each session looks for credentials, region and profile.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

_MAKING = threading.Lock()


def aws_session() -> Any:
    """Return a new session of boto3, which must be installed."""
    import boto3
    from botocore.session import get_session

    found = get_session()
    with _MAKING:
        loader = _loader(found.get_config_variable("data_path"))
        found.register_component("data_loader", loader)
        session = boto3.Session(botocore_session=found)
        # boto3 adds its own place for each session.
        loader.search_paths[:] = dict.fromkeys(loader.search_paths)
    return session


@cache
def _loader(data_path: str | None) -> Any:
    from botocore.loaders import create_loader

    return create_loader(data_path)
