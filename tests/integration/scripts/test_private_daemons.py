"""The private engine and registry start once, and leave nothing when they stop."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import need, unavailable
from tests.support.places import SCRIPTS
from tests.support.processes import left_of, run_program

pytestmark = [
    pytest.mark.extended,
    pytest.mark.live,
    pytest.mark.xdist_group("engine"),
]  # no two start at once


class Script:
    """One of `scripts/`, always for the same root."""

    def __init__(self, name: str, root: Path) -> None:
        self.argv, self.root = [str(SCRIPTS / name)], root

    def run(self, command: str, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
        words = (*self.argv, command, "--root", self.root, *options)
        return run_program(*words, env=env, status=None)

    def status(self) -> dict[str, object]:
        return json.loads(self.run("status", "--format", "json").stdout)


@pytest.fixture
def engine_script() -> Iterator[Script]:
    need("dockerd")
    if os.geteuid() != 0:
        unavailable("root, to start a private Docker Engine,")
    # A socket's path has at most 107 bytes, and the engine puts some deep below its root.
    with tempfile.TemporaryDirectory(prefix="engine-") as short:
        script = Script("docker-engine", Path(short) / "e")
        yield script
        script.run("stop")


@pytest.fixture
def registry_script(tmp_path: Path) -> Iterator[Script]:
    need("docker-registry")
    script = Script("registry", tmp_path / "r")
    yield script
    script.run("stop")


def test_an_engine_starts_once_and_stops_without_a_trace(engine_script: Script) -> None:
    first = engine_script.run("start")
    second = engine_script.run("start")

    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout == f"unix://{engine_script.root}/docker.sock\n"
    state = engine_script.status()
    assert state["running"] is True
    assert state["network"] in ("bridge", "host")
    assert f"export DOCKER_HOST={first.stdout}" in engine_script.run("env").stdout

    assert engine_script.run("stop").returncode == 0
    assert engine_script.run("status").returncode == 3
    assert left_of(engine_script.root) == []


def test_containers_that_come_and_go_cut_no_connections_of_others(engine_script: Script) -> None:
    """A bridge whose own address changes is not where the others' packets go."""
    assert engine_script.run("start").returncode == 0
    state = json.loads((engine_script.root / "state.json").read_text())
    if state["network"] != "bridge":
        pytest.skip("this kernel allows no bridge")
    bridge, port = state["bridge"], "pkgr-test-port"
    address = Path(f"/sys/class/net/{bridge}/address")
    before = address.read_text()

    low = ("address", "02:00:00:00:00:01")
    subprocess.run(["ip", "link", "add", port, *low, "type", "veth"], check=True)
    try:
        subprocess.run(["ip", "link", "set", port, "master", bridge], check=True)
        assert address.read_text() == before
    finally:
        subprocess.run(["ip", "link", "delete", port], check=True)


def kill_start(script: Script, after_s: float) -> int:
    """Begin `start` and kill it, with nothing that it started; return its status."""
    argv = [*script.argv, "start", "--root", str(script.root)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(argv, start_new_session=True, **quiet)  # type: ignore[call-overload]
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        process.kill()
    return int(process.wait())


@pytest.mark.parametrize("after_s", [0.15, 0.4, 0.8, 1.5, 3.0])
def test_an_engine_killed_at_start_is_not_trusted(after_s: float, engine_script: Script) -> None:
    kill_start(engine_script, after_s)

    assert engine_script.run("start").returncode == 0
    state = json.loads((engine_script.root / "state.json").read_text())
    assert state["works"] is True
    assert len([line for line in left_of(engine_script.root) if "containerd.toml" in line]) == 1

    assert engine_script.run("stop").returncode == 0
    assert left_of(engine_script.root) == []
    assert not Path("/sys/class/net", str(state.get("bridge", "none"))).exists()


def test_an_engine_that_never_ran_a_container_is_started_anew(engine_script: Script) -> None:
    """A start that was killed before its probe may have chosen a runtime that cannot work."""
    engine_script.run("start")
    state = engine_script.root / "state.json"
    document = json.loads(state.read_text())
    del document["works"]
    state.write_text(json.dumps(document))
    pid = int((engine_script.root / "dockerd.pid").read_text().split()[0])

    assert engine_script.status()["running"] is False
    assert engine_script.run("start").returncode == 0

    assert int((engine_script.root / "dockerd.pid").read_text().split()[0]) != pid
    assert engine_script.status()["running"] is True


@pytest.mark.parametrize("after_s", [0.05, 0.1, 0.15, 0.2, 0.3, 0.5])
def test_a_registry_killed_at_start_starts_once(after_s: float, registry_script: Script) -> None:
    kill_start(registry_script, after_s)

    assert registry_script.run("start").returncode == 0
    assert registry_script.status()["running"] is True
    assert len([line for line in left_of(registry_script.root) if "config.yml" in line]) == 1

    assert registry_script.run("stop").returncode == 0
    assert left_of(registry_script.root) == []
