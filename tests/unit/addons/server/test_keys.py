"""Access keys of a server: whose they are, and who may read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.addons.server.keys import read_keys, take_keys
from packager.addons.server.sigv4 import AccessKey
from packager.core.errors import NotFound, PackagerError
from tests.support.cases import cases
from tests.support.refusals import raises_code

SECRET = "3e9f2b71c0d84a5596e1f7d2"


def keys_file(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def section(name: str, key_id: str, secret: str = SECRET) -> str:
    return f"[{name}]\naws_access_key_id = {key_id}\naws_secret_access_key = {secret}\n"


def test_every_section_is_a_key(tmp_path: Path) -> None:
    path = keys_file(
        tmp_path / "keys",
        section("default", "ONE1", "with%percent=and;signs!!") + section("ci", "TWO2"),
    )

    assert read_keys(path) == {
        "ONE1": AccessKey("ONE1", "with%percent=and;signs!!", "default"),
        "TWO2": AccessKey("TWO2", SECRET, "ci"),
    }


def test_the_environment_may_have_one_more(tmp_path: Path) -> None:
    path = keys_file(tmp_path / "keys", section("ci", "TWO2"))
    environment = {
        "PACKAGER_SERVE_ACCESS_KEY_ID": "ENV1",
        "PACKAGER_SERVE_SECRET_ACCESS_KEY": SECRET,
    }

    assert sorted(take_keys(path, environment)) == ["ENV1", "TWO2"]
    assert environment == {}, "jobs inherit what is left"
    assert take_keys(None, {}) == {}
    with raises_code("KeysInvalid", match="only one of"):
        take_keys(None, {"PACKAGER_SERVE_ACCESS_KEY_ID": "ENV1"})


def test_credentials_of_aws_s_own_variables_are_no_keys_of_the_server() -> None:
    assert take_keys(None, {"AWS_ACCESS_KEY_ID": "A123", "AWS_SECRET_ACCESS_KEY": SECRET}) == {}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o601])
def test_a_file_that_others_may_touch_is_refused(tmp_path: Path, mode: int) -> None:
    path = keys_file(tmp_path / "keys", section("ci", "TWO2"), mode)

    with raises_code("KeysInvalid", match="others may read") as refused:
        read_keys(path)
    assert "chmod 600" in refused.value.hint


@cases("faults")
def test_what_is_wrong_with_a_file_is_told_without_its_secrets(
    tmp_path: Path, text: str, said: str
) -> None:
    path = keys_file(tmp_path / "keys", text)

    with raises_code("KeysInvalid", match=said) as refused:
        read_keys(path)
    assert SECRET not in f"{refused.value} {refused.value.hint}"
    assert refused.value.hint


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_keys(tmp_path / "none")
    with pytest.raises(PackagerError):
        read_keys(tmp_path)
