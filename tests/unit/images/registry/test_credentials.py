"""What `docker login` and `podman login` leave behind, and that it stays a secret."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from packager.core.errors import AccessDenied
from packager.images.registry.credential import Credentials
from packager.images.registry.credentials import find_credentials
from tests.support.cases import cases

ALICE = Credentials(user="alice", password="s3cret")
AUTH = {"auth": base64.b64encode(b"alice:s3cret").decode()}


class Home:
    """A home directory with configuration files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment = {"HOME": str(root), "PATH": str(root / "bin")}

    def write(self, path: str, document: dict[str, Any]) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(document))

    def find(self, host: str) -> Credentials | None:
        return find_credentials(host, self.environment)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@cases("spelling")
def test_a_host_is_found_under_every_spelling(home: Home, key: str, host: str) -> None:
    home.write(".docker/config.json", {"auths": {key: AUTH}})

    assert home.find(host) == ALICE


@pytest.mark.parametrize("host", ["example", "other.r.example", "r.example:5000", "docker.io"])
def test_another_host_gets_nothing(home: Home, host: str) -> None:
    home.write(".docker/config.json", {"auths": {"r.example": AUTH}})

    assert home.find(host) is None


@cases("elsewhere")
def test_files_in_other_places_are_read(home: Home, variable: str, value: str, file: str) -> None:
    home.write(file, {"auths": {"r.example": AUTH}})
    home.environment[variable] = str(home.root / value)

    assert home.find("r.example") == ALICE


@cases("longest")
def test_the_longest_name_that_covers_a_repository_wins(
    home: Home, keys: list[str], name: str, found: str
) -> None:
    home.write(".docker/config.json", {"auths": {key: {"username": key} for key in keys}})

    login = home.find(name)

    assert (login.user if login else "") == found


@cases("passed_over")
def test_what_means_nothing_is_passed_over_with_a_word(
    home: Home, first: dict[str, Any], said: str
) -> None:
    home.write(".docker/config.json", first)
    home.write(".config/containers/auth.json", {"auths": {"r.example": AUTH}})
    told: list[str] = []

    assert find_credentials("r.example/a", home.environment, on_warning=told.append) == ALICE
    assert re.search(said, " ".join(told)) if said else not told


def test_a_variable_and_dockers_old_file_are_read(home: Home) -> None:
    home.write(".dockercfg", {"https://r.example/v1/": AUTH})
    assert home.find("r.example/a") == ALICE

    home.environment["DOCKER_AUTH_CONFIG"] = json.dumps(
        {"auths": {"r.example": {"registrytoken": "ready"}}}
    )
    assert home.find("r.example/a") == Credentials(registry_token="ready")


def test_an_identity_token_is_taken_over_a_password(home: Home) -> None:
    home.write(".docker/config.json", {"auths": {"r.example": {"identitytoken": "refresh"}}})

    assert home.find("r.example") == Credentials(identity_token="refresh")


def test_a_helper_name_is_no_path(home: Home) -> None:
    home.write(".docker/config.json", {"credsStore": "/../../bin/sh"})

    with pytest.raises(AccessDenied, match="no valid name"):
        home.find("r.example")


def test_secrets_are_in_no_repr() -> None:
    secrets = {"password": "s3cret", "identity_token": "s3cret", "registry_token": "s3cret"}
    assert repr(Credentials(user="alice", **secrets)) == "Credentials(user='alice')"
