"""Connections of the hub's client: a byte now and then does not buy more time."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from packager.core.errors import Unavailable
from packager.core.remote.timely_streams import PIECE, make_timely


class _Dripping:
    """A connection that gives `size` bytes every second of its own clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
        self.now, self.size = 0.0, size
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def connect_tcp(self, *_: object, **__: object) -> _Dripping:
        return self

    start_tls = connect_tcp

    def write(self, data: bytes, timeout: float | None = None) -> None:
        self.now += 100

    def read(self, max_bytes: int, timeout: float) -> bytes:
        assert timeout > 0
        self.now += 1
        return bytes(self.size)


def connected(inner: Any) -> Any:
    pool = SimpleNamespace(_network_backend=inner)
    client = SimpleNamespace(_transport=SimpleNamespace(_pool=pool), _mounts={"https://": None})
    make_timely(client)
    make_timely(client)
    return pool._network_backend.connect_tcp("h", 443).start_tls(None)


def test_an_answer_that_drips_is_given_up_and_one_that_moves_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = connected(_Dripping(monkeypatch, 1))
    with pytest.raises(Unavailable, match="30 bytes in 30 s"):
        for _ in range(31):
            slow.read(100, timeout=30)
    slow.write(b"GET /", timeout=30)
    assert slow.read(100, timeout=30)

    moving = connected(_Dripping(monkeypatch, PIECE // 20))
    assert all(moving.read(100, timeout=30) for _ in range(1000))
