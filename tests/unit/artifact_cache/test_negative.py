"""What the tool rejected is not tried again for a while; every other failure is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from artifact_cache.cache import ArtifactCache
from artifact_cache.errors import BuildFailed, BuildLeftNothing, Rejected, RejectedBefore
from artifact_cache.key import key_of
from artifact_cache.locks import KeyLocks
from artifact_cache.negative import Failure, Failures, scrub
from artifact_cache.store import Address, address_of
from tests.support.cache_entries import CHECKPOINT, NEURON, Build, document
from tests.support.cache_opening import LocalStore
from tests.support.cases import cases
from tests.support.doubles.stores import ReadOnlyStore
from tests.support.known import known


class Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now = 1795000000.0

    def __call__(self) -> float:
        return self.now


def timed(root: Path, clock: Clock) -> ArtifactCache:
    return ArtifactCache(
        LocalStore(root), KeyLocks(root / "locks"), failures=Failures(root / "neg"), clock=clock
    )


def failing(error: BaseException) -> Callable[[Path], None]:
    def build(directory: Path) -> None:
        raise error

    return build


REJECTED = Rejected("unsupported operator aten::foo", log="NCC_EUOC002: line 7")


def fail(
    cache: ArtifactCache, into: Path, error: BaseException = REJECTED, wanted: Any = CHECKPOINT
) -> Failure | None:
    """Let a build fail; return what is remembered of it."""
    with pytest.raises(type(error)):
        cache.get_or_build(wanted, failing(error), into / "failed")
    shutil.rmtree(into / "failed", ignore_errors=True)
    return cache.failure(wanted)


def test_a_rejection_is_raised_again_without_building(cache: ArtifactCache, tmp_path: Path) -> None:
    fail(cache, tmp_path)

    build = Build()
    with pytest.raises(RejectedBefore, match="unsupported operator aten::foo") as caught:
        cache.get_or_build(CHECKPOINT, build, tmp_path / "b")

    assert build.runs == 0
    assert caught.value.log == "NCC_EUOC002: line 7"
    assert "retry" in caught.value.hint
    assert cache.get_or_build(document(2), build, tmp_path / "c").stored  # other inputs


def test_a_rejection_can_be_retried(cache: ArtifactCache, tmp_path: Path) -> None:
    fail(cache, tmp_path)

    assert cache.get_or_build(CHECKPOINT, Build(), tmp_path / "b", retry_failed=True).stored
    assert cache.failure(CHECKPOINT) is None
    assert cache.get_or_build(CHECKPOINT, Build(), tmp_path / "c").hit


@cases("a_rejection_expires")
def test_a_rejection_expires(root: Path, tmp_path: Path, later_s: int, stands: bool) -> None:
    clock = Clock()
    cache = timed(root, clock)
    fail(cache, tmp_path)
    clock.now += later_s

    build = Build()
    if stands:
        with pytest.raises(RejectedBefore):
            cache.get_or_build(CHECKPOINT, build, tmp_path / "b")
    else:
        assert cache.get_or_build(CHECKPOINT, build, tmp_path / "b").stored
    assert build.runs == (0 if stands else 1)


PASSED_ON = RejectedBefore("no", log="", since="yesterday", until="today")


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(BuildFailed("killed by signal 9", log="dmesg"), id="killed for memory"),
        pytest.param(TimeoutError("after 3600 s"), id="time-out"),
        pytest.param(ConnectionResetError("by peer"), id="network"),
        pytest.param(OSError(28, "No space left on device"), id="full disk"),
        pytest.param(RuntimeError("who knows"), id="unclassified"),
        pytest.param(PASSED_ON, id="a rejection that is passed on is not made younger"),
        pytest.param(None, id="a build that left nothing"),
    ],
)
def test_what_may_pass_is_tried_again_and_keeps_its_log(
    cache: ArtifactCache, tmp_path: Path, error: Exception | None
) -> None:
    if error:
        failure = fail(cache, tmp_path, error)
    else:
        with pytest.raises(BuildLeftNothing):
            cache.get_or_build(CHECKPOINT, lambda directory: None, tmp_path / "a")
        failure = cache.failure(CHECKPOINT)

    assert failure is not None
    assert not failure.rejected
    assert failure.key == key_of(CHECKPOINT)
    assert failure.log or error is PASSED_ON
    assert cache.explain(CHECKPOINT).failure == failure
    assert cache.get_or_build(CHECKPOINT, Build(), tmp_path / "b").stored
    assert cache.failure(CHECKPOINT) is None


def test_an_interrupt_is_no_failure(cache: ArtifactCache, tmp_path: Path) -> None:
    assert fail(cache, tmp_path, KeyboardInterrupt()) is None


def test_a_log_of_bytes_that_are_no_text_is_kept(cache: ArtifactCache, tmp_path: Path) -> None:
    log = b"\xff\xfe\0 oops ".decode("utf-8", "surrogateescape") + "\U0001f600"

    failure = known(fail(cache, tmp_path, BuildFailed("no", log=log * 60_000)))

    assert "oops" in failure.log


def test_every_flipped_bit_of_a_record_makes_it_none(
    root: Path, cache: ArtifactCache, tmp_path: Path
) -> None:
    fail(cache, tmp_path)
    path = next(root.glob("neg/*/*/*.json"))
    good = path.read_bytes()
    before = cache.failure(CHECKPOINT)
    for place in range(len(good)):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        assert cache.failure(CHECKPOINT) in (None, before), place


def test_a_record_of_another_key_is_none(root: Path, cache: ArtifactCache, tmp_path: Path) -> None:
    fail(cache, tmp_path)
    path = next(root.glob("neg/*/*/*.json"))
    address = address_of(NEURON)
    other = root / "neg" / address.kind / address.key[:2] / f"{address.key}.json"
    other.parent.mkdir(parents=True)
    path.rename(other)

    assert cache.failure(NEURON) is None
    assert cache.get_or_build(NEURON, Build(), tmp_path / "b").stored


def test_a_store_that_cannot_be_written_keeps_no_failure(root: Path, tmp_path: Path) -> None:
    reader = ArtifactCache(
        ReadOnlyStore(LocalStore(root)), KeyLocks(root / "locks"), failures=Failures(root / "neg")
    )
    with pytest.raises(Rejected):
        reader.get_or_build(CHECKPOINT, failing(REJECTED), tmp_path / "a")

    assert not (root / "neg").exists()


def test_failures_are_listed(root: Path, cache: ArtifactCache, tmp_path: Path) -> None:
    keys = [key_of(document(seed)) for seed in (1, 2)]
    for seed in (1, 2):
        fail(cache, tmp_path, wanted=document(seed))
    failures = Failures(root / "neg")

    assert sorted(failure.key for failure in failures.list()) == sorted(keys)
    assert failures.forget(Address("quantized-checkpoint", keys[0]))
    assert [failure.key for failure in failures.list("quantized-checkpoint")] == keys[1:]
    assert list(failures.list("neuron")) == []


@cases("secret")
def test_what_looks_like_a_credential_is_taken_out_of_logs(
    cache: ArtifactCache, tmp_path: Path, secret: str
) -> None:
    error = BuildFailed(f"401 with {secret}", log=f"GET with {secret}")

    failure = known(fail(cache, tmp_path, error))

    assert secret not in failure.reason + failure.log
    assert failure.log.startswith("GET with ***")


def test_scrubbing_takes_known_secrets_and_leaves_the_rest() -> None:
    text = "max_tokens=128 https://me:pw123@host/x password: correcthorsebattery pi=314159"

    assert scrub(text, known=["314159"]) == (
        "max_tokens=128 https://***@host/x password: *** pi=***"
    )
