"""What the tool rejected is not tried again for a while; every other failure is."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from artifact_cache.cache import ArtifactCache
from artifact_cache.errors import BuildFailed, Rejected, RejectedBefore
from tests.support.cache_entries import CHECKPOINT, Build
from tests.support.cache_opening import open_local
from tests.support.known import known
from tests.unit.artifact_cache.test_negative import REJECTED, fail


def test_a_rejection_is_waited_for(root: Path, cache: ArtifactCache, tmp_path: Path) -> None:
    waiting = threading.Event()
    second = Build()
    raised: list[Exception] = []

    def other() -> None:
        heard = open_local(root, notify=lambda notice: waiting.set())
        try:
            heard.get_or_build(CHECKPOINT, second, tmp_path / "b")
        except Rejected as error:
            raised.append(error)

    thread = threading.Thread(target=other)

    def reject(directory: Path) -> None:
        thread.start()
        assert waiting.wait(60)
        raise REJECTED

    with pytest.raises(Rejected):
        cache.get_or_build(CHECKPOINT, reject, tmp_path / "a")
    thread.join()

    assert second.runs == 0
    assert [type(error) for error in raised] == [RejectedBefore]


def test_a_long_log_keeps_its_ends(cache: ArtifactCache, tmp_path: Path) -> None:
    log = "versions" + "." * 10_000_000 + "error at the end"

    failure = known(fail(cache, tmp_path, BuildFailed("no", log=log)))

    assert failure.log.startswith("versions")
    assert failure.log.endswith("error at the end")
    assert "characters left out" in failure.log
    assert len(failure.log) < 70_000
