"""Connections of urllib3 on which an answer comes in time, or not at all."""

from __future__ import annotations

import urllib3

from artifact_cache.timely import TimelyResponse


class _Plain(urllib3.HTTPConnectionPool):
    class ConnectionCls(urllib3.connection.HTTPConnection):
        response_class = TimelyResponse


class _Secure(urllib3.HTTPSConnectionPool):
    class ConnectionCls(urllib3.connection.HTTPSConnection):
        response_class = TimelyResponse


def timely(manager: urllib3.PoolManager) -> urllib3.PoolManager:
    """Return the manager, whose read time-outs are from now on for whole heads and small answers.

    Of a large answer each 64 KiB have as long.
    """
    manager.pool_classes_by_scheme = {"http": _Plain, "https": _Secure}
    return manager
