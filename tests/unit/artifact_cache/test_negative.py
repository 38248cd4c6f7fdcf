"""What the tool rejected is not tried again for a while; every other failure is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from artifact_cache.cache import ArtifactCache
from artifact_cache.errors import BuildFailed, BuildLeftNothing, Rejected, RejectedBefore
from artifact_cache.key import key_of
from artifact_cache.locks import KeyLocks
from artifact_cache.negative import Failures, scrub
from artifact_cache.store import Address, address_of
from tests.support.cache_entries import CHECKPOINT, NEURON, Build, document
from tests.support.cache_opening import LocalStore
from tests.support.doubles.stores import ReadOnlyStore
from tests.support.toml_rows import rows

DAY = 24 * 3600


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


def test_a_rejection_is_raised_again_without_building(cache: ArtifactCache, tmp_path: Path) -> None:
    with pytest.raises(Rejected, match=r"^unsupported operator"):
        cache.get_or_build(CHECKPOINT, failing(REJECTED), tmp_path / "a")

    build = Build()
    with pytest.raises(RejectedBefore, match="unsupported operator aten::foo") as caught:
        cache.get_or_build(CHECKPOINT, build, tmp_path / "b")

    assert build.runs == 0
    assert caught.value.log == "NCC_EUOC002: line 7"
    assert "retry" in caught.value.hint


def test_a_rejection_can_be_retried(cache: ArtifactCache, tmp_path: Path) -> None:
    with pytest.raises(Rejected):
        cache.get_or_build(CHECKPOINT, failing(REJECTED), tmp_path / "a")

    assert cache.get_or_build(CHECKPOINT, Build(), tmp_path / "b", retry_failed=True).stored
    assert cache.failure(CHECKPOINT) is None
    assert cache.get_or_build(CHECKPOINT, Build(), tmp_path / "c").hit


def test_other_inputs_are_not_concerned(cache: ArtifactCache, tmp_path: Path) -> None:
    with pytest.raises(Rejected):
        cache.get_or_build(document(1), failing(REJECTED), tmp_path / "a")

    assert cache.get_or_build(document(2), Build(), tmp_path / "b").stored


@pytest.mark.parametrize(
    ("later_s", "stands"),
    [
        pytest.param(DAY - 1, True, id="within a day"),
        pytest.param(DAY, False, id="after a day"),
        pytest.param(-3600, False, id="a clock that was set back"),
    ],
)
def test_a_rejection_expires(root: Path, tmp_path: Path, later_s: int, stands: bool) -> None:
    clock = Clock()
    cache = timed(root, clock)
    with pytest.raises(Rejected):
        cache.get_or_build(CHECKPOINT, failing(REJECTED), tmp_path / "a")
    clock.now += later_s

    build = Build()
    if stands:
        with pytest.raises(RejectedBefore):
            cache.get_or_build(CHECKPOINT, build, tmp_path / "b")
    else:
        assert cache.get_or_build(CHECKPOINT, build, tmp_path / "b").stored
    assert build.runs == (0 if stands else 1)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(BuildFailed("killed by signal 9", log="dmesg"), id="killed for memory"),
        pytest.param(TimeoutError("after 3600 s"), id="time-out"),
        pytest.param(ConnectionResetError("by peer"), id="network"),
        pytest.param(OSError(28, "No space left on device"), id="full disk"),
        pytest.param(RuntimeError("who knows"), id="unclassified"),
    ],
)
def test_what_may_pass_is_tried_again_and_keeps_its_log(
    cache: ArtifactCache, tmp_path: Path, error: Exception
) -> None:
    with pytest.raises(type(error)):
        cache.get_or_build(CHECKPOINT, failing(error), tmp_path / "a")

    failure = cache.failure(CHECKPOINT)
    assert failure is not None
    assert not failure.rejected
    assert failure.key == key_of(CHECKPOINT)
    assert failure.log
    assert cache.explain(CHECKPOINT).failure == failure
    assert cache.get_or_build(CHECKPOINT, Build(), tmp_path / "b").stored
    assert cache.failure(CHECKPOINT) is None


def test_a_build_that_left_nothing_is_a_failure_that_may_pass(
    cache: ArtifactCache, tmp_path: Path
) -> None:
    with pytest.raises(BuildLeftNothing):
        cache.get_or_build(CHECKPOINT, lambda directory: None, tmp_path / "a")

    failure = cache.failure(CHECKPOINT)
    assert failure is not None
    assert not failure.rejected


def test_an_interrupt_is_no_failure(cache: ArtifactCache, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        cache.get_or_build(CHECKPOINT, failing(KeyboardInterrupt()), tmp_path / "a")

    assert cache.failure(CHECKPOINT) is None


def test_a_rejection_that_was_only_passed_on_is_not_made_younger(
    cache: ArtifactCache, tmp_path: Path
) -> None:
    before = RejectedBefore("no", log="", since="yesterday", until="today")
    with pytest.raises(RejectedBefore):
        cache.get_or_build(CHECKPOINT, failing(before), tmp_path / "a")

    failure = cache.failure(CHECKPOINT)
    assert failure is not None
    assert not failure.rejected


def test_a_log_of_bytes_that_are_no_text_is_kept(cache: ArtifactCache, tmp_path: Path) -> None:
    log = b"\xff\xfe\0 oops ".decode("utf-8", "surrogateescape") + "\U0001f600"
    with pytest.raises(BuildFailed):
        cache.get_or_build(CHECKPOINT, failing(BuildFailed("no", log=log * 60_000)), tmp_path / "a")

    failure = cache.failure(CHECKPOINT)
    assert failure is not None
    assert "oops" in failure.log


@pytest.mark.parametrize("damage", [b"", b"{}", b"[]", b'{"check":"","failure":"{}"}', b"\xff"])
def test_a_damaged_record_is_none(
    root: Path, cache: ArtifactCache, tmp_path: Path, damage: bytes
) -> None:
    with pytest.raises(Rejected):
        cache.get_or_build(CHECKPOINT, failing(REJECTED), tmp_path / "a")
    next(root.glob("neg/*/*/*.json")).write_bytes(damage)

    assert cache.get_or_build(CHECKPOINT, Build(), tmp_path / "b").stored


def test_every_flipped_bit_of_a_record_makes_it_none(
    root: Path, cache: ArtifactCache, tmp_path: Path
) -> None:
    with pytest.raises(Rejected):
        cache.get_or_build(CHECKPOINT, failing(REJECTED), tmp_path / "a")
    path = next(root.glob("neg/*/*/*.json"))
    good = path.read_bytes()
    before = cache.failure(CHECKPOINT)
    for place in range(len(good)):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        assert cache.failure(CHECKPOINT) in (None, before), place


def test_a_record_in_the_place_of_another_key_is_none(
    root: Path, cache: ArtifactCache, tmp_path: Path
) -> None:
    with pytest.raises(Rejected):
        cache.get_or_build(CHECKPOINT, failing(REJECTED), tmp_path / "a")
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
    for seed in (1, 2):
        with pytest.raises(Rejected):
            cache.get_or_build(document(seed), failing(REJECTED), tmp_path / str(seed))
    failures = Failures(root / "neg")

    assert {failure.key for failure in failures.list()} == {
        key_of(document(1)),
        key_of(document(2)),
    }
    assert failures.forget(Address("quantized-checkpoint", key_of(document(1))))
    assert len(list(failures.list("quantized-checkpoint"))) == 1
    assert list(failures.list("neuron")) == []


@rows(__file__, "secret", "secret")
def test_what_looks_like_a_credential_is_taken_out_of_logs(
    cache: ArtifactCache, tmp_path: Path, secret: str
) -> None:
    error = BuildFailed(f"401 with {secret}", log=f"GET with {secret}")
    with pytest.raises(BuildFailed):
        cache.get_or_build(CHECKPOINT, failing(error), tmp_path / "a")

    failure = cache.failure(CHECKPOINT)
    assert failure is not None
    assert secret not in failure.reason + failure.log
    assert failure.log.startswith("GET with ***")


def test_scrubbing_takes_known_secrets_and_leaves_the_rest() -> None:
    text = "max_tokens=128 https://me:pw123@host/x password: correcthorsebattery pi=314159"

    assert scrub(text, known=["314159"]) == (
        "max_tokens=128 https://***@host/x password: *** pi=***"
    )
