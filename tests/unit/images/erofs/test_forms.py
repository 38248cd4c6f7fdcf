"""Images in two forms: one read, two manifests, and an index that names both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from packager.core.errors import NotFound, OutputFailed, Unavailable
from packager.core.image import (
    Blob,
    Claim,
    FileRange,
    ImageRef,
    ImageSpec,
    Layer,
    Platform,
    RemoteRange,
    SealedImage,
)
from packager.images.blobs import BlobReader, SourceChanged
from packager.images.erofs.layers import file_system_of, with_file_systems
from packager.images.remote_layers import RemoteLayerIndex
from packager.images.tar import TarEntry, make_tar
from packager.images.variants import choose_platform, forms_of, offered_platforms
from tests.support.cases import cases, read_tables
from tests.support.known import known
from tests.unit.images.test_write_image import (
    WEIGHTS,
    Bench,
    FakeSink,
    _FakeWriter,
    _Parts,
    image_of,
)
from tests.unit.images.test_write_image import bench as bench
from tests.unit.images.test_write_image import make_old as make_old
from tests.unit.images.test_write_image import shard as shard


@dataclass(eq=False)
class IndexSink(FakeSink):
    """A sink that names several manifests at once."""

    keeps_index: bool = True
    sealed: SealedImage | None = None
    claims: tuple[Claim, ...] = ()

    def publish(self, image: SealedImage, blobs: Mapping[str, Blob]) -> ImageRef:
        for form in image.forms:
            assert {layer.digest for layer in form.layers} <= set(self.blobs)
        self.sealed = image
        return super().publish(image, blobs)

    def keep_claims(self, image: SealedImage, claims: Sequence[Claim]) -> None:
        self.claims = tuple(claims)


def both_forms(shard: Path, **options: bytes) -> ImageSpec:
    return with_file_systems(image_of(shard, **options))


TAR, EROFS = "application/vnd.oci.image.layer.v1.tar", "application/vnd.erofs.layer.v1"


def test_one_read_of_the_weights_makes_both_forms(bench: Bench, shard: Path) -> None:
    sink = IndexSink()

    written = bench.write(both_forms(shard), sink)

    assert bench.reader.bytes_read == len(WEIGHTS)
    weights = written.layers[0]
    assert weights.twin is not None
    tar, blob = sink.blobs[weights.digest], sink.blobs[weights.twin.digest]
    assert blob[4096 : 4096 + len(tar)] == tar
    assert (weights.twin.size, len(blob) % 4096) == (len(blob), 0)
    assert len(blob) - len(tar) < 40_000


def test_the_index_has_the_plain_manifest_first(bench: Bench, shard: Path) -> None:
    sink = IndexSink()

    bench.write(both_forms(shard), sink)

    sealed = sink.sealed
    assert sealed
    assert sealed.index
    entries = json.loads(sealed.index.document)["manifests"]
    platforms = read_tables(__file__)["platforms"]
    assert [entry["platform"] for entry in entries] == platforms
    assert [entry["digest"] for entry in entries] == [form.digest for form in sealed.forms]
    plain, mounted = sealed.forms
    assert {layer.media_type for layer in plain.layers} == {TAR}
    assert {layer.media_type for layer in mounted.layers} == {EROFS}
    config = json.loads(mounted.config)
    assert config["rootfs"]["diff_ids"] == [layer.digest for layer in mounted.layers]
    assert config["os.features"] == ["erofs"]
    assert "os.features" not in json.loads(plain.config)
    assert sealed.digest == "sha256:" + hashlib.sha256(sealed.index.document).hexdigest()


def test_layers_of_the_base_stay_as_they_are(shard: Path) -> None:
    image = image_of(shard)
    base = Layer(role="base", blob=image.layers[1].blob, digest="sha256:" + "b" * 64)

    made = with_file_systems(replace(image, layers=(base, *image.layers)))

    assert [layer.twin is None for layer in made.layers] == [True, False, False]


def test_a_second_build_reads_and_sends_nothing(bench: Bench, shard: Path) -> None:
    make_old(bench)
    sink = IndexSink()
    first = bench.write(both_forms(shard), sink)
    opened = sink.opened

    second = bench.write(both_forms(shard), sink)

    assert bench.reader.bytes_read == len(WEIGHTS)
    assert sink.opened == opened
    assert second.image == first.image
    assert (second.layers_known, second.layers_streamed) == (2, 0)


def test_file_systems_of_a_known_model_are_read_once_sent_alone(bench: Bench, shard: Path) -> None:
    make_old(bench)
    sink = IndexSink()
    bench.write(image_of(shard), sink)
    plain = dict(sink.blobs)

    bench.write(both_forms(shard), sink)

    assert bench.reader.bytes_read == 2 * len(WEIGHTS)
    assert sink.opened == 4
    assert len(sink.blobs) == len(plain) + 2


@dataclass(eq=False)
class _Remembering(IndexSink):
    """Says that a layer of these weights' size is there; of file systems it knows none."""

    size: int = 0
    digest: str = ""

    def earlier_layers(self, *, with_claims: bool) -> RemoteLayerIndex:
        return RemoteLayerIndex(alike={("weights", self.size): frozenset({self.digest})})


def test_local_weights_that_are_likely_there_are_read_twice_rather_than_sent_twice(
    bench: Bench, shard: Path, tmp_path: Path
) -> None:
    earlier = IndexSink()
    first = bench.write(image_of(shard), earlier).layers[0]
    sink = _Remembering(blobs=dict(earlier.blobs), size=first.size, digest=first.digest)
    fresh = Bench(tmp_path / "fresh")

    fresh.write(both_forms(shard), sink)

    assert fresh.reader.bytes_read == 2 * len(WEIGHTS)
    assert sink.opened == 2


def test_weights_of_a_hub_are_read_once_whatever_is_there(bench: Bench, shard: Path) -> None:
    hub = _Parts(WEIGHTS)
    url = "hf://o/n@" + "c" * 40 + f"/m.safetensors?size={len(WEIGHTS)}"
    remote = RemoteRange(url=url, offset=0, length=len(WEIGHTS))
    layer = Layer(role="weights", blob=make_tar([TarEntry(path="/m/shard", content=remote)]))
    bench.reader = BlobReader((hub,))
    sink = _Remembering(size=layer.size, digest="sha256:" + "d" * 64)

    bench.write(with_file_systems(replace(image_of(shard), layers=(layer,))), sink)

    assert hub.read_ranges == [0]


def test_a_sink_that_keeps_no_index_takes_the_plain_form(bench: Bench, shard: Path) -> None:
    index, engine = IndexSink(), FakeSink()

    written = bench.write(both_forms(shard), index, engine)

    digests = [ref.digest for ref in written.refs]
    assert digests == [written.image.digest, written.image.plain.digest]
    assert len(engine.blobs) == 2
    assert len(index.blobs) == 4
    assert bench.reader.bytes_read == len(WEIGHTS)


def test_where_no_sink_keeps_them_there_are_no_file_systems(bench: Bench, shard: Path) -> None:
    alone = bench.write(image_of(shard), FakeSink())

    written = bench.write(both_forms(shard), FakeSink())

    assert written.image == alone.image
    assert written.image.index is None


class _Losing(_FakeWriter):
    def commit(self, digest: str) -> None:
        raise Unavailable("the line went dead")


@dataclass(eq=False)
class _LosesTwin(IndexSink):
    lost: bool = False

    def writer(self, layer: Layer) -> _FakeWriter | None:
        if "erofs" in layer.media_type and layer.role == "weights" and not self.lost:
            self.lost = True
            return _Losing(self)
        return super().writer(layer)


def test_a_lost_transfer_is_sent_again_alone(bench: Bench, shard: Path) -> None:
    sink, other = _LosesTwin(), IndexSink()

    written = bench.write(both_forms(shard), sink, other)

    assert sorted(sink.blobs) == sorted(other.blobs)
    assert (sink.opened, other.opened) == (4, 4)
    assert bench.reader.bytes_read == 2 * len(WEIGHTS)
    assert written.layers_streamed == 2


@dataclass(eq=False)
class _FullDisk(IndexSink):
    """Takes plain layers; of a file system it has no room for the end."""

    aborted: list[str] = field(default_factory=list)

    def writer(self, layer: Layer) -> _FakeWriter | None:
        sink = self

        class Writer(_FakeWriter):
            def write(self, chunk: memoryview) -> None:
                if "erofs" in layer.media_type and len(self.data) > 1_000_000:
                    raise OutputFailed("no space left", hint="free some")
                super().write(chunk)

            def abort(self) -> None:
                sink.aborted.append(layer.media_type)

        return Writer(self)


def test_a_disk_full_before_the_end_leaves_nothing_open(bench: Bench, shard: Path) -> None:
    sink = _FullDisk()

    with pytest.raises(OutputFailed, match="no space left"):
        bench.write(both_forms(shard), sink)

    assert {EROFS, TAR} <= {*sink.aborted}
    assert (sink.tag, sink.abandoned) == ("", True)


def test_weights_that_change_while_they_are_read_give_no_image(
    bench: Bench, shard: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = IndexSink()
    image = both_forms(shard)
    write = _FakeWriter.write

    def touch(self: _FakeWriter, chunk: memoryview) -> None:
        shard.write_bytes(WEIGHTS[::-1])
        write(self, chunk)

    monkeypatch.setattr(_FakeWriter, "write", touch)

    with pytest.raises(SourceChanged):
        bench.write(image, sink)

    assert (sink.tag, sink.abandoned) == ("", True)
    assert bench.index.get(image.layers[0].blob) is None


def test_claims_say_what_both_forms_hold(bench: Bench, shard: Path) -> None:
    image = image_of(shard)
    named = replace(image.layers[0], content="sha256:" + "c" * 64)
    sink = IndexSink()

    written = bench.write(with_file_systems(replace(image, layers=(named,))), sink)

    twin = known(written.layers[0].twin)
    assert {(claim.digest, claim.size) for claim in sink.claims} == {
        (written.layers[0].digest, written.layers[0].size),
        (twin.digest, twin.size),
    }
    assert len({claim.content for claim in sink.claims}) == 2


def test_a_layout_keeps_all_that_its_index_needs(bench: Bench, shard: Path) -> None:
    first = bench.write_out(both_forms(shard), "1")

    second = bench.write_out(both_forms(shard, note=b"another"), "1")

    entries = json.loads((bench.out / "index.json").read_text())["manifests"]
    assert [(entry["mediaType"], entry["digest"]) for entry in entries] == [
        ("application/vnd.oci.image.index.v1+json", second.image.digest)
    ]
    assert bench.blobs() == {digest[7:] for digest in _all_digests(second.image)}
    assert not {digest[7:] for digest in _all_digests(first.image)} <= bench.blobs()


def _all_digests(image: SealedImage) -> set[str]:
    forms = [
        {form.digest, form.config_descriptor.digest, *(layer.digest for layer in form.layers)}
        for form in image.forms
    ]
    return {image.digest, *forms[0], *forms[1]}


def test_a_layout_asks_for_room_for_both_forms(
    bench: Bench, shard: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 16 * 1024 * 1024 + len(WEIGHTS) * 3 // 2
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": free}))

    with pytest.raises(OutputFailed, match=r"needs 10\.3 MB"):
        bench.write_out(both_forms(shard), "1")

    assert not bench.out.exists()
    bench.write_out(image_of(shard), "1")


INDEX: dict[str, Any] = read_tables(__file__)["index"]


def test_the_form_of_file_systems_is_never_chosen(shard: Path) -> None:
    both = json.dumps(INDEX).encode()
    alone = json.dumps({**INDEX, "manifests": INDEX["manifests"][:1]}).encode()

    assert choose_platform(both, Platform()).digest == "sha256:" + "a" * 64
    assert offered_platforms(both) == ("linux/amd64",)
    with pytest.raises(NotFound):
        choose_platform(alone, Platform())


@cases("only_an_index_of_our_two_forms_is_taken_for_one")
def test_only_an_index_of_our_two_forms_is_taken_for_one(letters: str, found: int) -> None:
    by_letter = {entry["digest"][-1]: entry for entry in INDEX["manifests"]}
    index = {"schemaVersion": 2, "manifests": [by_letter[letter] for letter in letters]}

    assert len(forms_of(json.dumps(index).encode())) == found


def test_a_twin_is_made_without_the_files(tmp_path: Path) -> None:
    path = tmp_path / "gone.safetensors"
    path.write_bytes(WEIGHTS)
    layer = image_of(path).layers[0]
    path.unlink()

    twin = file_system_of(layer)

    assert any(isinstance(part, FileRange) for part in layer.blob.segments)
    assert twin.role == "weights"
    assert twin.size > layer.size
