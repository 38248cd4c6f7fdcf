"""Files and helpers of credentials that hold nonsense: refused, and no secret is shown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from packager.cli.doctor.doctor import _registry_logins
from packager.core.errors import PackagerError
from packager.images.registry.credentials import find_credentials
from tests.support.cases import cases
from tests.support.known import known

SECRET = "canary-a1b2c3d4"
HOST = "registry.example"


def look_up(place: Path) -> object:
    return find_credentials(HOST, {"HOME": str(place), "DOCKER_CONFIG": str(place)})


@cases("an_unreadable_file_of_credentials_is_not_shown")
def test_an_unreadable_file_of_credentials_is_not_shown(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(text)

    with pytest.raises(PackagerError) as caught:
        look_up(tmp_path)

    assert caught.value.exit_code == 2
    assert str(tmp_path / "config.json") in caught.value.message
    assert SECRET not in f"{caught.value.message} {caught.value.hint}"


@cases("an_unreadable_file_of_credentials_is_not_shown")
def test_a_doctor_looks_at_a_broken_file_of_credentials(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(text)

    found = _registry_logins({"DOCKER_CONFIG": str(tmp_path)})

    assert SECRET not in f"{found.found} {found.fix}"


@pytest.mark.parametrize("key", ["[::1", "http://[", "", "::::", "registry.example:99999999"])
def test_a_name_that_is_no_host_hides_no_other(key: str, tmp_path: Path) -> None:
    good = '"registry.example":{"auth":"YTpi"}'
    (tmp_path / "config.json").write_text(f'{{"auths":{{"{key}":{{}},{good}}}}}')

    found = known(find_credentials(HOST, {"HOME": str(tmp_path), "DOCKER_CONFIG": str(tmp_path)}))

    assert (found.user, found.password) == ("a", "b")


def test_a_fifo_is_no_file_of_credentials(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")

    with pytest.raises(PackagerError, match="cannot read credentials"):
        look_up(tmp_path)
