"""Files cut out of layers as they pass, and layers that are files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from packager.cli.plugins.tables import SINKS
from packager.core.documents import NotStrict
from packager.core.errors import ProtocolFailed, UsageError
from packager.core.image import (
    Blob,
    FileRange,
    ImageSpec,
    Inline,
    Layer,
    ModelTree,
    Platform,
    RuntimeConfig,
    TreeFile,
    TreePart,
)
from packager.core.ports import BlobWriter
from packager.core.references import ImageTarget
from packager.core.tree_manifest import read_manifest, write_manifest
from packager.images.blobs import BlobReader
from packager.images.digest_index import DigestIndex
from packager.images.oci import scratch
from packager.images.tar import TarEntry, make_tar
from packager.images.target import bucket_of, directory_of, parse_target
from packager.images.tee import write_image
from packager.images.trees.layers import with_tree
from packager.images.trees.sink import TreeSink
from tests.support.cases import read_tables
from tests.support.known import known

TARGET = ImageTarget(text="dir:out", scheme="dir", rest="out")
ABOUT: Mapping[str, object] = read_tables(__file__)["about"]


@dataclass
class Place:
    """A place of a tree in memory."""

    there: dict[str, bytes] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    manifest: bytes = b""
    name: str = "memory"
    bytes_sent: int = 0

    def preflight(self) -> None: ...

    def prepare(self, tree: ModelTree) -> None: ...

    def has(self, file: TreeFile, sha256: str) -> bool:
        return hashlib.sha256(self.there.get(file.path, b"?")).hexdigest() == sha256

    def may_have(self, file: TreeFile) -> bool:
        return len(self.there.get(file.path, b"")) == file.size

    def open(self, file: TreeFile, sha256: str) -> Writer:
        return Writer(self, file.path)

    def publish(self, manifest: bytes) -> None:
        self.manifest = manifest

    def abandon(self) -> None: ...


@dataclass
class Writer(BlobWriter):
    place: Place
    path: str
    data: bytearray = field(default_factory=bytearray)

    def write(self, chunk: memoryview) -> None:
        self.data += chunk

    def commit(self, digest: str) -> None:
        assert digest == f"sha256:{hashlib.sha256(self.data).hexdigest()}"
        self.place.there[self.path] = bytes(self.data)
        self.place.written.append(self.path)

    def abort(self) -> None:
        self.place.aborted.append(self.path)


def sink_of(place: Place, root: Path) -> TreeSink:
    return TreeSink(TARGET, place, DigestIndex(root / "digests"), BlobReader())


def ranged(path: Path, data: bytes) -> FileRange:
    path.write_bytes(data)
    return FileRange(path=str(path), offset=0, length=len(data))


def image_of(contents: Mapping[str, FileRange | Inline | Blob]) -> ImageSpec:
    entries = [TarEntry(path=f"/m/{name}", content=content) for name, content in contents.items()]
    layer = Layer(role="weights", blob=make_tar(entries))
    runtime = RuntimeConfig()
    return ImageSpec(base=scratch(Platform()), layers=(layer,), runtime=runtime, created="1970")


def tree_of(contents: Mapping[str, FileRange | Inline | Blob]) -> ModelTree:
    files = tuple(
        TreeFile(path=name, role="weights", content=content) for name, content in contents.items()
    )
    return ModelTree(files=files, about=ABOUT)


def write(image: ImageSpec, sink: TreeSink, root: Path) -> None:
    write_image(image, [sink], reader=BlobReader(), index=DigestIndex(root / "digests"))


@pytest.mark.parametrize("chunk", [1, 7, 511, 4096, 1 << 20])
def test_files_are_cut_out_whatever_the_pieces_are(chunk: int, tmp_path: Path) -> None:
    data = {"a": b"first" * 500, "b": bytes(range(256)) * 40, "c": b"x"}
    contents = {name: ranged(tmp_path / name, content) for name, content in data.items()}
    image = with_tree(image_of(contents), tree_of(contents))
    place = Place()
    writer = known(sink_of(place, tmp_path).writer(image.layers[0]))

    tar = memoryview(BlobReader().read(image.layers[0].blob))
    for start in range(0, len(tar), chunk):
        writer.write(tar[start : start + chunk])
    writer.commit("sha256:")

    assert place.there == data
    assert image.beside == ()


def test_a_shard_is_its_own_header_and_a_range(tmp_path: Path) -> None:
    whole = ranged(tmp_path / "model", b"H" * 100 + b"T" * 5000)
    part = FileRange(path=whole.path, offset=100, length=5000)
    contents = {"shard": Blob((Inline(b"header"), part))}
    image = with_tree(image_of(contents), tree_of(contents))
    place = Place()

    write(image, sink_of(place, tmp_path), tmp_path)

    assert place.there == {"shard": b"header" + b"T" * 5000}
    assert image.beside == ()


def test_a_file_that_the_image_lacks_is_a_layer_of_its_own(tmp_path: Path) -> None:
    shared = {"a": ranged(tmp_path / "a", b"a" * 5000)}
    tree = tree_of({**shared, "config.json": Inline(b"{}"), "empty": Inline(b"")})
    image = with_tree(image_of(shared), tree)
    place = Place()

    write(image, sink_of(place, tmp_path), tmp_path)

    assert [layer.parts[0].file.path for layer in image.beside] == ["config.json", "empty"]
    assert place.there == {"a": b"a" * 5000, "config.json": b"{}", "empty": b""}
    listed = [file.path for file in read_manifest(place.manifest).files]
    assert listed == ["a", "config.json", "empty"]


def test_a_file_that_is_not_what_its_source_said_is_refused(tmp_path: Path) -> None:
    file = TreeFile(
        path="a", role="weights", content=ranged(tmp_path / "a", b"a" * 5000), sha256="0" * 64
    )
    layer = Layer(role="weights", blob=file.blob, parts=(TreePart(file=file, offset=0),))
    place = Place()
    writer = known(sink_of(place, tmp_path).writer(layer))

    with pytest.raises(ProtocolFailed, match="'a' has sha256"):
        writer.write(memoryview(b"a" * 5000))
    writer.abort()

    assert (place.there, place.aborted) == ({}, ["a"])


def test_a_layer_that_ends_before_its_files_is_refused(tmp_path: Path) -> None:
    contents = {"a": ranged(tmp_path / "a", b"a" * 5000), "b": ranged(tmp_path / "b", b"b" * 9000)}
    image = with_tree(image_of(contents), tree_of(contents))
    writer = known(sink_of(Place(), tmp_path).writer(image.layers[0]))

    writer.write(memoryview(BlobReader().read(image.layers[0].blob))[:9000])

    with pytest.raises(ProtocolFailed, match="a layer ended before its files"):
        writer.commit("sha256:")


def test_a_manifest_reads_back_and_strange_ones_are_refused() -> None:
    tree = tree_of({"b": Inline(b"2"), "a": Inline(b"1")})
    digests = {"a": "a" * 64, "b": "b" * 64}

    data = write_manifest(tree, digests)

    found = read_manifest(data)
    listed = [(file.path, file.size, file.sha256[0]) for file in found.files]
    assert listed == [("a", 1, "a"), ("b", 1, "b")]
    assert write_manifest(tree, digests) == data
    outside = (data.replace(b'"a"', path) for path in (b'"../a"', b'"/a"'))
    for wrong in (b"", b"[]", b"{}", *outside):
        with pytest.raises(NotStrict):
            read_manifest(wrong)


@pytest.mark.parametrize("text", ["dir:", "s3:bucket", "s3://", "s3:///prefix", "dir://host/x"])
def test_a_place_that_names_nothing_is_refused(text: str) -> None:
    target = parse_target(text, SINKS)

    with pytest.raises(UsageError, match=f"'{text}' names no"):
        (directory_of if target.scheme == "dir" else bucket_of)(target)
