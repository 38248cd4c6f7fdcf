"""Images into a Docker Engine and bases out of it."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from packager.core.errors import NotFound, OutputFailed, ProtocolFailed, Unavailable
from packager.core.events import Event, StepEvent
from packager.core.image import Blob, ImageSpec, Inline, Platform
from packager.images.blobs import BlobReader
from packager.images.daemon.base import DockerBase
from packager.images.daemon.sink import DockerSink
from packager.images.digest_index import DigestIndex
from packager.images.docker_engine import connect_engine
from packager.images.tar import TarEntry, make_tar
from packager.images.target import parse_target
from packager.images.tee import write_image
from tests.support.cases import cases, read_tables
from tests.support.doubles.registry import sha256
from tests.support.doubles.tcp_engine import address_of_this_machine, forwarded
from tests.unit.images.test_docker import (
    SIZE,
    FakeEngine,
    LoadingEngine,
    shard,
    sink_of,
    spec,
    write,
)
from tests.unit.images.test_docker import weights as weights


def test_the_image_is_named_last_and_the_temporary_name_goes(tmp_path: Path) -> None:
    engine = FakeEngine({"status": "Pulling"})

    ref = write(sink_of(engine), spec(Blob((Inline(b"x" * 512),))), BlobReader(), tmp_path)

    assert ref.name == "team/model:1"
    assert engine.tagged == [("team/model", "1")]
    [temporary] = engine.removed
    assert temporary.startswith("127.0.0.1:")
    assert temporary.endswith(f"@{ref.digest}")


def test_latest_is_the_tag_when_none_is_given(tmp_path: Path) -> None:
    engine = FakeEngine()

    ref = write(sink_of(engine, "docker:model"), spec(), BlobReader(), tmp_path)

    assert (ref.name, engine.tagged) == ("model:latest", [("model", "latest")])


@cases("failures")
def test_what_the_engine_says_is_explained(tmp_path: Path, said: str, hint: str) -> None:
    engine = FakeEngine({"status": "Pulling"}, {"error": said, "errorDetail": {"message": said}})

    with pytest.raises(OutputFailed) as failed:
        write(sink_of(engine), spec(), BlobReader(), tmp_path)

    assert hint in failed.value.hint
    assert engine.tagged == []
    assert len(engine.removed) == 1


def test_another_digest_is_never_named(tmp_path: Path) -> None:
    engine = FakeEngine()
    engine.digests = ["127.0.0.1:1/x@sha256:" + "0" * 64]

    with pytest.raises(ProtocolFailed, match=r"0{64}'\], not sha256:"):
        write(sink_of(engine), spec(), BlobReader(), tmp_path)

    assert engine.tagged == []


def test_progress_is_what_all_layers_of_the_engine_add_up_to(tmp_path: Path) -> None:
    messages = read_tables(__file__)["progress"]
    engine = FakeEngine(*(message["says"] for message in messages))
    blobs = bytes(600), b"x" * 400, b"y" * 1000
    steps = told_of(engine, spec(*(Blob((Inline(blob),)) for blob in blobs)), tmp_path)

    assert [event.state for event in steps] == ["started", *["running"] * 8, "finished"]
    done = [message["done"] for message in messages if "done" in message]
    assert [event.done for event in steps] == [0, *done, 2000]
    assert {event.size for event in steps} == {2000}
    assert {event.kept for event in steps[1:]} == {1000}
    assert {(event.step, event.detail) for event in steps} == {("engine", "m:1")}


def test_progress_of_a_load_counts_layers_by_what_they_hold(tmp_path: Path) -> None:
    layer = {"id": hashlib.sha256(bytes(600)).hexdigest()[:12], "status": "Loading layer"}
    engine = FakeEngine({**layer, "progressDetail": {"current": 512, "total": 1024}})

    steps = told_of(engine, spec(Blob((Inline(bytes(600)),))), tmp_path)

    assert [(event.done, event.size) for event in steps] == [(0, 600), (300, 600), (600, 600)]


def told_of(engine: FakeEngine, image: ImageSpec, root: Path) -> list[StepEvent]:
    """Return the events of the engine's own step while it takes an image."""
    seen: list[Event] = []
    target = parse_target("docker:m:1")
    sink = DockerSink(target, reader=BlobReader(), connect=lambda: engine, on_event=seen.append)
    write(sink, image, BlobReader(), root)
    return [event for event in seen if isinstance(event, StepEvent)]


@cases("a_far_engine_gets_an_archive_from_one_read")
def test_a_far_engine_gets_an_archive_from_one_read(base_url: str, tmp_path: Path) -> None:
    engine = LoadingEngine(base_url)
    blobs = [shard(tmp_path / f"shard-{number}") for number in range(6)]
    reader = BlobReader()
    sink = sink_of(engine, "docker:team/m:1")

    write(sink, spec(*blobs), reader, tmp_path)

    files = engine.files()
    layers = sorted(name for name in files if name.startswith("layer-"))
    assert layers == [f"layer-{number:03}.tar" for number in range(6)]
    assert list(files)[-1] == "manifest.json"
    assert reader.bytes_read == 6 * SIZE
    assert sink.bytes_sent == len(engine.received)


def test_an_engine_in_a_virtual_machine_gets_an_archive_when_it_cannot_pull(tmp_path: Path) -> None:
    said = "dial tcp 127.0.0.1:4711: connect: connection refused"
    engine = LoadingEngine("http+docker://localhost")
    engine.api.pull = lambda *names, **settings: iter([{"error": said}])
    engine.api.remove_image = lambda image, noprune: None
    write(sink_of(engine, "docker:m:1"), spec(shard(tmp_path / "shard")), BlobReader(), tmp_path)

    assert set(engine.files()) >= {"layer-000.tar", "manifest.json"}


def test_an_engine_that_is_not_there_is_refused_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such/socket")

    with pytest.raises(Unavailable, match="'unix:///no/such/socket'"):
        DockerSink(parse_target("docker:model:1"), reader=BlobReader()).prepare(spec())


@pytest.mark.live
def test_a_real_engine_gets_only_what_changed(engine: str, weights: Blob, tmp_path: Path) -> None:
    reader = BlobReader()
    first = DockerSink(parse_target("docker:packager-test:1"), reader=reader)
    ref = write(first, spec(weights), reader, tmp_path)
    second = DockerSink(parse_target("docker:packager-test:2"), reader=reader)
    small = make_tar([TarEntry(path="/opt/config", content=Inline(b"{}"))])
    write(second, spec(weights, small), reader, tmp_path)

    assert first.bytes_sent > SIZE
    assert second.bytes_sent < 50_000
    api = connect_engine().api
    seen = api.inspect_image("packager-test:1")
    assert (seen["Config"]["Cmd"], seen["RepoTags"]) == (["/serve"], ["packager-test:1"])
    assert ref.name == "packager-test:1"
    assert not [
        name for image in api.images() for name in image["RepoDigests"] or () if "127" in name
    ]
    for tag in ("1", "2"):
        api.remove_image(f"packager-test:{tag}")


@pytest.mark.live
def test_a_real_engine_elsewhere_loads_the_image_and_runs_it(
    engine: str, weights: Blob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = address_of_this_machine()
    if not host or not engine.startswith("unix://"):
        pytest.skip("this machine has no address but loopback, or the engine is elsewhere already")
    reader = BlobReader()
    small = make_tar([TarEntry(path="/opt/config", content=Inline(b"{}"))])
    with forwarded(engine.removeprefix("unix://"), host) as address:
        monkeypatch.setenv("DOCKER_HOST", address)
        sink = DockerSink(parse_target("docker:packager-remote:1"), reader=reader)
        written = write_image(
            spec(weights, small), [sink], reader=reader, index=DigestIndex(tmp_path / "index")
        )
        client = connect_engine()
        seen = client.api.inspect_image("packager-remote:1")

    assert seen["Id"] == written.image.config_descriptor.digest
    assert reader.bytes_read == SIZE
    assert sink.bytes_sent > SIZE
    monkeypatch.setenv("DOCKER_HOST", engine)
    said = subprocess.run(
        ["docker", "run", "--rm", "--network", "none", "--volume", "/usr:/usr:ro"]
        + ["--entrypoint", "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "packager-remote:1"]
        + ["/usr/bin/sha256sum", "/opt/shard-1"],
        capture_output=True,
        text=True,
    )
    assert said.stdout.split()[0] == sha256((tmp_path / "shard-1").read_bytes())[7:], said.stderr
    client.api.remove_image("packager-remote:1")


@pytest.mark.live
def test_an_engine_behind_ssh_loads_the_image(
    engine: str, weights: Blob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh = tmp_path / "bin" / "ssh"  # what `ssh HOST docker system dial-stdio` comes down to
    ssh.parent.mkdir()
    ssh.write_text(f"#!/bin/sh\nexec docker --host {engine} system dial-stdio\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(ssh.parent), prepend=os.pathsep)
    monkeypatch.setenv("DOCKER_HOST", "ssh://user@engine.example")
    reader = BlobReader()

    sink = DockerSink(parse_target("docker:packager-ssh:1"), reader=reader)
    write(sink, spec(weights), reader, tmp_path)

    api = connect_engine().api
    assert len(api.inspect_image("packager-ssh:1")["RootFS"]["Layers"]) == 1
    api.remove_image("packager-ssh:1")
    assert reader.bytes_read == SIZE


@pytest.mark.live
def test_a_base_comes_out_of_a_real_engine(engine: str, weights: Blob, tmp_path: Path) -> None:
    reader = BlobReader()
    target = parse_target("docker:packager-base:1")
    write(DockerSink(target, reader=reader), spec(weights), reader, tmp_path)

    [layer] = DockerBase(cache_dir=tmp_path / "cache").facts(target, Platform()).layers
    assert layer.size == weights.size
    assert sum(len(chunk) for chunk in reader.chunks(layer.blob)) == weights.size
    connect_engine().api.remove_image("packager-base:1")


@pytest.mark.live
def test_an_image_that_the_engine_lacks_is_named(engine: str, tmp_path: Path) -> None:
    with pytest.raises(NotFound) as missing:
        DockerBase(cache_dir=tmp_path).facts(parse_target("docker:no-such-image:1"), Platform())

    assert missing.value.message == "the Docker Engine has no image 'no-such-image:1'"
    assert missing.value.hint == "docker pull no-such-image:1"
