"""Writing images through the tee into layouts: what is read, written and left behind."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from packager.core.errors import (
    NotReproduced,
    OutputFailed,
    ProtocolFailed,
    Unavailable,
    UsageError,
)
from packager.core.image import (
    Blob,
    ImageRef,
    ImageSpec,
    Layer,
    RemoteRange,
    RuntimeConfig,
    SealedImage,
    Written,
)
from packager.core.ports import BlobWriter, ImageSink
from packager.images.blobs import BlobReader, FileUnreadable, SourceChanged
from packager.images.claims import Claim
from packager.images.digest_index import DigestIndex
from packager.images.layout.sink import LayoutSink
from packager.images.remote_layers import RemoteLayerIndex
from packager.images.tee import WORKERS, write_image
from tests.support.cases import cases
from tests.support.known import known
from tests.support.made_images import (
    blobs_in,
    check_blobs,
    image_with,
    layer_with,
    layout_sink,
    tar_layer,
)

WEIGHTS = bytes(range(256)) * 20_000  # 5.12 MB: several chunks
HOUR_NS = 3600 * 10**9


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "shard.safetensors"
    path.write_bytes(WEIGHTS)
    return path


def image_of(shard: Path, *, note: bytes = b"note") -> ImageSpec:
    return image_with(
        tar_layer("/m/shard", shard),
        tar_layer("/c/note", note, role="config"),
        runtime=RuntimeConfig(labels={"a": "b"}),
    )


@dataclass
class Bench:
    """One machine: its index, what was read so far, and a layout to write to."""

    root: Path
    reader: BlobReader = field(default_factory=BlobReader)

    def __post_init__(self) -> None:
        self.index = DigestIndex(self.root / "state" / "digests.sqlite")
        self.out = self.root / "out"

    def write(self, image: ImageSpec, *sinks: object, expect: str = "") -> Written:
        return write_image(
            image,
            sinks,  # type: ignore[arg-type]
            reader=self.reader,
            index=self.index,
            expect_digests=(expect,) if expect else (),
            sleep=lambda seconds: None,
        )

    def write_out(self, image: ImageSpec, tag: str = "") -> Written:
        """Write an image to the layout."""
        return self.write(image, layout_sink(f"{self.out}:{tag}" if tag else self.out))

    def files(self) -> list[str]:
        """Return the names of the layout's files."""
        return sorted(path.name for path in self.out.iterdir())

    def blobs(self) -> set[str]:
        """Return the names of the layout's blobs."""
        return {blob.name for blob in blobs_in(self.out)}

    def named(self) -> list[str]:
        """Return the digests that the layout's index names."""
        entries = json.loads((self.out / "index.json").read_bytes())["manifests"]
        return [entry["digest"] for entry in entries]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@dataclass(eq=False)
class FakeSink(ImageSink):
    """Keeps blobs in memory; loses the first `losses` transfers at the end."""

    losses: int = 0
    blobs: dict[str, bytes] = field(default_factory=dict)
    opened: int = 0
    abandoned: bool = False
    tag: str = ""

    def prepare(self, image: ImageSpec) -> None: ...

    def writer(self, layer: Layer) -> _FakeWriter | None:
        if layer.digest in self.blobs:
            return None
        self.opened += 1
        return _FakeWriter(self)

    def locate(self, digest: str) -> Blob | None:
        return None

    def publish(self, image: SealedImage, blobs: Mapping[str, Blob]) -> ImageRef:
        assert {layer.digest for layer in image.layers} <= set(self.blobs)
        self.tag = image.digest
        return ImageRef(target="fake", name="fake", digest=image.digest)

    def abandon(self) -> None:
        self.abandoned = True


class _FakeWriter(BlobWriter):
    def __init__(self, sink: FakeSink) -> None:
        self.sink, self.data = sink, bytearray()

    def write(self, chunk: memoryview) -> None:
        self.data += chunk

    def commit(self, digest: str) -> None:
        if self.sink.losses:
            self.sink.losses -= 1
            raise Unavailable("the line went dead")
        assert digest == "sha256:" + hashlib.sha256(self.data).hexdigest()
        self.sink.blobs[digest] = bytes(self.data)

    def abort(self) -> None: ...


def make_old(bench: Bench) -> None:
    """Let an hour pass, so that file times are no longer racy."""
    bench.index._clock_ns = lambda: time.time_ns() + HOUR_NS


def test_several_sinks_share_one_read(bench: Bench, shard: Path, tmp_path: Path) -> None:
    two = layout_sink(tmp_path / "two")

    written = bench.write(image_of(shard), layout_sink(bench.out), two, FakeSink())

    assert bench.reader.bytes_read == len(WEIGHTS)
    assert {ref.digest for ref in written.refs} == {written.image.digest}
    assert bench.named() == [written.image.digest]
    assert (tmp_path / "two/index.json").read_bytes() == (bench.out / "index.json").read_bytes()


def test_every_blob_of_a_layout_has_the_digest_it_is_named_for(bench: Bench, shard: Path) -> None:
    bench.write_out(image_of(shard))

    blobs = blobs_in(bench.out)
    assert len(blobs) == 4  # two layers, configuration, manifest
    check_blobs(bench.out)


def test_an_unchanged_model_is_not_read_again(bench: Bench, shard: Path) -> None:
    make_old(bench)
    bench.write_out(image_of(shard))
    bench.reader.bytes_read = 0

    again = bench.write_out(image_of(shard))

    assert (bench.reader.bytes_read, again.layers_known) == (0, 2)


def test_a_file_written_just_now_is_hashed_again_not_sent(bench: Bench, shard: Path) -> None:
    sink = FakeSink()
    bench.write(image_of(shard), sink)
    bench.reader.bytes_read = 0

    bench.write(image_of(shard), sink)

    assert bench.reader.bytes_read == len(WEIGHTS)
    assert sink.opened == 2  # the two layers of the first build


def test_an_edit_that_restores_the_modification_time_is_seen(bench: Bench, shard: Path) -> None:
    import os

    make_old(bench)
    first = bench.write(image_of(shard), FakeSink())
    status = shard.stat()
    with shard.open("r+b") as file:
        file.write(b"edited")
    os.utime(shard, ns=(status.st_atime_ns, status.st_mtime_ns))

    second = bench.write(image_of(shard), FakeSink())

    assert first.image.digest != second.image.digest


def test_a_lost_transfer_is_sent_again_to_that_sink_only(bench: Bench, shard: Path) -> None:
    steady, shaky = FakeSink(), FakeSink(losses=1)

    bench.write(image_of(shard), steady, shaky)

    assert (steady.opened, shaky.opened) == (2, 3)
    assert steady.tag == shaky.tag != ""


class _SlowlyStored(FakeSink):
    """Stores no layer before the first byte of every layer has come."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.all_begun = threading.Event()
        self.layers = layers
        self.most_at_once = 0
        self.reading: set[int] = set()
        self.first: set[int] = set()
        self.lock = threading.Lock()

    def writer(self, layer: Layer) -> _FakeWriter:
        return _SlowlyStoredWriter(self)


class _SlowlyStoredWriter(_FakeWriter):
    def write(self, chunk: memoryview) -> None:
        sink = self.sink
        assert isinstance(sink, _SlowlyStored)
        with sink.lock:
            sink.reading.add(id(self))
            sink.first.add(id(self))
            sink.most_at_once = max(sink.most_at_once, len(sink.reading))
            if len(sink.first) == sink.layers:
                sink.all_begun.set()
        super().write(chunk)

    def commit(self, digest: str) -> None:
        sink = self.sink
        assert isinstance(sink, _SlowlyStored)
        with sink.lock:
            sink.reading.discard(id(self))
        assert sink.all_begun.wait(20), "nothing was sent while layers were being stored"
        super().commit(digest)


def test_layers_go_out_while_others_are_being_stored(bench: Bench, tmp_path: Path) -> None:
    """Four shards of one size ended together, and nothing was sent while a registry synced them."""
    shards = [tmp_path / f"shard-{number}" for number in range(2 * WORKERS)]
    for number, path in enumerate(shards):
        path.write_bytes(bytes([number]) * 3_000_000)
    layers = [tar_layer(f"/m/{path.name}", path) for path in shards]
    sink = _SlowlyStored(len(layers))

    bench.write(image_with(*layers), sink)

    assert len(sink.blobs) == 2 * WORKERS
    assert sink.most_at_once <= WORKERS


def test_a_sink_that_never_recovers_leaves_no_name(bench: Bench, shard: Path) -> None:
    sink = FakeSink(losses=100)

    with pytest.raises(Unavailable, match="the line went dead"):
        bench.write(image_of(shard), sink, layout_sink(bench.out))

    assert (sink.tag, sink.abandoned) == ("", True)
    assert not bench.out.exists()


def test_a_file_that_changes_while_it_is_read_stops_the_build(
    bench: Bench, shard: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = FakeSink()
    chunks = BlobReader.chunks

    def meddle(reader: BlobReader, blob: Blob) -> object:
        for count, chunk in enumerate(chunks(reader, blob)):
            if count == 2:
                with shard.open("ab") as file:
                    file.write(b"!")
            yield chunk

    monkeypatch.setattr(BlobReader, "chunks", meddle)

    with pytest.raises(SourceChanged):
        bench.write(image_of(shard), sink)
    assert sink.tag == ""


def test_a_file_that_shrank_is_reported_as_changed(bench: Bench, shard: Path) -> None:
    image = image_of(shard)
    shard.write_bytes(WEIGHTS[:100])

    with pytest.raises(SourceChanged, match="changed while it was read"):
        bench.write(image, FakeSink())


def test_another_digest_than_the_record_is_refused_before_naming(bench: Bench, shard: Path) -> None:
    sink = FakeSink()

    with pytest.raises(NotReproduced):
        bench.write(image_of(shard), sink, expect="sha256:" + "0" * 64)
    assert sink.tag == ""


def test_a_directory_that_is_no_layout_is_left_alone(bench: Bench, shard: Path) -> None:
    bench.out.mkdir()
    (bench.out / "thesis.tex").write_text("precious")

    with pytest.raises(OutputFailed, match="not an OCI layout"):
        bench.write_out(image_of(shard))
    assert (bench.out / "thesis.tex").read_text() == "precious"


def test_replacing_an_image_removes_only_what_nobody_needs(bench: Bench, shard: Path) -> None:
    bench.write_out(image_of(shard, note=b"1"), "kept")
    bench.write_out(image_of(shard, note=b"2"), "moving")
    bench.write_out(image_of(shard, note=b"3"), "moving")

    # one weights layer; configuration layer, configuration and manifest of two images
    assert len(bench.blobs()) == 7


@cases("leftovers_of_kills_are_cleared")
def test_leftovers_of_kills_are_cleared(bench: Bench, shard: Path, leftovers: list[str]) -> None:
    (bench.out / "blobs/sha256").mkdir(parents=True)
    for leftover in leftovers:
        (bench.out / leftover).write_bytes(b"half")

    bench.write_out(image_of(shard))

    assert bench.files() == ["blobs", "index.json", "oci-layout"]
    assert not [name for name in bench.blobs() if name.startswith(".")]


@contextmanager
def killed_at(method: str) -> Iterator[None]:
    """Let a build into a layout end at this method, and leave all that it has made."""
    with pytest.MonkeyPatch.context() as killed:
        killed.setattr(LayoutSink, method, lambda *_: 1 / 0)
        killed.setattr(LayoutSink, "abandon", LayoutSink._release)
        with pytest.raises(ZeroDivisionError):
            yield


def test_what_a_killed_build_made_goes_if_nobody_needs_it(bench: Bench, shard: Path) -> None:
    bench.write_out(image_of(shard, note=b"1"))
    foreign = bench.out / "blobs/sha256" / ("f" * 64)
    foreign.write_bytes(b"what another program has just put here")
    with killed_at("publish"):
        bench.write_out(image_of(shard, note=b"2"))
    assert len(bench.blobs()) == 6

    bench.write_out(image_of(shard, note=b"3"))

    # two layers, configuration and manifest, beside what is not ours
    assert len(bench.blobs()) == 5
    assert foreign.exists()
    assert bench.files() == ["blobs", "index.json", "oci-layout"]


def test_a_build_killed_while_it_removes_is_finished_by_the_next(bench: Bench, shard: Path) -> None:
    bench.write_out(image_of(shard, note=b"1"))
    with killed_at("_remove"):
        bench.write_out(image_of(shard, note=b"2"))
    assert len(bench.blobs()) == 7

    bench.write_out(image_of(shard, note=b"2"))

    assert len(bench.blobs()) == 4


def test_a_damaged_layer_of_a_base_stops_the_build(bench: Bench) -> None:
    """A flipped byte in an `oci:` base gave a new image, with exit status 0."""
    data = bytes(10240)
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    damaged = data[:5000] + b"\x01" + data[5001:]
    below = layer_with(damaged, role="base", digest=digest, diff_id=digest)

    with pytest.raises(ProtocolFailed, match="expected sha256:"):
        bench.write_out(image_with(below))

    assert not (bench.out / "index.json").exists()


def test_an_interrupt_after_the_index_was_replaced_keeps_what_it_names(
    bench: Bench, shard: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(sink: LayoutSink, replaced: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LayoutSink, "_remove_unreachable", interrupt)

    with pytest.raises(KeyboardInterrupt):
        bench.write_out(image_of(shard))

    assert bench.named()[0].removeprefix("sha256:") in bench.blobs()
    assert len(bench.blobs()) == 4  # two layers, configuration, manifest


def test_a_failed_build_leaves_the_image_of_one_that_raced_it(bench: Bench, shard: Path) -> None:
    loser = layout_sink(f"{bench.out}:loser")
    bench.write_out(image_of(shard), "winner")
    loser.prepare(image_of(shard))
    loser._created_root = True  # as it saw it before the winner had made the directory

    loser.abandon()

    assert len(bench.blobs()) == 4


@pytest.mark.parametrize("content", ["{", '{"manifests": 7}', '{"manifests": [{}]}'])
def test_a_layout_with_a_damaged_index_is_refused(bench: Bench, shard: Path, content: str) -> None:
    bench.write_out(image_of(shard))
    (bench.out / "index.json").write_text(content)

    with pytest.raises(OutputFailed, match="is damaged"):
        bench.write_out(image_of(shard, note=b"2"))

    assert len(bench.blobs()) == 4


@pytest.mark.parametrize("tag", ["a b", "-lead", "..", "two\nlines", "ünï"])
def test_a_tag_that_no_layout_tool_could_read_is_refused(tmp_path: Path, tag: str) -> None:
    with pytest.raises(UsageError, match="cannot name an image"):
        layout_sink(f"{tmp_path}:{tag}")


def test_a_disk_that_fails_while_it_is_read_is_no_bug_of_ours(bench: Bench, shard: Path) -> None:
    image = image_of(shard)
    shard.unlink()
    shard.mkdir()  # opens or reads with an OSError, as a failing disk does

    with pytest.raises(FileUnreadable, match="is a directory"):
        bench.write(image, FakeSink())


class _Parts:
    """A hub that serves one file, as far as it is asked for."""

    scheme = "hf"

    def __init__(self, data: bytes) -> None:
        self.data, self.read_ranges = data, []  # type: ignore[var-annotated]

    def read(self, segment: RemoteRange) -> Iterator[bytes]:
        self.read_ranges.append(segment.offset)
        yield self.data[segment.offset : segment.offset + segment.length]


@dataclass(eq=False)
class _Claiming(FakeSink):
    """Has what is proven, until it is asked a second time; keeps what is claimed."""

    proven: dict[str, str] = field(default_factory=dict)  # content → digest
    asked: list[str] = field(default_factory=list)
    claims: tuple[Claim, ...] = ()
    lost: str = ""

    def writer(self, layer: Layer) -> _FakeWriter | None:
        self.asked.append(layer.digest)
        if layer.digest in self.proven.values():
            if layer.digest != self.lost or self.asked.count(layer.digest) == 1:
                return None
            self.opened += 1
            return _FakeWriter(self)
        return super().writer(layer)

    def earlier_layers(self, *, with_claims: bool) -> RemoteLayerIndex:
        digests = {("weights", content, 512): digest for content, digest in self.proven.items()}
        return RemoteLayerIndex(key_id="k", digests=digests)

    def keep_claims(self, image: SealedImage, claims: Sequence[Claim]) -> None:
        self.claims = tuple(claims)

    def publish(self, image: SealedImage, blobs: Mapping[str, Blob]) -> ImageRef:
        return ImageRef(target="fake", name="fake", digest=image.digest)


def test_a_part_that_was_read_without_the_rest_of_its_file_proves_nothing(tmp_path: Path) -> None:
    """The hub's digest is over all of the file: a part alone may be anything."""
    url = "hf://o/n@" + "c" * 40 + "/m.safetensors?size=1024&sha256=" + "5" * 64
    contents = ("sha256:" + "1" * 64, "sha256:" + "2" * 64)
    hub = _Parts(b"anything" * 128)
    parts = [RemoteRange(url=url, offset=at, length=512, in_order=True) for at in (0, 512)]
    layers = [
        layer_with(Blob((part,)), content=content)
        for part, content in zip(parts, contents, strict=True)
    ]
    digest = "sha256:" + hashlib.sha256(hub.data[:512]).hexdigest()
    sink = _Claiming(proven={contents[0]: digest, contents[1]: "sha256:" + "e" * 64}, lost=digest)
    index = DigestIndex(tmp_path / "digests.sqlite")
    image = image_with(*layers)

    written = write_image(image, [sink], reader=BlobReader((hub,)), index=index)  # type: ignore[list-item]

    assert hub.read_ranges == [0]
    assert [claim.content for claim in sink.claims] == [contents[1]]
    assert index.get(layers[0].blob) is None
    assert [layer.believed for layer in written.layers] == ["", "k"]


class _SharingWriter(_FakeWriter):
    """Says that it shares all bytes with the files; what it is given instead is kept."""

    complete = True

    def commit(self, digest: str) -> None:
        assert self.data, "nothing was read, and nothing proves what the files hold"
        super().commit(digest)


class _SharingSink(FakeSink):
    def writer(self, layer: Layer) -> _FakeWriter | None:
        if layer.digest in self.blobs:
            return None
        return _SharingWriter(self) if layer.role == "weights" else _FakeWriter(self)


def test_shared_bytes_without_a_proof_are_read(bench: Bench, shard: Path) -> None:
    """Files that changed a moment before they were hashed may have changed once more."""
    image = image_of(shard)
    first, sink = bench.write(image, FakeSink()), _SharingSink()
    noted = known(bench.index.get(image.layers[0].blob))
    assert not noted.proven

    assert bench.write(image, sink).image.digest == first.image.digest
    assert sorted(sink.blobs) == sorted(layer.digest for layer in first.layers)
