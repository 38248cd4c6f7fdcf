"""What `docker login` and `podman login` leave behind, and that it stays a secret."""

from __future__ import annotations

import pytest

from packager.core.errors import AccessDenied
from packager.images.registry.credential import Credentials
from packager.images.registry.credentials import Answers, find_credentials
from tests.support.doubles.registry import PASSWORD, USER, FakeRegistry
from tests.support.made_images import hasty_clients
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


def test_a_helper_is_asked_once_for_a_host(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.write(".docker/config.json", {"credsStore": "test"})
    asked = home.root / "asked"
    answer = """echo '{"Username": "alice", "Secret": "s3cret"}'"""
    helper(home, monkeypatch, f"cat >> {asked}; echo >> {asked}\n{answer}")
    answers = Answers()

    def find(name: str) -> Credentials | None:
        return find_credentials(name, home.environment, answers=answers)

    assert [find(f"r.example/{name}") for name in ("a", "b", "c")] == [ALICE] * 3
    assert find("other.example/a") == ALICE
    assert asked.read_text().split() == ["r.example", "other.example"]
    assert find("r.example/b") == ALICE  # what it had was refused
    assert asked.read_text().split() == ["r.example", "other.example", "r.example"]


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


def test_a_helper_is_asked_for_the_name_that_it_is_set_for(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write(".docker/config.json", {"credHelpers": {"r.example/team": "test"}})
    answer = r"""'{"Username": "%s", "Secret": "s"}' "$name" """
    helper(home, monkeypatch, f"read name; printf {answer}")

    assert home.find("r.example/team/model") == Credentials(user="r.example/team", password="s")
    assert home.find("r.example/other") is None


def test_each_repository_is_opened_by_its_own_login(home: Home) -> None:
    for user, other in ((USER, "nobody"), ("nobody", USER)):
        with FakeRegistry(auth="basic") as registry:
            layer = registry.put("team/a", b"layer")
            logins = {f"{registry.host}/team": user, registry.host: other}
            auths = {key: {"username": u, "password": PASSWORD} for key, u in logins.items()}
            home.write(".docker/config.json", {"auths": auths})
            client = hasty_clients(find_credentials=home.find).at(registry.host)
            if user == USER:
                client.start_upload("team/a")
                assert client.get_blob("team/a", layer, 5) == b"layer"
            else:
                client.start_upload("elsewhere")
            with pytest.raises(AccessDenied, match="user 'nobody'"):
                client.start_upload("elsewhere" if user == USER else "team/a")


def test_a_failing_helper_spills_nothing(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.write(".docker/config.json", {"credsStore": "test"})
    helper(home, monkeypatch, "echo s3cret; echo s3cret >&2; exit 3")

    with pytest.raises(AccessDenied) as failed:
        home.find("r.example")

    assert "s3cret" not in failed.value.message + failed.value.hint
    assert failed.value.__cause__ is None
