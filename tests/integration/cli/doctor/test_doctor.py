"""What `packager doctor` says on machines that are not as they should be."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.cli.doctor.doctor import Check, examine
from packager.core.devices import Gpus
from packager.optimize.steps.tools.environments import Installed
from tests.support.commandline import Packager


def check_of(name: str, environment: dict[str, str], state_dir: Path) -> Check:
    return next(check for check in examine(environment, state_dir) if check.name == name)


@pytest.mark.parametrize("content", ["{", "[]", '{"auths": null}', '{"auths": 7}'])
def test_a_broken_docker_configuration_is_no_login(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)

    check = check_of("registry logins", {"DOCKER_CONFIG": str(tmp_path)}, tmp_path)

    assert check.status == "missing"


def test_logins_of_podman_are_found_as_a_push_finds_them(tmp_path: Path) -> None:
    (tmp_path / "containers").mkdir()
    (tmp_path / "containers" / "auth.json").write_text('{"auths": {"host/team": {"auth": "YTpi"}}}')
    places = {"HOME": str(tmp_path / "none"), "XDG_RUNTIME_DIR": str(tmp_path)}

    assert check_of("registry logins", places, tmp_path).found == "host/team"


def test_an_unreadable_home_is_no_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "home"
    exists = Path.exists

    def refuse(path: Path) -> bool:
        if path.is_relative_to(closed):
            raise PermissionError(13, "Permission denied", str(path))
        return exists(path)

    monkeypatch.setattr(Path, "home", lambda: closed)
    monkeypatch.setattr(Path, "exists", refuse)

    state = closed / ".local/state/packager"
    assert check_of("disk", {}, state).found.endswith(f"free at {tmp_path}")
    assert "no token" in check_of("model hub", {}, state).found


def test_the_build_of_torch_that_steps_take_is_named_with_its_reason(tmp_path: Path) -> None:
    made = Installed(
        tool="llmcompressor", place=tmp_path, current=True, bytes=1_500_000_000, hashes="verified"
    )

    def found(gpus: int) -> str:
        checks = examine({}, tmp_path, gpus=Gpus(count=gpus), installed=(made,))
        return next(check for check in checks if check.name == "tool environments").found

    assert "llmcompressor for cpu (1.5 GB); torch for cpu: no GPU is here for steps" in found(0)
    assert "torch for cuda: 2 GPUs are here for steps" in found(2)


def test_only_what_is_asked_for_decides_the_status(packager: Packager, tmp_path: Path) -> None:
    absent = {"DOCKER_HOST": "unix:///nonexistent/docker.sock"}

    packager("doctor", env=absent, status=0)
    there = packager("doctor", "python", env=absent, status=0)
    missing = packager("doctor", "Docker engine", "python", env=absent, status=69)
    strange = packager("doctor", "dokcer-engine", env=absent, status=2)

    assert [line[:14] for line in there.out.splitlines()] == ["ok       pytho"]
    assert "error: missing here: docker engine" in missing.err
    assert "hint: start one" in missing.err
    assert "did you mean 'docker-engine'?" in strange.err
