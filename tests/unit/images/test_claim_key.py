"""The key that authenticates claims: where it is, who may read it, who makes it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from packager.errors import NotFound, UsageError
from packager.images.claim_key import ClaimKeys, load_key, make_key, store_claim_key
from packager.images.claims import ClaimKey

KEY = ClaimKey(bytes(range(32)))
SECRET = KEY.secret.hex()


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
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


def test_there_is_no_key_until_one_is_needed(environment: dict[str, str], own: Path) -> None:
    assert load_key(environment) is None
    assert not own.exists()


def test_a_key_is_made_once_for_its_owner_alone(environment: dict[str, str], own: Path) -> None:
    made = make_key(environment)

    assert make_key(environment) == load_key(environment) == made
    assert stat.S_IMODE(own.stat().st_mode) == 0o600
    assert own.read_text() == f"packager-claim-key-1:{made.secret.hex()}\n"
    assert [path.name for path in own.parent.iterdir()] == ["claim-key"]


def test_a_key_is_for_its_owner_alone_whatever_the_umask(
    environment: dict[str, str], own: Path
) -> None:
    before = os.umask(0)
    try:
        make_key(environment)
    finally:
        os.umask(before)

    assert stat.S_IMODE(own.stat().st_mode) == 0o600
    assert stat.S_IMODE(own.parent.stat().st_mode) == 0o700


def test_keys_differ(tmp_path: Path) -> None:
    made = {make_key({"XDG_CONFIG_HOME": str(tmp_path / name)}).id for name in ("a", "b")}

    assert len(made) == 2


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o602, 0o777], ids=oct)
def test_a_key_that_others_may_touch_is_refused(
    environment: dict[str, str], own: Path, mode: int
) -> None:
    kept(own, mode=mode)

    with pytest.raises(UsageError, match="others may read or write it") as raised:
        load_key(environment)

    assert SECRET not in f"{raised.value} {raised.value.hint}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_key_of_another_user_is_refused(environment: dict[str, str], own: Path) -> None:
    os.chown(kept(own), 12345, 12345)

    with pytest.raises(UsageError, match="it belongs to another user"):
        load_key(environment)


def test_a_link_in_place_of_our_key_is_refused(
    environment: dict[str, str], own: Path, tmp_path: Path
) -> None:
    own.parent.mkdir(parents=True)
    own.symlink_to(kept(tmp_path / "elsewhere"))

    with pytest.raises(UsageError, match="cannot be used"):
        load_key(environment)


def test_a_pipe_in_place_of_our_key_does_not_hang(environment: dict[str, str], own: Path) -> None:
    own.parent.mkdir(parents=True)
    os.mkfifo(own, 0o600)

    with pytest.raises(UsageError, match="not a regular file"):
        load_key(environment)


@pytest.mark.parametrize(
    "text",
    ["", SECRET, KEY.spelled()[:-1], "x" * 5000, "packager-claim-key-1:\u00e4" + SECRET],
    ids=["empty", "bare", "short", "long", "letters"],
)
def test_a_file_that_holds_no_key_is_refused_and_not_repeated(
    environment: dict[str, str], own: Path, text: str
) -> None:
    kept(own, text)

    with pytest.raises(UsageError, match="cannot be used") as raised:
        load_key(environment)

    assert SECRET[:20] not in f"{raised.value} {raised.value.hint}"


def test_a_file_may_be_named(environment: dict[str, str], tmp_path: Path) -> None:
    named = {**environment, "PACKAGER_CLAIM_KEY_FILE": str(kept(tmp_path / "secret"))}

    assert load_key(named) == KEY


def test_a_mounted_secret_is_a_link(environment: dict[str, str], tmp_path: Path) -> None:
    link = tmp_path / "mounted"
    link.symlink_to(kept(tmp_path / "..data"))

    assert load_key({**environment, "PACKAGER_CLAIM_KEY_FILE": str(link)}) == KEY


def test_a_named_file_that_is_not_there_is_no_reason_for_another_key(
    environment: dict[str, str], tmp_path: Path, own: Path
) -> None:
    named = {**environment, "PACKAGER_CLAIM_KEY_FILE": str(tmp_path / "none")}

    with pytest.raises(NotFound, match="no claim key found in"):
        make_key(named)

    assert not own.exists()


def test_a_variable_holds_the_key_itself(environment: dict[str, str]) -> None:
    assert load_key({**environment, "PACKAGER_CLAIM_KEY": f"{KEY.spelled()}\n"}) == KEY


def test_a_variable_that_holds_no_key_is_refused_and_not_repeated(
    environment: dict[str, str],
) -> None:
    with pytest.raises(UsageError, match="'PACKAGER_CLAIM_KEY' cannot be used") as raised:
        load_key({**environment, "PACKAGER_CLAIM_KEY": "hunter2"})

    assert "hunter2" not in f"{raised.value} {raised.value.hint}"


def test_two_places_at_once_are_refused(environment: dict[str, str]) -> None:
    both = {"PACKAGER_CLAIM_KEY": KEY.spelled(), "PACKAGER_CLAIM_KEY_FILE": "/nowhere"}

    with pytest.raises(UsageError, match="are both set"):
        load_key({**environment, **both})


def test_an_empty_variable_is_none(environment: dict[str, str], own: Path) -> None:
    """CI gives jobs of strangers empty secrets."""
    empty = {**environment, "PACKAGER_CLAIM_KEY": "", "PACKAGER_CLAIM_KEY_FILE": ""}

    assert make_key(empty) == load_key(environment)


def test_a_key_that_cannot_be_kept_stops_no_build(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("a file where a directory should be")
    warnings: list[str] = []
    keys = ClaimKeys({"XDG_CONFIG_HOME": str(tmp_path / "config")}, warnings.append)

    assert keys.find() is None
    assert keys.need() is None
    assert "no claim key can be kept in" in warnings[0]


def test_a_directory_that_takes_no_key_stops_no_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    warnings: list[str] = []
    keys = ClaimKeys({"XDG_CONFIG_HOME": str(tmp_path / "config")}, warnings.append)

    assert keys.need() is None
    [warning] = warnings
    assert "no claim key can be kept in" in warning
    assert "permission denied" in warning


def test_no_key_is_made_where_claims_are_switched_off(
    environment: dict[str, str], own: Path
) -> None:
    keys = ClaimKeys({**environment, "PACKAGER_CLAIM_KEY": "off"}, print)

    assert keys.find() is None
    assert keys.need() is None
    assert not own.exists()


def test_a_teams_key_is_taken_over(environment: dict[str, str], own: Path) -> None:
    assert store_claim_key(environment, f"{KEY.spelled()}\n") == KEY
    assert store_claim_key(environment, KEY.spelled()) == KEY
    assert load_key(environment) == KEY
    assert stat.S_IMODE(own.stat().st_mode) == 0o600


def test_a_key_is_given_up_only_when_asked(environment: dict[str, str]) -> None:
    make_key(environment)

    with pytest.raises(UsageError, match="there is another claim key"):
        store_claim_key(environment, KEY.spelled())

    assert store_claim_key(environment, KEY.spelled(), replace=True) == KEY
    assert load_key(environment) == KEY
