"""Images into a Docker Engine and bases out of it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from packager.adapters.bases.docker import DockerBase
from packager.adapters.blobs import BlobReader, SourceChanged
from packager.adapters.digest_index import DigestIndex
from packager.adapters.engine import connect_engine
from packager.adapters.sinks.docker import DockerSink
from packager.adapters.sinks.tee import write_image
from packager.core.events import Event, StepEvent
from packager.core.image import (
    MEDIA_LAYER,
    Blob,
    FileRange,
    ImageRef,
    ImageSpec,
    Inline,
    Layer,
    Platform,
    RuntimeConfig,
)
from packager.errors import NotFound, OutputFailed, ProtocolFailed, Unavailable, UsageError
from packager.imaging.oci import scratch
from packager.imaging.tar import Entry, make_tar
from tests.doubles.registry import sha256
from tests.doubles.tcp_engine import address_of_this_machine, forwarded

SIZE = 8_000_000


def spec(*blobs: Blob) -> ImageSpec:
    return ImageSpec(
        base=scratch(Platform()),
        layers=tuple(Layer(role="weights", blob=blob) for blob in blobs),
        runtime=RuntimeConfig(cmd=("/serve",)),
        created="1970-01-01T00:00:00Z",
    )


def write(sink: DockerSink, image: ImageSpec, reader: BlobReader, root: Path) -> ImageRef:
    written = write_image(image, [sink], reader=reader, index=DigestIndex(root / "index"))
    return written.refs[0]


class FakeEngine:
    """An engine that says what it is told to."""

    def __init__(self, *events: dict[str, Any], base_url: str = "http+docker://localhost") -> None:
        self.events = events
        self.removed: list[str] = []
        self.tagged: list[tuple[str, str]] = []
        self.digests: list[str] | None = None
        self.api = SimpleNamespace(
            base_url=base_url,
            pull=self._pull,
            inspect_image=self._inspect,
            tag=lambda image, name, tag, force: self.tagged.append((name, tag)),
            remove_image=lambda image, noprune: self.removed.append(image),
        )

    def _pull(self, repository: str, **settings: Any) -> Iterator[dict[str, Any]]:
        assert settings["auth_config"] == {}
        return iter(self.events)

    def _inspect(self, name: str) -> dict[str, Any]:
        return {"RepoDigests": [name] if self.digests is None else self.digests}


def sink_of(engine: FakeEngine, target: str = "docker:team/model:1") -> DockerSink:
    return DockerSink(target, reader=BlobReader(), connect=lambda: engine)


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


@pytest.mark.parametrize(
    ("said", "error", "hint"),
    [
        ("write /var/lib/docker/x: no space left on device", OutputFailed, "docker system df"),
        ("unauthorized: no", OutputFailed, ""),
    ],
    ids=["disk full", "refused"],
)
def test_what_the_engine_says_is_explained(
    tmp_path: Path, said: str, error: type[Exception], hint: str
) -> None:
    engine = FakeEngine({"status": "Pulling"}, {"error": said, "errorDetail": {"message": said}})

    with pytest.raises(error) as failed:
        write(sink_of(engine), spec(), BlobReader(), tmp_path)

    assert hint in failed.value.hint  # type: ignore[attr-defined]
    assert engine.tagged == []
    assert len(engine.removed) == 1


def test_another_digest_is_never_named(tmp_path: Path) -> None:
    engine = FakeEngine()
    engine.digests = ["127.0.0.1:1/x@sha256:" + "0" * 64]

    with pytest.raises(ProtocolFailed, match="instead of sha256:"):
        write(sink_of(engine), spec(), BlobReader(), tmp_path)

    assert engine.tagged == []


def test_progress_is_what_all_layers_of_the_engine_add_up_to(tmp_path: Path) -> None:
    seen: list[Event] = []
    engine = FakeEngine(
        {"id": "ab", "status": "Downloading", "progressDetail": {"current": 5, "total": 9}},
        {"id": "cd", "status": "Downloading", "progressDetail": {"current": 2, "total": 4}},
        {"id": "ab", "status": "Pull complete", "progressDetail": {}},
    )
    sink = DockerSink(
        "docker:m:1", reader=BlobReader(), connect=lambda: engine, on_event=seen.append
    )

    write(sink, spec(), BlobReader(), tmp_path)

    steps = [event for event in seen if isinstance(event, StepEvent)]
    assert [(event.state, event.done, event.size) for event in steps] == [
        ("started", 0, 0),
        ("running", 5, 9),
        ("running", 7, 13),
        ("finished", 7, 13),
    ]
    assert {(event.step, event.detail) for event in steps} == {("engine", "m:1")}


class LoadingEngine:
    """An engine elsewhere, which keeps the archive that it is sent."""

    def __init__(self, base_url: str, *, says: tuple[dict[str, Any], ...] = ()) -> None:
        self.says = says
        self.received = b""
        self.config: dict[str, Any] = {}
        self.api = SimpleNamespace(
            base_url=base_url, timeout=60, load_image=self._load, inspect_image=self._inspect
        )

    def _load(self, chunks: Iterator[bytes], quiet: bool) -> Iterator[dict[str, Any]]:
        if not self.says:
            self.received = b"".join(chunks)
        yield from self.says

    def _inspect(self, name: str) -> dict[str, Any]:
        files = self.files()
        manifest = json.loads(files["manifest.json"])
        assert [name] == manifest[0]["RepoTags"]
        found = json.loads(files[manifest[0]["Config"]])
        layers = [sha256(files[layer]) for layer in manifest[0]["Layers"]]
        assert layers == found["rootfs"]["diff_ids"]
        return {"RootFS": {"Layers": layers}}

    def files(self) -> dict[str, bytes]:
        with tarfile.open(fileobj=io.BytesIO(self.received)) as archive:
            assert {member.mtime for member in archive} == {0}
            return {
                member.name: archive.extractfile(member).read()  # type: ignore[union-attr]
                for member in archive
            }


@pytest.mark.parametrize(
    "base_url", ["http://10.0.0.1:2375", "https://engine.example:2376", "http+docker://ssh"]
)
def test_an_engine_on_another_machine_gets_an_archive_from_one_read(
    base_url: str, tmp_path: Path
) -> None:
    engine = LoadingEngine(base_url)
    blobs = [shard(tmp_path / f"shard-{number}") for number in range(6)]
    reader = BlobReader()
    sink = DockerSink("docker:team/m:1", reader=reader, connect=lambda: engine)

    write(sink, spec(*blobs), reader, tmp_path)

    files = engine.files()
    layers = sorted(name for name in files if name.startswith("layer-"))
    assert layers == [f"layer-{number:03}.tar" for number in range(6)]
    assert list(files)[-1] == "manifest.json"
    assert reader.bytes_read == 6 * SIZE
    assert sink.bytes_sent == len(engine.received)


def test_two_loads_of_one_image_hold_the_same_files(tmp_path: Path) -> None:
    blobs = [shard(tmp_path / f"shard-{number}") for number in range(3)]
    sent = []
    for _ in range(2):
        engine = LoadingEngine("http://10.0.0.1:2375")
        sink = DockerSink("docker:m:1", reader=BlobReader(), connect=lambda found=engine: found)
        write(sink, spec(*blobs), BlobReader(), tmp_path)
        sent.append(engine.files())

    assert sent[0] == sent[1]


def test_an_engine_in_a_virtual_machine_gets_an_archive_when_it_cannot_pull(
    tmp_path: Path,
) -> None:
    said = "dial tcp 127.0.0.1:4711: connect: connection refused"
    engine = LoadingEngine("http+docker://localhost")
    engine.api.pull = lambda *names, **settings: iter([{"error": said}])
    engine.api.remove_image = lambda image, noprune: None
    sink = DockerSink("docker:m:1", reader=BlobReader(), connect=lambda: engine)

    write(sink, spec(shard(tmp_path / "shard")), BlobReader(), tmp_path)

    assert set(engine.files()) >= {"layer-000.tar", "manifest.json"}


@pytest.mark.parametrize(
    ("said", "error", "hint"),
    [
        ({"error": "write: no space left on device"}, OutputFailed, "docker system df"),
        ({"message": "invalid tar header"}, OutputFailed, ""),
        ({"stream": "bye"}, Unavailable, "docker info"),
    ],
    ids=["disk full", "refused", "stops in the middle"],
)
def test_an_engine_that_does_not_take_the_archive_is_explained(
    tmp_path: Path, said: dict[str, str], error: type[Exception], hint: str
) -> None:
    engine = LoadingEngine("http://10.0.0.1:2375", says=(said,))
    sink = DockerSink("docker:m:1", reader=BlobReader(), connect=lambda: engine)
    blobs = [shard(tmp_path / f"shard-{number}") for number in range(3)]

    with pytest.raises(error) as failed:
        write(sink, spec(*blobs), BlobReader(), tmp_path)

    assert hint in failed.value.hint  # type: ignore[attr-defined]


def test_a_build_that_fails_breaks_the_archive_off(tmp_path: Path) -> None:
    engine = LoadingEngine("http://10.0.0.1:2375")
    ended: list[str] = []

    def load(chunks: Iterator[bytes], quiet: bool) -> Iterator[dict[str, Any]]:
        try:
            for _ in chunks:
                pass
            ended.append("whole")
        except Exception:
            ended.append("broken off")
            raise
        return iter(())

    engine.api.load_image = load
    sink = DockerSink("docker:m:1", reader=BlobReader(), connect=lambda: engine)
    blobs = [shard(tmp_path / f"shard-{number}") for number in range(5)]
    (tmp_path / "shard-4").write_bytes(b"shorter now")

    with pytest.raises(SourceChanged):
        write(sink, spec(*blobs), BlobReader(), tmp_path)

    assert ended == ["broken off"]


@pytest.mark.parametrize("base_url", ["http+docker://localhost", "http://127.0.0.1:2375"])
def test_an_engine_on_this_machine_pulls(base_url: str) -> None:
    sink = sink_of(FakeEngine(base_url=base_url))
    sink.prepare(spec())

    assert sink.writer(spec(Blob((Inline(b"x"),))).layers[0]) is None


def test_an_engine_that_is_not_there_is_refused_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such/socket")

    with pytest.raises(Unavailable, match="'unix:///no/such/socket'"):
        DockerSink("docker:model:1", reader=BlobReader()).prepare(spec())


def test_an_engine_behind_ssh_without_its_library_is_explained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "ssh://user@engine.example")
    monkeypatch.delattr("docker.api.client.SSHHTTPAdapter", raising=False)

    with pytest.raises(Unavailable) as missing:
        connect_engine()

    assert missing.value.hint == "pip install 'packager[ssh]'"


def test_an_output_has_no_digest() -> None:
    with pytest.raises(UsageError):
        sink_of(FakeEngine(), f"docker:model@{sha256(b'')}")


# Bases out of `docker save`

CONFIG_LAYERS = (b"first layer " * 100, b"second layer " * 100)


def archive(files: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    return buffer.getvalue()


def image_config(*layers: bytes) -> bytes:
    return json.dumps(
        {
            "os": "linux",
            "architecture": "amd64",
            "config": {"Cmd": ["/serve"]},
            "rootfs": {"type": "layers", "diff_ids": [sha256(layer) for layer in layers]},
        }
    ).encode()


def docker_20(*layers: bytes) -> bytes:
    config = image_config(*layers)
    names = [f"{number}/layer.tar" for number in range(len(layers))]
    manifest = [{"Config": "abc.json", "RepoTags": None, "Layers": names}]
    return archive(
        {
            **{f"{number}/VERSION": b"1.0" for number in range(len(layers))},
            **dict(zip(names, layers, strict=True)),
            "abc.json": config,
            "manifest.json": json.dumps(manifest).encode(),
        }
    )


def docker_25(*layers: bytes) -> bytes:
    config = image_config(*layers)
    names = [f"blobs/sha256/{sha256(layer)[7:]}" for layer in layers]
    config_name = f"blobs/sha256/{sha256(config)[7:]}"
    manifest = [{"Config": config_name, "RepoTags": None, "Layers": names}]
    return archive(
        {
            **dict(zip(names, layers, strict=True)),
            config_name: config,
            "index.json": b'{"schemaVersion": 2, "manifests": []}',
            "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
            "manifest.json": json.dumps(manifest).encode(),
        }
    )


class SavingEngine:
    """An engine with one image."""

    def __init__(self, saved: bytes) -> None:
        self.saved = saved
        self.asked = 0
        self.api = SimpleNamespace(inspect_image=self._inspect, get_image=self._get)

    def _inspect(self, name: str) -> dict[str, str]:
        return {"Id": "sha256:" + "1d" * 32}

    def _get(self, name: str) -> Iterator[bytes]:
        self.asked += 1
        for start in range(0, len(self.saved), 1000):
            yield self.saved[start : start + 1000]


def base_of(engine: SavingEngine, cache_dir: Path) -> Any:
    source = DockerBase(cache_dir=cache_dir, connect=lambda: engine)
    return source.facts("docker:base:1", Platform())


@pytest.mark.parametrize("save", [docker_20, docker_25], ids=["Docker 20", "Docker 25"])
def test_both_kinds_of_docker_save_are_understood(tmp_path: Path, save: Any) -> None:
    base = base_of(SavingEngine(save(*CONFIG_LAYERS)), tmp_path)

    assert base.reference == "docker:base:1"
    assert [layer.digest for layer in base.layers] == [sha256(layer) for layer in CONFIG_LAYERS]
    assert {layer.media_type for layer in base.layers} == {MEDIA_LAYER}
    content = [b"".join(map(bytes, BlobReader().chunks(layer.blob))) for layer in base.layers]
    assert tuple(content) == CONFIG_LAYERS
    assert base.config["config"] == {"Cmd": ["/serve"]}


def test_the_image_is_taken_out_once(tmp_path: Path) -> None:
    engine = SavingEngine(docker_20(*CONFIG_LAYERS))

    assert base_of(engine, tmp_path) == base_of(engine, tmp_path)

    assert engine.asked == 1
    [cached] = tmp_path.iterdir()
    assert cached.name == "docker-" + "1d" * 32
    assert len(list((cached / "blobs/sha256").iterdir())) == 4


def test_equal_layers_that_docker_20_links_are_found(tmp_path: Path) -> None:
    layer = CONFIG_LAYERS[0]
    manifest = [{"Config": "c.json", "Layers": ["0/layer.tar", "1/layer.tar"]}]
    saved = archive(
        {
            "0/layer.tar": layer,
            "c.json": image_config(layer, layer),
            "manifest.json": json.dumps(manifest).encode(),
        },
        {"1/layer.tar": "../0/layer.tar"},
    )

    base = base_of(SavingEngine(saved), tmp_path)

    assert [found.digest for found in base.layers] == [sha256(layer)] * 2


def test_compressed_layers_stay_as_they_are(tmp_path: Path) -> None:
    packed = b"\x1f\x8b" + os.urandom(100)
    manifest = [{"Config": "c.json", "Layers": ["l"]}]
    saved = archive(
        {
            "l": packed,
            "c.json": image_config(b"what it unpacks to"),
            "manifest.json": json.dumps(manifest).encode(),
        }
    )

    [layer] = base_of(SavingEngine(saved), tmp_path).layers

    assert (layer.digest, layer.media_type) == (sha256(packed), MEDIA_LAYER + "+gzip")
    assert layer.diff_id == sha256(b"what it unpacks to")


@pytest.mark.parametrize(
    "saved",
    [
        b"",
        archive({"x": b"y"}),
        archive({"manifest.json": b"[]"}),
        archive({"manifest.json": b"{"}),
        docker_20(*CONFIG_LAYERS)[:4000],
        docker_20(*CONFIG_LAYERS).replace(b"first layer", b"other layer"),
    ],
    ids=["empty", "no manifest", "no image", "no JSON", "cut off", "damaged layer"],
)
def test_a_broken_archive_is_refused_and_leaves_nothing(tmp_path: Path, saved: bytes) -> None:
    with pytest.raises(ProtocolFailed, match="the Docker Engine gave"):
        base_of(SavingEngine(saved), tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_names_in_the_archive_never_become_paths(tmp_path: Path) -> None:
    layer = CONFIG_LAYERS[0]
    manifest = [{"Config": "c.json", "Layers": ["../../../escape"]}]
    saved = archive(
        {
            "../../../escape": layer,
            "/absolute": b"x",
            "c.json": image_config(layer),
            "manifest.json": json.dumps(manifest).encode(),
        }
    )

    base_of(SavingEngine(saved), tmp_path / "deep" / "cache")

    assert [path.name for path in tmp_path.iterdir()] == ["deep"]


# A real engine


@pytest.fixture
def weights(tmp_path: Path) -> Blob:
    return shard(tmp_path / "shard-1")


def shard(path: Path) -> Blob:
    path.write_bytes(os.urandom(SIZE))
    content = FileRange(path=str(path), offset=0, length=SIZE)
    return make_tar([Entry(path=f"/opt/{path.name}", content=content)])


@pytest.mark.live
def test_a_real_engine_gets_the_image_and_then_only_what_changed(
    engine: str, weights: Blob, tmp_path: Path
) -> None:
    reader = BlobReader()
    first = DockerSink("docker:packager-test:1", reader=reader)
    ref = write(first, spec(weights), reader, tmp_path)
    second = DockerSink("docker:packager-test:2", reader=reader)
    small = make_tar([Entry(path="/opt/config", content=Inline(b"{}"))])
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
    small = make_tar([Entry(path="/opt/config", content=Inline(b"{}"))])
    with forwarded(engine.removeprefix("unix://"), host) as address:
        monkeypatch.setenv("DOCKER_HOST", address)
        sink = DockerSink("docker:packager-remote:1", reader=reader)
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

    write(DockerSink("docker:packager-ssh:1", reader=reader), spec(weights), reader, tmp_path)

    api = connect_engine().api
    assert len(api.inspect_image("packager-ssh:1")["RootFS"]["Layers"]) == 1
    api.remove_image("packager-ssh:1")
    assert reader.bytes_read == SIZE


@pytest.mark.live
def test_a_base_comes_out_of_a_real_engine(engine: str, weights: Blob, tmp_path: Path) -> None:
    reader = BlobReader()
    write(DockerSink("docker:packager-base:1", reader=reader), spec(weights), reader, tmp_path)

    base = DockerBase(cache_dir=tmp_path / "cache").facts("docker:packager-base:1", Platform())

    [layer] = base.layers
    assert layer.size == weights.size
    assert sum(len(chunk) for chunk in reader.chunks(layer.blob)) == weights.size
    connect_engine().api.remove_image("packager-base:1")


@pytest.mark.live
def test_an_image_that_the_engine_lacks_is_named(engine: str, tmp_path: Path) -> None:
    with pytest.raises(NotFound) as missing:
        DockerBase(cache_dir=tmp_path).facts("docker:no-such-image:1", Platform())

    assert missing.value.message == "the Docker Engine has no image 'no-such-image:1'"
    assert missing.value.hint == "docker pull no-such-image:1"
