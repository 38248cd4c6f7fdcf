"""Random files of all sizes through every reader of bytes: what comes out is what lies there."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from artifact_cache.store import CacheStore
from artifact_cache.stores.archive import export_archive, import_archive
from packager.core.events import ignore
from packager.core.image import (
    MEDIA_LAYER,
    Blob,
    Descriptor,
    FileRange,
    Inline,
    Platform,
    RemoteRange,
)
from packager.core.model import ModelFile, ModelFiles, ModelRef
from packager.core.recipe import Step, StepInput
from packager.core.remote.hub import HubReader
from packager.core.remote.s3 import S3Reader
from packager.images.archive.sink import ArchiveUpload
from packager.images.blobs import BlobReader
from packager.images.compression import _samples, is_worth_it
from packager.images.digest_index import DigestIndex
from packager.images.oci import seal as seal_image
from packager.images.opened import open_layout
from packager.images.registry.reader import RegistryReader, registry_blob
from packager.images.registry.reference import parse_reference
from packager.images.registry.serve import EmbeddedRegistry
from packager.images.target import layout_of, parse_layout_target, parse_target
from packager.images.tee import write_image
from packager.models.hub_headers import HubHeaders
from packager.models.hub_stream import HubStreamSource
from packager.models.pinning import pin_files
from packager.models.reference import parse_model_reference
from packager.models.s3 import S3Source
from packager.optimize.cache.oci import export_entry, import_entry
from packager.optimize.steps.protocol import lay_out
from tests.support.cache_buckets import Place
from tests.support.cache_entries import CHECKPOINT
from tests.support.cache_opening import LocalStore
from tests.support.cache_stores import described, extracted, stored
from tests.support.cases import read_tables
from tests.support.doubles.fake_hub import FakeHub
from tests.support.doubles.models import write_model, write_safetensors
from tests.support.doubles.registry import FakeRegistry, sha256
from tests.support.doubles.s3 import Bucket, bucket_server
from tests.support.doubles.stores import MemoryStore
from tests.support.made_images import (
    hasty_clients,
    image_with,
    layer_with,
    layout_sink,
    tar_layer,
    whole,
)

pytestmark = pytest.mark.extended

MIB = 1024 * 1024
SIZES: dict[str, int] = read_tables(__file__)["sizes"]


@pytest.fixture(params=list(SIZES.values()), ids=list(SIZES))
def data(request: pytest.FixtureRequest) -> bytes:
    return random.Random(request.param).randbytes(request.param)


@pytest.fixture
def file(data: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(data)
    return path


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    with bucket_server() as url:
        yield url


def all_of(path: Path) -> Blob:
    return Blob((whole(path),))


def from_chunks(reader: BlobReader, blob: Blob) -> bytes:
    return b"".join(map(bytes, reader.chunks(blob)))


# Files of this machine


def check_gives(reader: BlobReader, blob: Blob, expected: bytes, what: str = "") -> None:
    """What is read is this, at once and in chunks."""
    assert reader.read(blob) == expected, what
    assert from_chunks(reader, blob) == expected, what


def test_a_file_is_read(file: Path, data: bytes) -> None:
    check_gives(BlobReader(), all_of(file), data)


def test_parts_of_files_between_inline_bytes_are_read_at_once(file: Path, data: bytes) -> None:
    third = len(data) // 3
    blob = Blob(
        (
            Inline(b"head"),
            FileRange(path=str(file), offset=third, length=len(data) - third),
            Inline(b"middle"),
            FileRange(path=str(file), offset=0, length=third),
            Inline(b"tail"),
        )
    )

    check_gives(BlobReader(), blob, b"head" + data[third:] + b"middle" + data[:third] + b"tail")


def test_what_read_returns_stays_as_it_is(file: Path, data: bytes, tmp_path: Path) -> None:
    reader = BlobReader()
    other = tmp_path / "other"
    other.write_bytes(bytes(len(data)))

    first = reader.read(all_of(file))
    reader.read(all_of(other))

    assert first == data


def test_the_samples_that_decide_on_compression_are_bytes_of_the_file(tmp_path: Path) -> None:
    """The last MiB can be compressed; taken for all the others it would make a layer of zstd."""
    noise = random.Random(0).randbytes(11 * MIB)
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(noise + bytes(MIB))
    large.write_bytes(noise + noise[::-1])

    samples = [BlobReader().read(sample) for sample in _samples(all_of(large))]

    assert len(samples) == 16
    assert all(sample in large.read_bytes() for sample in samples)
    assert not is_worth_it(all_of(small), BlobReader())
    assert not is_worth_it(all_of(large), BlobReader())


def test_the_digest_of_a_key_is_that_of_the_file(file: Path, data: bytes, tmp_path: Path) -> None:
    ref = ModelRef(source="local", name="model")
    given = ModelFile(path="a", role="other", content=all_of(file).segments[0])
    files = ModelFiles(ref=ref, files=(given,), config={}, tensors=(), left_out={})

    pinned = pin_files(files, DigestIndex(tmp_path / "digests"), BlobReader())

    assert pinned.files[0].sha256 == sha256(data).removeprefix("sha256:")


def test_inputs_of_a_step_are_the_model_s_bytes(file: Path, data: bytes, tmp_path: Path) -> None:
    """A part of a file is copied for the worker, a whole file is linked."""
    blob = Blob((Inline(b"header"), *all_of(file).segments))
    made = ModelFile(path="shard", role="weights", content=blob)
    linked = ModelFile(path="config", role="config", content=all_of(file).segments[0])
    given = StepInput(files=(made, linked))
    step = Step(name="quantize", tool="any", gives="model", inputs={"model": given})
    place = tmp_path / "run"
    place.mkdir()

    lay_out(step, place, BlobReader().chunks, ignore)

    assert (place / "inputs/model/shard").read_bytes() == b"header" + data
    assert (place / "inputs/model/config").read_bytes() == data


# Images


def test_a_layout_gives_back_what_was_packaged(file: Path, data: bytes, tmp_path: Path) -> None:
    place, index = tmp_path / "layout", DigestIndex(tmp_path / "digests")
    image = image_with(tar_layer("/m/file", file))
    write_image(image, [layout_sink(place)], reader=BlobReader(), index=index)

    found = open_layout(parse_layout_target(f"oci:{place}"), Platform())
    [layer] = found.image.layers
    blob = found.locate(layer.descriptor)

    tar = BlobReader().read(blob)
    assert sha256(tar) == layer.descriptor.digest
    assert from_chunks(BlobReader(), blob) == tar
    assert data in tar


def test_a_registry_gives_back_what_was_packaged(data: bytes) -> None:
    with FakeRegistry() as registry:
        digest = registry.put("a/b", data)
        blob = registry_blob(f"{registry.host}/a/b", digest, len(data))

        check_gives(BlobReader([RegistryReader(clients=hasty_clients())]), blob, data)


def test_the_embedded_registry_gives_an_engine_the_packaged_bytes(file: Path, data: bytes) -> None:
    blob = Blob((Inline(b"head"), *all_of(file).segments, Inline(b"tail")))
    digest = sha256(b"head" + data + b"tail")
    described = Descriptor(media_type=MEDIA_LAYER, digest=digest, size=blob.size)
    image = seal_image(image_with(layer_with(blob, digest=digest)), [described])

    with EmbeddedRegistry(image, {digest: blob}, BlobReader()) as served:
        name = parse_reference(served.name)
        client = hasty_clients().at(name.host)
        pulled = client.read_blob(name.repository, digest, offset=0, length=blob.size)
        assert b"".join(pulled) == b"head" + data + b"tail"


def test_an_archive_for_an_engine_holds_the_packaged_bytes(file: Path, data: bytes) -> None:
    """Chunks wait in a queue there while the next ones are read."""
    received: list[bytes] = []

    def load(chunks: Iterator[bytes]) -> Iterator[dict[str, Any]]:
        received.extend(chunks)
        yield {"stream": "loaded"}

    upload = ArchiveUpload(
        load, explain=lambda error: pytest.fail(str(error)), on_message=lambda message: None
    )
    entry = upload.file("layer.tar", len(data))
    for chunk in BlobReader().chunks(all_of(file)):
        entry.write(chunk)
    entry.commit("")
    upload.finish()

    assert b"".join(received)[512 : 512 + len(data)] == data


# Models elsewhere


def remote_model(tmp_path: Path, data: bytes) -> Path:
    """A model whose tokenizer is large text of random digits, and whose weights are random."""
    model = write_model(tmp_path / "model", shards=1)
    write_safetensors(model / "model.safetensors", {"a": ("U8", (len(data),))}, seed=1)
    (model / "merges.txt").write_text(data.hex())
    return model


def files_of(found: ModelFiles) -> dict[str, RemoteRange]:
    made = {}
    for file in found.files:
        assert isinstance(file.content, RemoteRange)
        made[file.path] = file.content
    return made


@pytest.mark.parametrize("ranges", [True, False], ids=["ranges", "whole files only"])
def test_a_hub_gives_the_published_bytes(data: bytes, tmp_path: Path, ranges: bool) -> None:
    model = remote_model(tmp_path, data)
    with FakeHub() as hub:
        hub.add("org/name", model)
        hub.ranges = ranges
        source = HubStreamSource(
            endpoint=hub.url, cache_dir=tmp_path / "cache", token=hub.token, headers_only=False
        )
        found = source.facts(parse_model_reference("hf://org/name"))
        reader = BlobReader([HubReader(endpoint=hub.url, token=hub.token, sleep=lambda s: None)])
        for path, content in files_of(found).items():
            check_gives(reader, Blob((content,)), (model / path).read_bytes(), path)


@pytest.mark.parametrize("ranges", [True, False], ids=["ranges", "whole files only"])
def test_a_hub_gives_the_ranges_that_are_wanted(data: bytes, tmp_path: Path, ranges: bool) -> None:
    with FakeHub() as hub:
        commit = hub.add("org/name", {"model.safetensors": data})
        hub.ranges = ranges
        api = SimpleNamespace(endpoint=hub.url, token=hub.token)
        headers = HubHeaders(api, SimpleNamespace(), "org/name", commit, {})  # type: ignore[arg-type]
        for offset in (0, 7, len(data) // 2):
            length = max(0, len(data) - offset - 3)
            part = headers._read("model.safetensors", offset, length)
            assert part == data[offset : offset + length]


def test_a_bucket_gives_the_stored_bytes(
    data: bytes, tmp_path: Path, s3_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = Bucket(s3_server)
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    model = remote_model(tmp_path, data)
    bucket.upload(model, "llama")

    found = S3Source().facts(parse_model_reference(f"{bucket.url}/llama"))
    reader = BlobReader([S3Reader()])
    for path, content in files_of(found).items():
        check_gives(reader, Blob((content,)), (model / path).read_bytes(), path)


# Artifacts


@pytest.mark.parametrize("kind", ["local", "memory", "s3"])
def test_stores_archives_and_artifacts_give_back_what_was_published(
    data: bytes, tmp_path: Path, s3_server: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    made = {
        "local": lambda: LocalStore(tmp_path / "cache"),
        "memory": MemoryStore,
        "s3": lambda: Place(s3_server).store(partial=tmp_path / "partial"),
    }
    store: CacheStore = made[kind]()
    expected = {"model.bin": data, "config.json": b"{}"}
    for name in ("built", "scratch", "in", "oci", "oci in"):
        (tmp_path / name).mkdir()
    for name, content in expected.items():
        (tmp_path / "built" / name).write_bytes(content)
    assert store.put(described(tmp_path / "built", CHECKPOINT), tmp_path / "built")
    assert extracted(store, CHECKPOINT, tmp_path / "out") == expected

    found = stored(store, CHECKPOINT)
    export_archive([found], tmp_path / "cache.tar", tmp_path / "scratch")
    into = MemoryStore()
    import_archive(io.BytesIO((tmp_path / "cache.tar").read_bytes()), into, tmp_path / "in")
    assert extracted(into, CHECKPOINT, tmp_path / "from archive") == expected

    export_entry(found, layout_sink(tmp_path / "layout"), tmp_path / "oci")
    again = MemoryStore()
    import_entry(
        parse_target(f"oci:{tmp_path / 'layout'}"),
        again,
        tmp_path / "oci in",
        open_image=lambda target: open_layout(layout_of(target), Platform()),
        reader=BlobReader(),
    )
    assert extracted(again, CHECKPOINT, tmp_path / "from artifact") == expected
