"""Secrets stay where the user put them: canaries are planted, and everything is searched."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.counters import never
from tests.support.doubles.fake_hub import FakeHub
from tests.support.doubles.fault_proxy import Fault, FaultProxy
from tests.support.doubles.models import write_model
from tests.support.doubles.registry import USER, FakeRegistry
from tests.support.doubles.s3 import Bucket, bucket_server
from tests.support.spellings import spellings

PASSWORD = "p@ss/word+canary=1"
HUB_TOKEN = "hf_CanaryOfTheHub/+=1"
S3_SECRET = "s3/Canary+of=the/bucket"
BUILD = ("build", "--instance", "local", "--base", "scratch", "--format", "json")


class Watch:
    """Looks at the command lines of a process and of all that it starts, while it runs."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.lines: set[bytes] = set()
        self._process = process
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        wait = threading.Event()
        while self._process.poll() is None:
            for place in Path("/proc").glob("[0-9]*"):
                try:
                    if os.getpgid(int(place.name)) == self._process.pid:
                        self.lines.add((place / "cmdline").read_bytes())
                except OSError:
                    continue
            wait.wait(0.02)

    def done(self) -> bytes:
        self._thread.join(300)
        return b"\n".join(self.lines)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    model = write_model(tmp_path / "upstream", hidden_size=128, intermediate_size=256)
    with (
        FakeHub(token=HUB_TOKEN) as hub,
        bucket_server() as server,
        FakeRegistry(auth="bearer", account=(USER, PASSWORD)) as registry,
        FaultProxy(registry.host) as proxy,
    ):
        hub.add("acme/tiny", model)
        bucket = Bucket(server)
        bucket.upload(model, "llama")
        yield World(tmp_path, hub, bucket, registry, proxy)


class World:
    """All that a build talks to, and one directory for all that it writes."""

    def __init__(
        self, root: Path, hub: FakeHub, bucket: Bucket, registry: FakeRegistry, proxy: FaultProxy
    ) -> None:
        self.bucket, self.registry, self.proxy = bucket, registry, proxy
        self.disk = root / "disk"
        (self.disk / "tmp").mkdir(parents=True)
        docker = root / "docker"
        docker.mkdir()
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        (docker / "config.json").write_text(json.dumps({"auths": {proxy.host: {"auth": login}}}))
        self.environment = {
            **os.environ,
            **bucket.environment,
            "AWS_SECRET_ACCESS_KEY": S3_SECRET,
            "DOCKER_CONFIG": str(docker),
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(self.disk / "hf"),
            "HF_TOKEN": HUB_TOKEN,
            "HOME": str(self.disk),
            "PACKAGER_DEBUG": "1",
            "TMPDIR": str(self.disk / "tmp"),
            "XDG_CACHE_HOME": str(self.disk / "cache"),
            "XDG_STATE_HOME": str(self.disk / "state"),
        }
        self.said: list[bytes] = []

    def build(self, model: str) -> int:
        """Build into a registry and a layout, and keep all that is said."""
        outputs = ("--output", f"{self.proxy.host}/acme/tiny:1", "--output", "oci:out")
        process = subprocess.Popen(
            [sys.executable, "-m", "packager", *BUILD, "--model", model, *outputs]
            + ["--record", "record.json"],
            cwd=self.disk,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        watch = Watch(process)
        self.said += process.communicate(timeout=300)
        self.said.append(watch.done())
        assert b"packager" in self.said[-1]
        return process.returncode

    def places(self) -> Iterator[tuple[str, bytes]]:
        """Everything that a build made, said or asked for by address."""
        for number, text in enumerate(self.said):
            yield f"output {number}", text
        for path in self.disk.rglob("*"):
            yield f"name of {path}", str(path).encode()
            if path.is_file():
                yield str(path), path.read_bytes()
        for (repository, digest), data in self.registry.blobs.items():
            yield f"{repository}@{digest}", data
        for (repository, pointer), (_, data) in self.registry.manifests.items():
            yield f"{repository}:{pointer}", data
        for seen in self.proxy.exchanges:
            yield "address of a request", seen.path.encode()

    def search(self) -> list[str]:
        """Where a secret was found."""
        secrets = [PASSWORD, HUB_TOKEN, S3_SECRET, *self.registry.tokens]
        needles = {spelling for secret in secrets for spelling in spellings(secret)}
        return [place for place, data in self.places() if any(needle in data for needle in needles)]


def test_a_secret_is_found_however_it_is_written() -> None:
    for before in range(5):
        for after in range(4):
            text = b"x" * before + PASSWORD.encode() + b"y" * after
            encoded = base64.b64encode(text)
            assert any(spelling in encoded for spelling in spellings(PASSWORD))


@pytest.mark.parametrize("source", ["hub", "bucket"])
def test_no_secret_reaches_an_image_a_record_a_log_or_a_command_line(
    world: World, source: str
) -> None:
    model = {"hub": "hf://acme/tiny", "bucket": f"{world.bucket.url}/llama"}[source]

    assert world.build(model) == 0, world.said
    assert world.registry.tokens_given > 0
    assert world.registry.is_complete("acme/tiny", "1")
    with never("secrets_found"):
        assert world.search() == []


@pytest.mark.parametrize(
    "fault",
    [
        Fault("answer", "PUT", "/manifests/", status=403, times=1000),
        Fault("answer", "PATCH", status=451, times=1000),
    ],
    ids=["denied", "refused"],
)
def test_no_secret_reaches_an_error(world: World, fault: Fault) -> None:
    world.proxy.add(fault)

    assert world.build("hf://acme/tiny") != 0

    with never("secrets_found"):
        assert world.search() == []


def test_no_secret_reaches_an_error_about_the_secret(world: World) -> None:
    world.registry.quirks.forbidden = frozenset({("acme/tiny", "push")})

    assert world.build("hf://acme/tiny") == 77

    with never("secrets_found"):
        assert world.search() == []
