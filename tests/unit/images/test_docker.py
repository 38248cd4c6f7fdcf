"""Images into a Docker Engine and bases out of it."""

from __future__ import annotations

import io
import json
import os
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from packager.core.errors import PackagerError, ProtocolFailed, Unavailable, UsageError
from packager.core.image import (
    MEDIA_LAYER,
    Blob,
    ImageRef,
    ImageSpec,
    Inline,
    Layer,
    Platform,
    RuntimeConfig,
)
from packager.images.blobs import BlobReader, SourceChanged
from packager.images.daemon.base import DockerBase
from packager.images.daemon.sink import DockerSink
from packager.images.digest_index import DigestIndex
from packager.images.docker_engine import connect_engine
from packager.images.target import parse_target
from packager.images.tee import write_image
from packager.images.writers import WriteBrokenOff
from tests.support import made_layers, tars
from tests.support.cases import cases
from tests.support.doubles.registry import sha256
from tests.support.made_images import image_with, layer_with, tar_layer

SIZE = 8_000_000


def spec(*blobs: Blob) -> ImageSpec:
    return image_with(*map(layer_with, blobs), runtime=RuntimeConfig(cmd=("/serve",)))


def write(sink: DockerSink, image: ImageSpec, reader: BlobReader, root: Path) -> ImageRef:
    return write_image(image, [sink], reader=reader, index=DigestIndex(root / "index")).refs[0]


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


def sink_of(engine: Any, target: str = "docker:team/model:1") -> DockerSink:
    return DockerSink(parse_target(target), reader=BlobReader(), connect=lambda: engine)


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


def test_two_loads_of_one_image_hold_the_same_files(tmp_path: Path) -> None:
    blobs = [shard(tmp_path / f"shard-{number}") for number in range(3)]
    sent = []
    for _ in range(2):
        engine = LoadingEngine("http://10.0.0.1:2375")
        write(sink_of(engine), spec(*blobs), BlobReader(), tmp_path)
        sent.append(engine.files())

    assert sent[0] == sent[1]


@cases("answers")
def test_an_engine_that_does_not_take_the_archive_is_explained(
    tmp_path: Path, said: dict[str, str], exit_code: int, hint: str
) -> None:
    sink = sink_of(LoadingEngine("http://10.0.0.1:2375", says=(said,)), "docker:m:1")
    blobs = [shard(tmp_path / f"shard-{number}") for number in range(3)]

    with pytest.raises(PackagerError) as failed:
        write(sink, spec(*blobs), BlobReader(), tmp_path)

    assert failed.value.exit_code == exit_code
    assert hint in failed.value.hint


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
    sink = sink_of(engine, "docker:m:1")
    blobs = [shard(tmp_path / f"shard-{number}") for number in range(5)]
    (tmp_path / "shard-4").write_bytes(b"shorter now")

    with pytest.raises(SourceChanged):
        write(sink, spec(*blobs), BlobReader(), tmp_path)

    assert ended == ["broken off"]


def test_the_failure_is_told_and_not_what_it_cost_another_layer(tmp_path: Path) -> None:
    """Which of them was found first was up to the machine's load."""
    started, broken = threading.Event(), threading.Event()

    def writer(layer: Layer) -> None:
        if layer.created_by == "first":
            started.wait(120)
            broken.set()
            raise WriteBrokenOff("the archive was broken off")
        started.set()
        broken.wait(120)
        threading.Event().wait(0.1)
        raise SourceChanged("shard")

    sink = sink_of(LoadingEngine("http://10.0.0.1:2375"), "docker:m:1")
    sink.writer = writer  # type: ignore[method-assign, assignment]
    names = ("first", "second")
    layers = [layer_with(shard(tmp_path / name), created_by=name) for name in names]

    with pytest.raises(SourceChanged):
        write(sink, image_with(*layers), BlobReader(), tmp_path)


@pytest.mark.parametrize("base_url", ["http+docker://localhost", "http://127.0.0.1:2375"])
def test_an_engine_on_this_machine_pulls(base_url: str) -> None:
    sink = sink_of(FakeEngine(base_url=base_url))
    sink.prepare(spec())

    assert sink.writer(spec(Blob((Inline(b"x"),))).layers[0]) is None


def test_an_engine_behind_ssh_needs_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "ssh://user@engine.example")
    monkeypatch.delattr("docker.api.client.SSHHTTPAdapter", raising=False)

    with pytest.raises(Unavailable) as missing:
        connect_engine()

    assert missing.value.hint == "pip install 'docker[ssh]>=7.1'"


def test_an_output_has_no_digest() -> None:
    with pytest.raises(UsageError):
        sink_of(FakeEngine(), f"docker:model@{sha256(b'')}")


CONFIG_LAYERS = (b"first layer " * 100, b"second layer " * 100)


def archive(files: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    return tars.tar_of(
        *(tars.file(name, data) for name, data in files.items()),
        *(tars.symlink(name, target) for name, target in (links or {}).items()),
    )


def saved(
    layers: dict[str, bytes],
    config: bytes = b"",
    name: str = "abc.json",
    links: dict[str, str] | None = None,
    **more: bytes,
) -> bytes:
    """What `docker save` gives for layers of these names."""
    names = [*layers, *(links or {})]
    manifest = json.dumps([{"Config": name, "RepoTags": None, "Layers": names}]).encode()
    config = config or image_config(*layers.values())
    return archive({**layers, name: config, **more, "manifest.json": manifest}, links)


def image_config(*layers: bytes) -> bytes:
    rootfs = {"type": "layers", "diff_ids": [sha256(layer) for layer in layers]}
    system = {"os": "linux", "architecture": "amd64"}
    return json.dumps({**system, "config": {"Cmd": ["/serve"]}, "rootfs": rootfs}).encode()


def docker_20(*layers: bytes) -> bytes:
    versions = {f"{number}/VERSION": b"1.0" for number in range(len(layers))}
    return saved({f"{n}/layer.tar": layer for n, layer in enumerate(layers)}, **versions)


def docker_25(*layers: bytes) -> bytes:
    config = f"blobs/sha256/{sha256(image_config(*layers))[7:]}"
    index = b'{"schemaVersion": 2, "manifests": []}'
    files = {"index.json": index, "oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}
    blobs = {f"blobs/sha256/{sha256(layer)[7:]}": layer for layer in layers}
    return saved(blobs, name=config, **files)


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
    return source.facts(parse_target("docker:base:1"), Platform())


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
    config, links = image_config(layer, layer), {"1/layer.tar": "../0/layer.tar"}

    base = base_of(SavingEngine(saved({"0/layer.tar": layer}, config, links=links)), tmp_path)

    assert [found.digest for found in base.layers] == [sha256(layer)] * 2


def test_compressed_layers_stay_as_they_are(tmp_path: Path) -> None:
    packed = b"\x1f\x8b" + os.urandom(100)
    engine = SavingEngine(saved({"l": packed}, image_config(b"what it unpacks to")))

    [layer] = base_of(engine, tmp_path).layers

    assert (layer.digest, layer.media_type) == (sha256(packed), MEDIA_LAYER + "+gzip")
    assert layer.diff_id == sha256(b"what it unpacks to")


@pytest.mark.parametrize(
    "broken",
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
def test_a_broken_archive_is_refused_and_leaves_nothing(tmp_path: Path, broken: bytes) -> None:
    with pytest.raises(ProtocolFailed, match="the Docker Engine gave"):
        base_of(SavingEngine(broken), tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_names_in_the_archive_never_become_paths(tmp_path: Path) -> None:
    layer = {"../../../escape": CONFIG_LAYERS[0]}
    base_of(SavingEngine(saved(layer, **{"/absolute": b"x"})), tmp_path / "deep" / "cache")

    assert [path.name for path in tmp_path.iterdir()] == ["deep"]


@pytest.fixture
def weights(tmp_path: Path) -> Blob:
    return shard(tmp_path / "shard-1")


def shard(path: Path) -> Blob:
    path.write_bytes(os.urandom(SIZE))
    return tar_layer(f"/opt/{path.name}", path).blob


@cases("zstd")
def test_a_base_of_zstd_is_refused_by_engines_that_cannot_unpack_it(
    version: dict[str, Any], takes: bool
) -> None:
    base = made_layers.base_of([made_layers.layer_of(tars.tar_of(tars.file("a")), "zstd")])
    engine = SimpleNamespace(version=lambda: version)
    sink = DockerSink(parse_target("docker:a:1"), reader=BlobReader(), connect=lambda: engine)

    if takes:
        sink.check_base(base)
        return
    with pytest.raises(UsageError, match="are compressed with zstd") as refused:
        sink.check_base(base)
    assert "version 23 or later" in refused.value.hint
