"""Addresses of shared stores, and the cache that is made of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from artifact_cache.results import Notice
from artifact_cache.store import Capability
from tests.support.cache_buckets import Place
from tests.support.cache_entries import CHECKPOINT, Build
from tests.support.cache_opening import open_cache


def test_two_machines_share_a_bucket(place: Place, tmp_path: Path) -> None:
    address = f"s3://{place.name}/p?endpoint_url={place.server}&region=us-east-1"
    build = Build()
    open_cache(tmp_path / "A", [address]).get_or_build(CHECKPOINT, build, tmp_path / "a")
    second = open_cache(tmp_path / "B", [address])
    result = second.get_or_build(CHECKPOINT, build, tmp_path / "b")

    assert build.runs == 1
    assert result.hit
    assert second.store.capability() == Capability("read-write")
    keys = place.keys()
    assert [key.split("/")[0] for key in keys] == ["VERSION", "ac", "cas", "cas", "cas"]


def test_a_silent_bucket_costs_no_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    heard: list[Notice] = []
    address = "s3://cache?endpoint_url=http://127.0.0.1:9&region=us-east-1"
    cache = open_cache(tmp_path / "A", [address], notify=heard.append)

    result = cache.get_or_build(CHECKPOINT, Build(), tmp_path / "a")

    assert result.stored
    assert [notice.message for notice in result.notices] == [
        "the cache is read-write: s3://cache is off: it does not answer"
    ]
    assert tuple(heard) == result.notices
