"""Projects of Compose on a real Docker Engine: up, asked, updated under load, down.

The engine of the images is `tiny_engine.py`.  Compose itself is Debian's docker-compose.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.conftest import need
from tests.live.building import build
from tests.live.servers import ask
from tests.live.tiny_images import TINY_ENGINE
from tests.live.waiting import wait_until
from tests.support.commandline import Packager, packager_in
from tests.support.free_ports import free_port

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

FIRST, SECOND = "packager-test-compose:1", "packager-test-compose:2"
WAYS = ["api", pytest.param("compose", marks=pytest.mark.capability("compose"))]


@dataclass
class Load:
    """Clients that ask all the time, each over one connection."""

    address: str
    answered: int = 0
    failed: list[str] = field(default_factory=list)
    _end: threading.Event = field(default_factory=threading.Event)

    def ask(self, tokens: int) -> None:
        parts = urlsplit(self.address)
        assert parts.hostname is not None
        client = HTTPConnection(parts.hostname, parts.port or 80, timeout=60)
        body = {"messages": [], "max_tokens": tokens, "stream": tokens == 9}
        while not self._end.is_set():
            try:
                client.request("POST", "/v1/chat/completions", json.dumps(body))
                answer = client.getresponse()
                data = answer.read()
            except OSError as error:
                self.failed.append(repr(error))
                return
            whole = data.endswith(b"data: [DONE]\n\n") if tokens == 9 else b"from a chat" in data
            if answer.status != 200 or not whole:
                self.failed.append(f"{answer.status} {data[-80:]!r}")
            self.answered += 1

    @contextmanager
    def running(self) -> Iterator[None]:
        kinds = (3, 3, 9, 7)  # short ones, streams, ones that take 1.5 s
        threads = [threading.Thread(target=self.ask, args=(kind,)) for kind in kinds]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._end.set()
            for thread in threads:
                thread.join()


@pytest.fixture(scope="module")
def images(
    tiny_base: str, docker_host: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Two images of one model that differ in their settings."""
    import docker

    place = tmp_path_factory.mktemp("compose-images")
    own = {"DOCKER_HOST": docker_host, "XDG_CACHE_HOME": str(place), "XDG_STATE_HOME": str(place)}
    for name, batch in ((FIRST, "8"), (SECOND, "16")):
        build(
            packager_in(place),
            *(f"docker:{name}", "--max-batch", batch),
            base=f"docker:{TINY_ENGINE}",
            env=own,
        )
    yield
    client = docker.DockerClient(base_url=docker_host)
    for name in (FIRST, SECOND):
        client.images.remove(name, force=True)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    if request.param == "compose":
        need("docker-compose")
    return str(request.param)


@pytest.fixture
def compose(packager: Packager, engine: str, images: None) -> Iterator[Any]:
    """Run `packager deploy compose`; whatever a test leaves is removed."""

    def run(*words: str) -> Any:
        return packager("deploy", "compose", *words, status=0)

    yield run
    packager("deploy", "compose", "delete", "tiny")


def answers(address: str) -> bool:
    with suppress(OSError):
        return bool(ask(address, "/v1/models")["data"])
    return False


def test_a_project_is_updated_under_load_without_a_failed_request(
    compose: Any, way: str, engine: str, tmp_path: Path
) -> None:
    import docker

    port = str(free_port())
    common = ("--name", "tiny", "--port", port, "--through", way, "--timeout", "120")
    up = json.loads(compose("apply", f"docker:{FIRST}", *common, "--smoke", "--format", "json").out)
    assert [one["kind"] for one in up["changes"]] == ["create", "create"]
    assert up["smoke"]["model"] == "tiny-llama"
    assert "from a chat" in up["smoke"]["text"]
    assert compose("apply", f"docker:{FIRST}", *common).out.startswith("same     project tiny")

    load = Load(up["address"])
    with load.running():
        changed = compose("diff", f"docker:{SECOND}", "--name", "tiny", "--port", port)
        assert "image: 'packager-test-compose:1' -> 'packager-test-compose:2'" in changed.out
        compose("apply", f"docker:{SECOND}", *common)
        after = load.answered
        compose("status", "tiny", "--wait")
        while load.answered < after + 8 and not load.failed:
            assert answers(up["address"])

    assert load.failed == []
    assert load.answered > 20
    status = json.loads(compose("status", "tiny", "--format", "json").out)
    assert (status["state"], status["image"], status["ready"]) == ("ready", SECOND, 1)
    assert status["details"]["services"] == ["front", "server-b1"]

    (tmp_path / "body.json").write_text('{"messages": [], "max_tokens": 3}')
    assert "from a chat" in compose("invoke", "tiny", "body.json").out

    gone = compose("delete", "tiny", "--through", way)
    assert "delete   service server-b1" in gone.out
    client = docker.DockerClient(base_url=engine)
    project = {"label": "com.docker.compose.project=tiny"}
    assert client.containers.list(all=True, filters=project) == []
    assert client.networks.list(filters=project) == []


def test_an_update_that_does_not_start_leaves_the_old_servers(
    compose: Any, packager: Packager
) -> None:
    port = str(free_port())
    common = ("--name", "tiny", "--port", port, "--through", "api", "--timeout", "120")
    up = json.loads(compose("apply", f"docker:{FIRST}", *common, "--wait", "--format", "json").out)

    broken = packager(
        "deploy",
        "compose",
        "apply",
        f"docker:{SECOND}",
        *common,
        "--env",
        "TINY_FAULT=start",
        status=4,
    )

    assert "the server server-b1 ended before it answered" in broken.err
    assert "no such kernel" in broken.err
    assert answers(up["address"])
    status = json.loads(compose("status", "tiny", "--format", "json").out)
    assert (status["state"], status["image"]) == ("ready", FIRST)
    assert status["details"]["services"] == ["front", "server-a1"]


def test_one_way_goes_on_with_what_the_other_has_started(compose: Any) -> None:
    need("docker-compose")
    port = str(free_port())
    common = ("--name", "tiny", "--port", port, "--timeout", "120")
    compose("apply", f"docker:{FIRST}", *common, "--through", "api", "--wait")
    compose("apply", f"docker:{SECOND}", *common, "--through", "compose", "--wait")
    compose("apply", f"docker:{FIRST}", *common, "--through", "api", "--wait")

    gone = compose("delete", "tiny", "--through", "compose")

    assert "delete   service server-a1" in gone.out
    assert "absent" in compose("status", "tiny").out


def test_the_files_start_by_compose_alone(compose: Any, packager: Packager, tmp_path: Path) -> None:
    import subprocess

    need("docker-compose")
    port = str(free_port())
    hostile = "a $HOME ${PATH} $$x: 'q' \"d\" #\n- y"
    compose(
        *("render", f"docker:{FIRST}", "--name", "tiny", "--port", port, "--output", "files"),
        *("--env", f"HOSTILE={hostile}", "--env", "PASSED"),
    )
    files = tmp_path / "files"

    def docker_compose(*words: str) -> str:
        done = subprocess.run(
            ["docker-compose", "-f", "compose.yaml", *words],
            cwd=files, capture_output=True, text=True, env={**os.environ, "PASSED": "p $q"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        docker_compose("up", "--detach")
        wait_until(lambda: answers(f"http://127.0.0.1:{port}"))
        shown = "import os; print(repr((os.environ['HOSTILE'], os.environ['PASSED'])))"
        seen = docker_compose("exec", "-T", "server-a1", "python3", "-c", shown)
        assert seen.strip() == repr((hostile, "p $q"))
    finally:
        docker_compose("down")
