"""Models, outputs and shared caches at servers that speak S3's protocol in their own way."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from artifact_cache.errors import CacheError
from artifact_cache.stores.s3 import S3Store
from packager.core.errors import PackagerError
from tests.integration.images.trees.building import built
from tests.support.cache_buckets import PART, Place
from tests.support.cache_buckets import place as place
from tests.support.cache_buckets import server as server
from tests.support.cache_entries import CHECKPOINT
from tests.support.cache_stores import described, extracted
from tests.support.cases import Case, cases, read_tables
from tests.support.doubles.models import write_model
from tests.support.doubles.s3_quirks import QuirkyS3

SERVERS = [row["name"] for row in read_tables(__file__)["server"]]
FOR_READERS = ("id", "seen", "does", "source", "fails")


def run(case: Case, part: str, work: Any) -> bool:
    """Do the work at a server of this behaviour; return whether it is to have ended well."""
    wanted = case.get("fails", {}).get(part)
    if wanted is None:
        work()
        return True
    with pytest.raises((PackagerError, CacheError)) as failed:
        work()
    assert re.search(wanted, str(failed.value)), failed.value
    return False


@cases("behaviour")
def test_a_server_is_used_as_far_as_it_can_be(
    case: Case, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_model(tmp_path / "model", hidden_size=1024, intermediate_size=1024)
    assert max(path.stat().st_size for path in model.iterdir()) > PART  # it goes in parts
    place.upload(model, "llama")
    quirks = {name: value for name, value in case.items() if name not in FOR_READERS}
    with QuirkyS3(place.host, **quirks) as double:
        for name, value in {**place.environment, "AWS_ENDPOINT_URL": double.url}.items():
            monkeypatch.setenv(name, value)

        def build() -> None:
            built(f"{place.url}/out", model=f"{place.url}/llama")

        if run(case, "model", build):
            for path in model.iterdir():
                assert place.get(f"out/{path.name}") == path.read_bytes(), path.name

        def store(number: int) -> S3Store:
            return place.store(double.url, tmp_path / f"partial-{number}")

        (tmp_path / "a").mkdir()
        (tmp_path / "a/model.bin").write_bytes(bytes(range(256)) * (PART // 200))
        entry = described(tmp_path / "a", CHECKPOINT)

        def share() -> None:
            store(1).put(entry, tmp_path / "a")
            kept = extracted(store(2), CHECKPOINT, tmp_path / "b")
            assert kept == {"model.bin": (tmp_path / "a/model.bin").read_bytes()}
            assert [one.key for one in store(3).list()] == [entry.key]

        run(case, "cache", share)


def test_no_server_of_the_page_is_there_twice() -> None:
    assert len({*SERVERS}) == len(SERVERS)
