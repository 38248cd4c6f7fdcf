"""The key that authenticates claims: where it is, who may read it, who makes it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from packager.core.errors import NotFound, UsageError
from packager.images.claim_key import ClaimKeys, load_key, make_key, store_claim_key
from packager.images.claims import ClaimKey
from tests.support.cases import cases

KEY = ClaimKey(bytes(range(32)))
SECRET = KEY.secret.hex()
Environment = dict[str, str]


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return {"XDG_CONFIG_HOME": str(tmp_path / "config")}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Where the user's own key is."""
    return tmp_path / "config" / "packager" / "claim-key"


def kept(place: Path, text: str = KEY.spelled(), mode: int = 0o600) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    place.chmod(mode)
    return place


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def refusal(environment: Environment, reason: str) -> str:
    """Return what is said of a key that is refused for this reason."""
    with pytest.raises(UsageError, match=reason) as raised:
        load_key(environment)
    return f"{raised.value} {raised.value.hint}"


def test_a_key_is_made_once_when_it_is_needed(environment: Environment, own: Path) -> None:
    assert load_key(environment) is None
    assert not own.exists()

    made = make_key(environment)

    assert make_key(environment) == load_key(environment) == made
    assert own.read_text() == f"packager-claim-key-1:{made.secret.hex()}\n"
    assert [path.name for path in own.parent.iterdir()] == ["claim-key"]


def test_a_key_is_for_its_owner_alone(environment: Environment, own: Path) -> None:
    before = os.umask(0)
    try:
        make_key(environment)
    finally:
        os.umask(before)

    assert (mode_of(own), mode_of(own.parent)) == (0o600, 0o700)


def test_keys_differ(tmp_path: Path) -> None:
    assert len({make_key({"XDG_CONFIG_HOME": str(tmp_path / name)}).id for name in ("a", "b")}) == 2


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o602, 0o777], ids=oct)
def test_a_key_open_to_others_is_refused(environment: Environment, own: Path, mode: int) -> None:
    kept(own, mode=mode)

    assert SECRET not in refusal(environment, "others may read or write it")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_key_of_another_user_is_refused(environment: Environment, own: Path) -> None:
    os.chown(kept(own), 12345, 12345)

    refusal(environment, "it belongs to another user")


def test_what_is_no_file_in_place_of_our_key_is_refused(
    environment: Environment, own: Path, tmp_path: Path
) -> None:
    own.parent.mkdir(parents=True)
    own.symlink_to(kept(tmp_path / "elsewhere"))
    refusal(environment, "cannot be used")
    own.unlink()
    os.mkfifo(own, 0o600)  # does not hang
    refusal(environment, "not a regular file")


@cases("a_file_without_a_key_is_refused")
def test_a_file_without_a_key_is_refused(environment: Environment, own: Path, text: str) -> None:
    kept(own, text)

    assert SECRET[:20] not in refusal(environment, "cannot be used")


def test_a_named_file_may_be_a_mounted_secret(environment: Environment, tmp_path: Path) -> None:
    link = tmp_path / "mounted"
    link.symlink_to(kept(tmp_path / "..data"))

    for place in (link, tmp_path / "..data"):
        assert load_key({**environment, "PACKAGER_CLAIM_KEY_FILE": str(place)}) == KEY


def test_a_named_file_that_is_not_there_is_no_reason_for_another_key(
    environment: Environment, tmp_path: Path, own: Path
) -> None:
    with pytest.raises(NotFound, match="no claim key found in"):
        make_key({**environment, "PACKAGER_CLAIM_KEY_FILE": str(tmp_path / "none")})

    assert not own.exists()


def test_a_variable_holds_the_key_itself(environment: Environment) -> None:
    assert load_key({**environment, "PACKAGER_CLAIM_KEY": f"{KEY.spelled()}\n"}) == KEY

    said = refusal({"PACKAGER_CLAIM_KEY": "hunter2"}, "'PACKAGER_CLAIM_KEY' cannot be used")
    assert "hunter2" not in said


def test_two_places_at_once_are_refused() -> None:
    both = {"PACKAGER_CLAIM_KEY": KEY.spelled(), "PACKAGER_CLAIM_KEY_FILE": "/nowhere"}

    refusal(both, "are both set")


def test_an_empty_variable_is_none(environment: Environment) -> None:
    """CI gives jobs of strangers empty secrets."""
    empty = {**environment, "PACKAGER_CLAIM_KEY": "", "PACKAGER_CLAIM_KEY_FILE": ""}

    assert make_key(empty) == load_key(environment)


@pytest.mark.parametrize("refuses", [False, True], ids=["a file is there", "nothing may be"])
def test_a_key_that_cannot_be_kept_stops_no_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses: bool
) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise PermissionError(13, "Permission denied")

    warnings: list[str] = []
    keys = ClaimKeys({"XDG_CONFIG_HOME": str(tmp_path / "config")}, warnings.append)
    if refuses:
        monkeypatch.setattr(Path, "mkdir", refuse)
    else:
        (tmp_path / "config").write_text("a file where a directory should be")

    assert keys.find() is None
    assert keys.need() is None
    assert "no claim key can be kept in" in warnings[0]
    assert ("permission denied" in warnings[0]) is refuses


def test_no_key_is_made_where_claims_are_switched_off(environment: Environment, own: Path) -> None:
    keys = ClaimKeys({**environment, "PACKAGER_CLAIM_KEY": "off"}, print)

    assert keys.find() is None
    assert keys.need() is None
    assert not own.exists()


def test_a_teams_key_is_taken_over(environment: Environment, own: Path) -> None:
    assert store_claim_key(environment, f"{KEY.spelled()}\n") == KEY
    assert store_claim_key(environment, KEY.spelled()) == KEY
    assert load_key(environment) == KEY
    assert mode_of(own) == 0o600


def test_a_key_is_given_up_only_when_asked(environment: Environment) -> None:
    make_key(environment)

    with pytest.raises(UsageError, match="there is another claim key"):
        store_claim_key(environment, KEY.spelled())

    assert store_claim_key(environment, KEY.spelled(), replace=True) == KEY
    assert load_key(environment) == KEY
