"""Projects of compose whose updates are interrupted, change their secrets, or have odd names."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from packager.addons.deploy.compose.composers import PROJECT, SERVICE
from packager.addons.deploy.compose.documents import FILE, LABEL, SERVERS_FILE, parse_document
from packager.addons.deploy.compose.live import LiveCompose
from packager.addons.deploy.compose.spec import CaptureSpec, ComposeSpec
from packager.catalog.instances import find_instance
from packager.core.deployment import Deployment
from packager.core.errors import SmokeFailed
from tests.support.deployments import deployment as a_deployment
from tests.support.refusals import raises_code


@dataclass
class Container:
    """A container as docker-py shows it."""

    labels: Mapping[str, str]
    attrs: Mapping[str, Any]
    status: str = "running"
    ports: Mapping[str, Any] = field(default_factory=dict)


class Machine:
    """An engine and a composer that refuses what Docker Compose refuses."""

    name = "a machine"

    def __init__(self) -> None:
        self.running: dict[str, Container] = {}
        self.interrupted = False  # the next time that something is removed
        self.containers = self
        self.networks = SimpleNamespace(list=lambda **_: [])

    def list(self, **_: Any) -> list[Container]:
        return list(self.running.values())

    def up(self, folder: Path, project: str, services: Sequence[str]) -> None:
        document = self._read(folder)
        for name in services:
            found = document["services"][name]
            labels = {**found["labels"], PROJECT: project, SERVICE: name}
            made = Container(labels, {"Config": {"Image": found["image"]}})
            self.running.setdefault(name, made)

    def remove(self, folder: Path, project: str, services: Sequence[str]) -> None:
        self._read(folder)
        if self.interrupted:
            self.interrupted = False
            raise KeyboardInterrupt
        for name in services:
            self.running.pop(name, None)

    def down(self, folder: Path, project: str) -> None:
        self.running.clear()

    @staticmethod
    def _read(folder: Path) -> dict[str, Any]:
        document = parse_document((folder / FILE).read_text())
        for service in document["services"].values():
            assert {*service.get("secrets", ())} <= {*document.get("secrets", {})}
        return document


class Live(LiveCompose):
    """Projects whose servers answer once they run, unless they are said not to."""

    def __init__(self, folder: Path, machine: Machine, **options: Any) -> None:
        super().__init__(folder, machine, machine, sleep=lambda _: None, **options)
        self.machine = machine
        self.busy: list[str] = []
        self.answers = True

    def _front_state(self, name: str) -> Mapping[str, Any]:
        ready = {f"{one}:8080": self.answers for one in self.machine.running}
        in_flight = {self.busy.pop(): 1} if self.busy else {}
        servers = [f"{one}:8080" for one in self._serving(name)]
        return {"ready": ready, "servers": servers, "in_flight": in_flight}


def on(instance: str, **changes: Any) -> Deployment:
    return a_deployment(name="tiny", instance=find_instance(instance), devices=1, **changes)


def test_an_update_that_was_killed_while_the_old_server_ended_goes_on(tmp_path: Path) -> None:
    machine = Machine()
    live, first = Live(tmp_path, machine), on("ml.g5.xlarge")  # one device: no room for two
    live.apply(first, ComposeSpec())
    machine.interrupted = True
    with pytest.raises(KeyboardInterrupt):
        live.apply(replace(first, image="r.example/m:2"), ComposeSpec())

    live.apply(replace(first, image="r.example/m:2"), ComposeSpec())

    assert {
        one.attrs["Config"]["Image"] for name, one in machine.running.items() if "-" in name
    } == {"r.example/m:2"}


def test_servers_that_end_keep_the_secrets_that_they_were_started_with(tmp_path: Path) -> None:
    machine = Machine()
    live, deployed = Live(tmp_path, machine), on("ml.g5.12xlarge")
    live.apply(deployed, ComposeSpec(secrets={"token": "/run/a"}))

    live.apply(deployed, ComposeSpec())

    assert "secrets" not in parse_document((tmp_path / "tiny" / FILE).read_text())


def test_an_update_that_fails_gives_the_old_servers_their_secrets_back(tmp_path: Path) -> None:
    machine = Machine()
    live, deployed = Live(tmp_path, machine, timeout_s=0.0), on("ml.g5.12xlarge")
    wanted = ComposeSpec(secrets={"token": "/run/a"})
    live.apply(deployed, wanted)
    live.answers = False
    with pytest.raises(SmokeFailed):
        live.apply(deployed, ComposeSpec(secrets={"token": "/run/b"}))

    found = parse_document((tmp_path / "tiny" / FILE).read_text())
    assert found["secrets"] == {"token": {"file": "/run/a"}}


def test_another_image_leaves_the_front_and_what_replaces_it_is_said_before(tmp_path: Path) -> None:
    machine, said = Machine(), list[str]()
    live, first = Live(tmp_path, machine, say=said.append), on("ml.g5.12xlarge")
    wanted = ComposeSpec(capture=CaptureSpec(directory="/rows", owner="1:1", share=1.0))
    live.apply(first, wanted)
    front = machine.running["front"]

    second = replace(first, image="r.example/m:2")
    assert [one.resource for one in live.diff(second, wanted)] == ["servers"]
    live.apply(second, wanted)
    assert machine.running["front"] is front

    other = replace(wanted, host_port=9090)
    (change, _) = live.diff(second, other)
    assert (change.kind, [one[0] for one in change.differences]) == ("replace", ["ports"])
    said.clear()
    live.apply(second, other)
    assert said[0].startswith("replacing the front")
    assert machine.running["front"] is not front


def test_requests_may_end_before_the_platforms_grace_where_nobody_says_another(
    tmp_path: Path,
) -> None:
    machine = Machine()
    live, deployed = Live(tmp_path, machine, clock=lambda: 0.0), on("ml.g5.12xlarge", grace_s=None)
    live.apply(deployed, ComposeSpec())
    live.busy = ["server-a1:8080"] * 3

    live.apply(replace(deployed, image="r.example/m:2"), ComposeSpec())

    assert live.busy == []


@pytest.mark.parametrize("name", ["..", ".", "", "../other", "sub/../x", "a\n"])
def test_a_name_reaches_no_folder_but_its_own(tmp_path: Path, name: str) -> None:
    other = tmp_path / "other"
    (other / "front").mkdir(parents=True)
    files = (other / FILE, other / ".env", other / SERVERS_FILE, tmp_path / FILE)
    for file in files:
        file.write_text("{}")
    live = Live(tmp_path / "projects", Machine())
    for named in (name, str(other)):
        for ask in (live.delete, live.status, lambda one: live.invoke(one, b"{}")):
            with raises_code("NotAName"):
                ask(named)

    assert all(file.is_file() for file in files)


@pytest.mark.parametrize("kind", ["env_files", "secrets"])
def test_servers_are_replaced_when_only_the_content_of_a_file_changed(
    tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "file"
    file.write_text("TOKEN=hunter2\n")
    named = {"env_files": (str(file),)} if kind == "env_files" else {"secrets": {"a": str(file)}}
    wanted = ComposeSpec(**named)  # type: ignore[arg-type]
    live, deployed = Live(tmp_path / "state", Machine()), on("ml.g5.12xlarge")
    live.apply(deployed, wanted)
    assert [one.kind for one in live.apply(deployed, wanted).changes] == ["same"]
    first = parse_document((tmp_path / "state" / "tiny" / FILE).read_text())

    file.write_text("TOKEN=hunter3\n")

    (changed,) = live.diff(deployed, wanted)
    assert (changed.kind, changed.differences[0][0]) == ("update", "files of variables and secrets")
    assert [one.kind for one in live.apply(deployed, wanted).changes] == ["create", "delete"]
    assert [one.kind for one in live.diff(deployed, wanted)] == ["same"]
    second = parse_document((tmp_path / "state" / "tiny" / FILE).read_text())
    assert "hunter" not in str((first, second))


def test_nobody_can_try_passwords_on_the_digest_that_containers_show(tmp_path: Path) -> None:
    """Another machine's digest of the same content is another one; the key is the user's alone."""
    file = tmp_path / "file"
    file.write_text("a")
    wanted, labels = ComposeSpec(secrets={"a": str(file)}), []
    for name in ("one", "two"):
        live = Live(tmp_path / name, Machine())
        live.apply(on("ml.g5.12xlarge"), wanted)
        labels.append(live.machine.running["server-a1"].labels)
        assert (tmp_path / name / ".key").stat().st_mode & 0o077 == 0
    assert labels[0] != labels[1]


def test_a_pipe_of_variables_is_left_to_compose(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    live, wanted = Live(tmp_path / "state", Machine()), ComposeSpec(env_files=(str(pipe),))
    live.apply(on("ml.g5.12xlarge"), wanted)
    assert [one.kind for one in live.diff(on("ml.g5.12xlarge"), wanted)] == ["same"]


def test_a_device_of_another_project_is_refused_with_those_that_are_free(tmp_path: Path) -> None:
    machine = Machine()
    held = {"DeviceRequests": [{"DeviceIDs": ["0", "1"]}]}
    machine.running["other"] = Container({LABEL: "other"}, {"HostConfig": held})
    live, wanted = Live(tmp_path, machine), on("ml.g5.12xlarge")

    with raises_code("DevicesTaken", match="device 0, 1 is of project 'other'") as refused:
        live.apply(wanted, ComposeSpec())

    assert refused.value.hint.endswith("--devices 2,3")
