"""Node caches: what is written, what is kept, what is refused, and what remains after failures."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

import pytest

from packager.addons.nodes.node_cache.entry_check import find_entry, verify_entry
from packager.addons.nodes.node_cache.fill import FillOptions, NodeCacheReport, fill_node_cache
from packager.core.errors import OutputFailed, UsageError
from packager.core.events import Event, LayerEvent, StepEvent
from packager.core.image import MEDIA_EROFS, MEDIA_LAYER
from packager.images.blobs import BlobReader
from packager.images.erofs.metadata import make_blob
from packager.images.erofs.nodes import LayerNotMountable
from packager.images.erofs.scan import TarScanner
from tests.conftest import need
from tests.support import disks
from tests.support.cases import cases
from tests.support.disks import sharing_disk, used
from tests.support.known import known
from tests.support.layer_layouts import (
    GZIP,
    MadeLayer,
    gzipped,
    opened,
    plain,
    tar_of,
    write_layout,
    zstandarded,
)
from tests.support.processes import run_python
from tests.support.refusals import raises_code

SHARD = random.Random(7).randbytes(3_000_000)
WEIGHTS = plain(tar_of({"opt/packager/model/model.safetensors": SHARD}))
BASE = gzipped(tar_of({"usr/bin/python3": SHARD[:70_000], "etc/passwd": b"root\n"}))
LIBRARIES = zstandarded(tar_of({f"usr/lib/{number}.so": SHARD[number:999] for number in range(40)}))
CONFIG = plain(tar_of({"opt/packager/serving/command.json": b"{}"}), role="config")
IMAGE = (BASE, LIBRARIES, WEIGHTS, CONFIG)


OTHER = "sha256:d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa"  # of b"other"
NAMES = sorted(layer.path for layer in IMAGE)
WITH_SIDECARS = sorted(name for path in NAMES for name in (path, f"{path}.dmverity"))


@dataclass
class Node:
    """A node with a cache, and an image of four layers in a layout."""

    root: Path
    reader: BlobReader = field(default_factory=BlobReader)

    def __post_init__(self) -> None:
        self.cache = self.root / "cache"
        self.layout = write_layout(self.root / "layout", IMAGE)

    def fill(self, layout: Path | None = None, **options: object) -> NodeCacheReport:
        made = FillOptions(**options)  # type: ignore[arg-type]
        return fill_node_cache(opened(layout or self.layout), self.cache, self.reader, made)

    def fill_from(self, *layers: MadeLayer, **options: object) -> NodeCacheReport:
        """Fill the cache from an image of these layers."""
        return self.fill(write_layout(self.root / "own", layers), **options)

    def files(self) -> list[str]:
        paths = (path for path in self.cache.rglob("*") if path.is_file())
        return sorted(str(path.relative_to(self.cache)) for path in paths)

    def entry(self, layer: MadeLayer = WEIGHTS) -> Path:
        return self.cache / layer.path

    def temporary(self) -> Path:
        """Where an entry of the weights is written."""
        entry = self.entry()
        entry.parent.mkdir(parents=True, exist_ok=True)
        return entry.with_name(f".{entry.name}.tmp")

    def sidecar(self, layer: MadeLayer = WEIGHTS) -> Path:
        return self.cache / f"{layer.path}.dmverity"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def states(report: NodeCacheReport) -> list[str]:
    return [entry.state for entry in report.entries]


def blob_of(content: bytes) -> bytes:
    scanner = TarScanner()
    scanner.feed(content)
    blob = make_blob(scanner.finish())
    return blob.head + content + blob.tail


def test_every_layer_becomes_a_file_system_under_its_diff_id(node: Node) -> None:
    assert states(node.fill()) == ["made"] * 4
    assert node.files() == NAMES
    for layer in IMAGE:
        assert node.entry(layer).read_bytes() == blob_of(layer.content)
        assert node.entry(layer).stat().st_mode & 0o777 == 0o644


def test_each_layer_is_read_once_and_what_is_there_not_at_all(node: Node) -> None:
    report = node.fill()
    # Where the disk shares extents, what is shared is hashed from the entry itself.
    shared = sum(entry.read for entry in report.entries if entry.shared)
    assert node.reader.bytes_read + shared == sum(len(layer.data) for layer in IMAGE)

    again = node.fill()
    assert states(again) == ["kept"] * 4
    assert node.reader.bytes_read + shared == sum(len(layer.data) for layer in IMAGE)
    assert (again.bytes_read, again.bytes_written) == (0, 0)


def test_a_choice_without_layers_is_refused_with_another(node: Node) -> None:
    with pytest.raises(UsageError, match="has no layer for --layers weights") as refused:
        node.fill_from(BASE, layers="weights")

    assert "--layers all" in refused.value.hint


def test_a_layer_that_is_a_file_system_is_taken_as_it_is(node: Node) -> None:
    made = blob_of(WEIGHTS.content)
    native = MadeLayer(data=made, content=made, media_type=MEDIA_EROFS)

    assert states(node.fill_from(native)) == ["made"]
    assert node.entry(native).read_bytes() == made
    assert states(node.fill(node.root / "own", verify=True)) == ["kept"]


@pytest.mark.parametrize("media_type", [MEDIA_EROFS, f"{MEDIA_LAYER}+xz"])
def test_what_is_not_of_a_known_type_is_passed_over(node: Node, media_type: str) -> None:
    assert states(node.fill_from(replace(WEIGHTS, media_type=media_type))) == ["passed over"]
    assert node.files() == []


def test_progress_tells_the_space_and_each_layer(node: Node) -> None:
    told: list[Event] = []

    fill_node_cache(opened(node.layout), node.cache, BlobReader(), FillOptions(), told.append)

    space = next(event for event in told if isinstance(event, StepEvent))
    assert space.step == "space"
    assert "for 4 layers" in space.detail
    ends = {event.layer: event.state for event in told if isinstance(event, LayerEvent)}
    assert ends == dict.fromkeys(range(4), "written")


@pytest.mark.parametrize("kind", ["xfs", "btrfs"])
def test_plain_layers_share_the_disk_with_their_layout(tmp_path: Path, kind: str) -> None:
    with sharing_disk(kind, tmp_path) as disk:
        node = Node(disk)
        before = used(disk)

        report = node.fill()

        assert states(report) == ["made"] * 4
        assert report.entries[2].shared == len(WEIGHTS.content) // 4096 * 4096
        assert used(disk) - before < 500_000
        assert report.bytes_written < 500_000
        for layer in IMAGE:
            assert node.entry(layer).read_bytes() == blob_of(layer.content)


class TestDmVerity:
    def test_each_entry_has_a_tree_and_its_root_beside_it(self, node: Node) -> None:
        report = node.fill(dm_verity=True)

        assert node.files() == WITH_SIDECARS
        for entry, layer in zip(report.entries, IMAGE, strict=True):
            sidecar = json.loads(node.sidecar(layer).read_text())
            assert sidecar["roothash"] == entry.root_hash
            assert sidecar["hashoffset"] == len(blob_of(layer.content))

    def test_veritysetup_finds_every_block_in_order(self, node: Node) -> None:
        veritysetup = need("veritysetup")
        node.fill(dm_verity=True)

        for layer in IMAGE:
            sidecar = json.loads(node.sidecar(layer).read_text())
            entry, offset = str(node.entry(layer)), f"--hash-offset={sidecar['hashoffset']}"
            command = [veritysetup, "verify", entry, entry, sidecar["roothash"], offset]
            subprocess.run(command, check=True)

    def test_entries_without_a_tree_are_made_anew_and_those_with_one_kept(self, node: Node) -> None:
        node.fill()

        assert states(node.fill(dm_verity=True)) == ["made"] * 4
        assert states(node.fill(dm_verity=True, verify=True)) == ["kept"] * 4
        assert states(node.fill()) == ["kept"] * 4

    def test_a_root_that_does_not_fit_is_no_entry(self, node: Node) -> None:
        node.fill(dm_verity=True)
        node.sidecar().write_text('{"roothash": "00", "hashoffset": 1}')

        assert states(node.fill()) == ["kept", "kept", "made", "kept"]
        assert not node.sidecar().exists()

    def test_two_fills_give_the_same_bytes(self, node: Node) -> None:
        node.fill(dm_verity=True)
        made = {name: (node.cache / name).read_bytes() for name in node.files()}
        node.cache = node.cache.with_name("other")
        node.fill(dm_verity=True)

        assert {name: (node.cache / name).read_bytes() for name in node.files()} == made


class TestDamagedEntries:
    @cases("one_wrong_bit_anywhere_is_found_and_replaced")
    @pytest.mark.parametrize("dm_verity", [False, True], ids=["plain", "with a tree"])
    def test_one_wrong_bit_anywhere_is_found_and_replaced(
        self, node: Node, offset: int, dm_verity: bool
    ) -> None:
        node.fill(dm_verity=dm_verity)
        data = bytearray(node.entry().read_bytes())
        data[offset] ^= 1
        node.entry().write_bytes(data)

        report = node.fill(dm_verity=dm_verity, verify=True)

        assert states(report) == ["kept", "kept", "made", "kept"]
        assert report.entries[2].note == "the entry that was there was damaged"
        found = known(find_entry(node.entry()))
        assert verify_entry(found, WEIGHTS.diff_id)

    def test_a_shortened_entry_is_replaced_without_being_asked(self, node: Node) -> None:
        node.fill()
        os.truncate(node.entry(), 5000)

        assert states(node.fill()) == ["kept", "kept", "made", "kept"]

    def test_an_entry_of_another_layer_is_none_of_this(self, node: Node) -> None:
        node.fill()
        node.entry().write_bytes(node.entry(CONFIG).read_bytes())

        assert states(node.fill(verify=True)) == ["kept", "kept", "made", "kept"]


class TestEntriesOfOtherTools:
    @pytest.fixture
    def foreign(self, node: Node) -> bytes:
        """An entry as containerd's tool makes it, smaller than ours."""
        files = node.root / "files"
        files.mkdir()
        (files / "model.safetensors").write_bytes(b"the same to the eye")
        node.entry().parent.mkdir(parents=True)
        command = [need("mkfs.erofs"), "--quiet", str(node.entry()), str(files)]
        subprocess.run(command, check=True)
        return node.entry().read_bytes()

    def test_they_are_kept_and_told(self, node: Node, foreign: bytes) -> None:
        report = node.fill()

        assert states(report) == ["made", "made", "kept", "made"]
        assert "another tool made the entry" in report.entries[2].note
        assert node.entry().read_bytes() == foreign

    @pytest.mark.parametrize("option", ["verify", "dm_verity"])
    def test_they_are_replaced_on_demand(self, node: Node, foreign: bytes, option: str) -> None:
        assert states(node.fill(**{option: True}))[2] == "made"
        assert node.entry().read_bytes() != foreign


def check_is_refused(node: Node, layer: MadeLayer, reason: str) -> None:
    with raises_code("LayerBroken") as refused:
        node.fill_from(layer)

    assert reason in refused.value.message
    assert refused.value.exit_code == 65
    assert node.files() == []


@cases("lies", layer="base", changes={}, cut=0)
def test_a_layer_that_is_not_what_its_image_says_is_refused(
    node: Node, layer: str, changes: dict[str, str], cut: int, reason: str
) -> None:
    sound = {"base": BASE, "weights": WEIGHTS}[layer]
    made = replace(sound, data=sound.data[: len(sound.data) - cut], **changes)

    check_is_refused(node, made, reason.format(base=BASE))


def test_a_bomb_is_refused(node: Node) -> None:
    """A tar of zeros ends at once, and everything behind its end counts."""
    packed = gzip.compress(bytes(300 * 1024 * 1024), 1)
    bomb = MadeLayer(data=packed, content=b"", media_type=GZIP, stated_diff_id=BASE.diff_id)

    check_is_refused(node, bomb, "over 100 times its size")


def test_other_layers_that_were_complete_stay(node: Node) -> None:
    with raises_code("LayerBroken"):
        node.fill_from(WEIGHTS, replace(BASE, stated_diff_id=OTHER), at_once=1)

    assert node.files() == [WEIGHTS.path]


class TestLayersThatNoFileSystemShows:
    SPARSE = plain(tar_of({"../outside": b"x"}), role="model")

    def test_they_are_passed_over_with_the_reason(self, node: Node) -> None:
        report = node.fill_from(WEIGHTS, self.SPARSE)

        assert states(report) == ["made", "passed over"]
        assert "leads out of the layer" in report.entries[1].note
        assert node.files() == [WEIGHTS.path]

    def test_strictly_they_are_an_error(self, node: Node) -> None:
        with pytest.raises(LayerNotMountable):
            node.fill_from(self.SPARSE, strict=True)

        assert node.files() == []


class TestSpace:
    @pytest.fixture
    def small(self, node: Node) -> Iterator[Node]:
        """A node whose cache is on a small disk."""
        with disks.small_disk(node.root / "disk") as place:
            node.cache = place / "cache"
            yield node

    def test_too_little_is_told_before_anything_is_read(self, small: Node) -> None:
        said = r"are needed in .* for 4 layers, and 2.1 MB are free"
        with pytest.raises(OutputFailed, match=said):
            small.fill()

        assert small.reader.bytes_read == 0

    def test_a_disk_that_fills_up_leaves_no_entry(self, small: Node) -> None:
        with pytest.raises(OutputFailed, match="no space left"):
            small.fill_from(gzipped(tar_of({"zeros": bytes(5_000_000)})))

        assert small.files() == []


class TestBesideOthers:
    def test_what_a_killed_run_left_is_removed(self, node: Node) -> None:
        for left in (node.temporary(), node.cache / "sha256" / "zz" / ".other.erofs.tmp"):
            left.parent.mkdir(parents=True, exist_ok=True)
            left.write_bytes(b"half")

        node.fill()

        assert node.files() == NAMES

    @contextmanager
    def waiting(self, node: Node, report: list[NodeCacheReport]) -> Iterator[IO[bytes]]:
        """Fill the cache while another run writes an entry; it is done after the block."""
        with ThreadPoolExecutor(1) as pool, node.temporary().open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            run = pool.submit(node.fill)
            with pytest.raises(TimeoutError):
                run.result(timeout=1)
            yield file
            file.close()
            report.append(run.result(timeout=60))

    def test_what_another_run_is_writing_stays_and_is_waited_for(self, node: Node) -> None:
        report: list[NodeCacheReport] = []
        with self.waiting(node, report) as file:
            file.write(blob_of(WEIGHTS.content))
            file.flush()
            node.temporary().rename(node.entry())

        assert states(report[0]) == ["made", "made", "kept", "made"]

    def test_a_dead_writer_is_not_waited_for(self, node: Node) -> None:
        report: list[NodeCacheReport] = []
        with self.waiting(node, report) as file:
            file.write(b"as far as it came")

        assert states(report[0]) == ["made"] * 4
        assert node.entry().read_bytes() == blob_of(WEIGHTS.content)

    def test_many_at_once_make_each_entry_once(self, node: Node) -> None:
        with ThreadPoolExecutor(4) as pool:
            reports = list(pool.map(lambda _: node.fill(), range(4)))

        made = [entry.path for report in reports for entry in report.entries if entry.read]
        assert len(made) == len(set(made)) == 4
        assert node.files() == NAMES


KILLED = """
import os, signal, sys
from pathlib import Path
from packager.images.blobs import BlobReader
from packager.addons.nodes.node_cache import entry_file
from packager.addons.nodes.node_cache.entry_file import EntryFile
from packager.addons.nodes.node_cache.fill import FillOptions, fill_node_cache
from tests.support.layer_layouts import opened
layout, cache, where = sys.argv[1:]

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def after(function):
    return lambda *given, **named: (function(*given, **named), die())

if where == "while it is written":
    EntryFile.write = after(EntryFile.write)
elif where == "before the tree":
    EntryFile.add_verity = die
elif where == "before it has its name":
    EntryFile.commit = die
elif where == "behind the sidecar":
    entry_file.write_atomically = after(entry_file.write_atomically)
elif where == "before the names are on the disk":
    entry_file.sync_directory = die
options = FillOptions(dm_verity=True, at_once=1)
fill_node_cache(opened(Path(layout)), Path(cache), BlobReader(), options)
"""


@pytest.mark.parametrize("had_entries", [False, True], ids=["new", "replacing"])
@cases("a_killed_run_leaves_entries_that_are_whole_and_the_next_run_the_rest")
def test_a_killed_run_leaves_entries_that_are_whole_and_the_next_run_the_rest(
    node: Node, where: str, had_entries: bool
) -> None:
    if had_entries:
        node.fill()

    arguments = [str(node.layout), str(node.cache), where]
    run_python("-c", KILLED, *arguments, status=-signal.SIGKILL)

    for layer in IMAGE:
        if node.entry(layer).exists():
            found = known(find_entry(node.entry(layer)))
            assert verify_entry(found, layer.diff_id)
    node.fill(dm_verity=True)
    assert node.files() == WITH_SIDECARS
