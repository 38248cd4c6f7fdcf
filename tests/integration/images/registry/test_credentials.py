"""What `docker login` and `podman login` leave behind, and that it stays a secret."""

from __future__ import annotations

import pytest

from packager.errors import AccessDenied
from packager.images.registry.credential import Credentials
from tests.unit.images.registry.test_credentials import ALICE, AUTH, Home
from tests.unit.images.registry.test_credentials import home as home


def helper(home: Home, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = home.root / "bin" / "docker-credential-test"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


def test_a_helper_is_asked_for_its_host(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.write(".docker/config.json", {"credHelpers": {"r.example": "test"}})
    helper(
        home,
        monkeypatch,
        'read host; [ "$1 $host" = "get r.example" ] || exit 1\n'
        """echo '{"ServerURL": "x", "Username": "alice", "Secret": "s3cret"}'""",
    )

    assert home.find("r.example") == ALICE
    assert home.find("other.example") is None


def test_the_store_is_asked_for_docker_hub_by_its_old_address(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write(".docker/config.json", {"credsStore": "test"})
    helper(
        home,
        monkeypatch,
        'read host; [ "$host" = "https://index.docker.io/v1/" ] || exit 1\n'
        """echo '{"Username": "<token>", "Secret": "refresh"}'""",
    )

    assert home.find("docker.io") == Credentials(identity_token="refresh")


def test_an_empty_store_leaves_the_file(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.write(".docker/config.json", {"credsStore": "test", "auths": {"r.example": AUTH}})
    helper(home, monkeypatch, "echo credentials not found in native keychain; exit 1")

    assert home.find("r.example") == ALICE


def test_a_missing_helper_is_named(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.write(".docker/config.json", {"credsStore": "absent"})
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(AccessDenied) as failed:
        home.find("r.example")

    assert failed.value.message == (
        "credential helper 'docker-credential-absent' gave nothing for 'r.example': "
        "it is not installed"
    )


def test_a_failing_helper_spills_nothing(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.write(".docker/config.json", {"credsStore": "test"})
    helper(home, monkeypatch, "echo s3cret; echo s3cret >&2; exit 3")

    with pytest.raises(AccessDenied) as failed:
        home.find("r.example")

    assert "s3cret" not in failed.value.message + failed.value.hint
    assert failed.value.__cause__ is None
