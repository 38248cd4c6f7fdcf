"""Whatever a line or a registry does: an image or an explained failure, in time; no half tag."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.pushing import LARGEST, LAYERS, REPOSITORY, Bench, bench
from tests.faults.scale import one_of_each, some
from tests.support.doubles.fault_proxy import Fault
from tests.support.doubles.registry import USER, sha256

pytestmark = pytest.mark.usefixtures("patience")

Patience = Callable[[float], None]
SILENCE_S = 4.0  # that is given up, where a test waits for it; other answers need less
# Every kind of request that a push makes: method, pattern of the path.
KINDS = {
    "ping": ("GET", r"/v2/$"),
    "blob look-up": ("HEAD", "/blobs/sha256"),
    "upload start": ("POST", "/uploads/$"),
    "bytes": ("PATCH", "/uploads/"),
    "upload end": ("PUT", "/uploads/"),
    "upload cancel": ("DELETE", "/uploads/"),
    "manifest": ("PUT", "/manifests/sha256"),
    "manifest read back": ("GET", "/manifests/sha256"),
    "tag look-up": ("HEAD", "/manifests/1$"),
    "tag": ("PUT", "/manifests/1$"),
}


def fault(kind: str, do: str, **how: object) -> Fault:
    method, path = KINDS[kind]
    return Fault(do, method, path, **how)  # type: ignore[arg-type]


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path) as made:
        yield made


@pytest.fixture
def signed(tmp_path: Path) -> Iterator[Bench]:
    """One that asks for tokens."""
    with bench(tmp_path, auth="bearer") as made:
        yield made


def happened(at: Bench) -> int:
    return sum(fault.hits for fault in at.proxy.faults)


@pytest.mark.parametrize(("kind", "status"), one_of_each(KINDS, (429, 500, 503)))
def test_one_refusal_of_any_request_is_overcome(at: Bench, kind: str, status: int) -> None:
    at.proxy.add(fault(kind, "answer", status=status, at=-1))

    pushed = at.push()

    assert happened(at) == 1
    assert pushed.error is None
    at.check(pushed)


@pytest.mark.parametrize("kind", some(KINDS, 4))
def test_a_refusal_that_stays_is_explained(at: Bench, kind: str) -> None:
    at.proxy.add(fault(kind, "answer", status=503, at=-1, times=1000))

    pushed = at.push()

    assert (pushed.error is None) == (kind == "upload cancel")
    assert pushed.error is None or pushed.error.exit_code == 69
    at.check(pushed)


@pytest.mark.parametrize("kind", some([kind for kind in KINDS if kind != "upload cancel"], 3))
def test_a_registry_that_says_when_to_come_back_is_believed(at: Bench, kind: str) -> None:
    at.proxy.add(fault(kind, "answer", status=429, headers={"Retry-After": "17"}, at=-1))

    pushed = at.push()

    assert 17.0 in pushed.slept
    at.check(pushed)


@pytest.mark.parametrize(
    ("kind", "do"), one_of_each(KINDS, ("drop", "half-close", "delay", "dribble"))
)
def test_an_answer_that_does_not_arrive_is_overcome(
    at: Bench, patience: Patience, kind: str, do: str
) -> None:
    """The registry has done what was asked of it, and we cannot know."""
    if do in ("delay", "dribble"):
        patience(SILENCE_S)
    at.proxy.add(fault(kind, do, seconds=0.05 if do == "dribble" else 60.0))

    pushed = at.push()

    assert happened(at) == 1
    assert pushed.error is None
    at.check(pushed)


@pytest.mark.parametrize("kind", some(KINDS, 3))
def test_answers_that_never_arrive_are_given_up(at: Bench, kind: str) -> None:
    at.proxy.add(fault(kind, "drop", times=1000))

    pushed = at.push()

    # The registry has what it was sent, so a lost end or cancellation does no harm.
    assert (pushed.error is None) == (kind in ("upload end", "upload cancel"))
    if kind == "tag":
        at.old = at.tagged()  # it did move, and nobody could tell us
    at.check(pushed)


@pytest.mark.parametrize(("place", "do"), one_of_each((0, LARGEST // 2, -1, 1), ("reset", "stall")))
def test_a_body_that_breaks_off_is_sent_again_alone(
    at: Bench, patience: Patience, do: str, place: int
) -> None:
    if do == "stall":
        patience(SILENCE_S)
    at.proxy.add(fault("bytes", do, at=place))

    pushed = at.push()

    assert happened(at) == 1
    assert pushed.error is None
    at.check(pushed)


def test_bodies_that_always_break_off_are_given_up(at: Bench) -> None:
    at.proxy.add(fault("bytes", "reset", at=1_000_000, times=1000))

    pushed = at.push()

    assert pushed.error is not None
    assert pushed.error.exit_code == 69
    at.check(pushed)


@pytest.mark.parametrize("do", ["flip", "truncate"])
def test_a_manifest_that_comes_back_damaged_is_not_tagged_or_read_again(at: Bench, do: str) -> None:
    at.proxy.add(fault("manifest read back", do, at=100))

    pushed = at.push()

    assert happened(at) == 1
    at.check(pushed)


@pytest.mark.parametrize(("kind", "status"), one_of_each(KINDS, (401, 403)))
def test_a_right_that_is_refused_is_explained_or_renewed(
    signed: Bench, kind: str, status: int
) -> None:
    signed.proxy.add(fault(kind, "answer", status=status, at=-1))

    signed.check(signed.push())


@pytest.mark.parametrize("place", [0, 1_000_000, -1])
def test_a_token_that_expires_while_bytes_travel_is_renewed(signed: Bench, place: int) -> None:
    realm = f'Bearer realm="{signed.registry.storage_url}/token",service="fake"'
    challenge = {"WWW-Authenticate": f'{realm},scope="repository:{REPOSITORY}:pull,push"'}
    signed.proxy.add(fault("bytes", "answer", status=401, headers=challenge, at=place))
    given = signed.registry.tokens_given

    pushed = signed.push()

    assert pushed.error is None
    assert signed.registry.tokens_given > given
    signed.check(pushed)


@pytest.mark.parametrize("uses", some(range(1, 11), 4))
def test_tokens_may_expire_at_any_request(signed: Bench, uses: int) -> None:
    """Other requests may use a token up; a body that it cost has one of its own next time."""
    signed.registry.quirks.token_uses = uses

    pushed = signed.push()
    signed.registry.quirks.token_uses = 1000

    assert pushed.error is None
    tries = [seen for seen in signed.registry.seen if seen.method == "PATCH" and seen.received]
    assert len(tries) <= 3 + 2 * (len(LAYERS) + 1)  # the older image, and twice what is new
    signed.check_tag(pushed)


@pytest.mark.parametrize("uses", [1, 2, 3])
def test_a_refused_token_may_cost_the_connection_before_its_answer_is_read(
    signed: Bench, uses: int
) -> None:
    """The reset of a connection that is closed on unread bytes overtakes what was answered."""
    signed.registry.quirks.token_uses = uses
    signed.registry.quirks.refusals_lost = True

    pushed = signed.push()
    signed.registry.quirks.token_uses = 1000

    assert pushed.error is None
    signed.check_tag(pushed)


@pytest.mark.parametrize("location", ["absolute", "relative", "other-host"])
@pytest.mark.parametrize("auth", ["", "bearer"])
def test_an_upload_may_be_anywhere(tmp_path: Path, location: str, auth: str) -> None:
    with bench(tmp_path, location=location, auth=auth) as at:
        at.check(at.push())

        moved = {seen.storage for seen in at.registry.seen if seen.method == "PATCH"}
        assert moved == {location == "other-host"}


@pytest.mark.parametrize("forgets", [1, 2, 1000])
def test_an_upload_that_the_registry_forgets_is_begun_again(at: Bench, forgets: int) -> None:
    at.registry.quirks.forgets = forgets

    pushed = at.push()

    assert (pushed.error is None) == (forgets < 1000)
    at.registry.quirks.forgets = 0
    at.check_tag(pushed)


def test_a_registry_that_claims_another_digest_is_not_believed(at: Bench) -> None:
    at.registry.quirks.digest_header = sha256(b"other")

    pushed = at.push()

    assert pushed.error is not None
    assert pushed.error.exit_code == 76
    at.registry.quirks.digest_header = ""
    at.check_tag(pushed)
    assert at.push().error is None


def test_no_upload_and_no_secret_is_left_behind(signed: Bench) -> None:
    signed.proxy.add(fault("bytes", "reset", at=1_000_000), fault("upload end", "drop"))

    assert signed.push().error is None
    assert signed.registry.uploads == {}
    assert not any(USER in seen.path for seen in signed.registry.requests("PATCH"))
