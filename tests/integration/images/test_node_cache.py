"""Node caches: what is written, what is kept, what is refused, and what remains after failures."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from packager.core.events import Event, LayerEvent, StepEvent
from packager.core.image import MEDIA_EROFS, MEDIA_LAYER
from packager.errors import OutputFailed, PackagerError, UsageError
from packager.images.blobs import BlobReader
from packager.images.erofs.metadata import make_blob
from packager.images.erofs.nodes import LayerNotMountable
from packager.images.erofs.scan import TarScanner
from packager.images.erofs.unpacking import LayerBroken
from packager.images.node_cache.entry_check import find_entry, verify_entry
from packager.images.node_cache.fill import FillOptions, NodeCacheReport, fill_node_cache
from tests.conftest import need
from tests.support import disks
from tests.support.disks import sharing_disk, used
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

SHARD = random.Random(7).randbytes(3_000_000)
WEIGHTS = plain(tar_of({"opt/packager/model/model.safetensors": SHARD}))
BASE = gzipped(tar_of({"usr/bin/python3": SHARD[:70_000], "etc/passwd": b"root\n"}))
LIBRARIES = zstandarded(tar_of({f"usr/lib/{number}.so": SHARD[number:999] for number in range(40)}))
CONFIG = plain(tar_of({"opt/packager/serving/command.json": b"{}"}), role="config")
IMAGE = (BASE, LIBRARIES, WEIGHTS, CONFIG)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    return write_layout(tmp_path / "layout", IMAGE)


def fill(layout: Path, cache: Path, **options: object) -> NodeCacheReport:
    return fill_node_cache(
        opened(layout),
        cache,
        BlobReader(),
        FillOptions(**options),  # type: ignore[arg-type]
    )


def states(report: NodeCacheReport) -> list[str]:
    return [entry.state for entry in report.entries]


def files_in(cache: Path) -> list[str]:
    return sorted(str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file())


def blob_of(content: bytes) -> bytes:
    scanner = TarScanner()
    scanner.feed(content)
    blob = make_blob(scanner.finish())
    return blob.head + content + blob.tail


def test_every_layer_becomes_a_file_system_under_its_diff_id(layout: Path, cache: Path) -> None:
    report = fill(layout, cache)

    assert states(report) == ["made"] * 4
    assert files_in(cache) == sorted(layer.path for layer in IMAGE)
    for layer in IMAGE:
        assert (cache / layer.path).read_bytes() == blob_of(layer.content)
        assert (cache / layer.path).stat().st_mode & 0o777 == 0o644


def test_each_layer_is_read_once_and_what_is_there_not_at_all(layout: Path, cache: Path) -> None:
    reader = BlobReader()
    options = FillOptions()

    report = fill_node_cache(opened(layout), cache, reader, options)
    # Where the disk shares extents, what is shared is hashed from the entry itself.
    shared = sum(entry.read for entry in report.entries if entry.shared)
    assert reader.bytes_read + shared == sum(len(layer.data) for layer in IMAGE)

    again = fill_node_cache(opened(layout), cache, reader, options)
    assert states(again) == ["kept"] * 4
    assert reader.bytes_read + shared == sum(len(layer.data) for layer in IMAGE)
    assert (again.bytes_read, again.bytes_written) == (0, 0)


@pytest.mark.parametrize(
    ("choice", "chosen"),
    [("weights", [WEIGHTS]), ("own", [WEIGHTS, CONFIG]), ("all", list(IMAGE))],
    ids=["weights", "own", "all"],
)
def test_layers_are_chosen_by_what_they_are_for(
    layout: Path, cache: Path, choice: str, chosen: Sequence[MadeLayer]
) -> None:
    fill(layout, cache, layers=choice)

    assert files_in(cache) == sorted(layer.path for layer in chosen)


def test_a_choice_without_layers_is_refused_with_another(tmp_path: Path, cache: Path) -> None:
    layout = write_layout(tmp_path / "base", [BASE])

    with pytest.raises(UsageError, match="has no layer for --layers weights") as refused:
        fill(layout, cache, layers="weights")

    assert "--layers all" in refused.value.hint


def test_a_layer_that_is_a_file_system_is_taken_as_it_is(tmp_path: Path, cache: Path) -> None:
    made = blob_of(WEIGHTS.content)
    native = MadeLayer(data=made, content=made, media_type=MEDIA_EROFS)

    report = fill(write_layout(tmp_path / "native", [native]), cache)

    assert states(report) == ["made"]
    assert (cache / native.path).read_bytes() == made
    assert states(fill(tmp_path / "native", cache, verify=True)) == ["kept"]


def test_what_only_says_that_it_is_a_file_system_is_passed_over(
    tmp_path: Path, cache: Path
) -> None:
    lie = replace(WEIGHTS, media_type=MEDIA_EROFS)

    report = fill(write_layout(tmp_path / "lie", [lie]), cache)

    assert states(report) == ["passed over"]
    assert files_in(cache) == []


def test_progress_tells_the_space_and_each_layer(layout: Path, cache: Path) -> None:
    told: list[Event] = []

    fill_node_cache(opened(layout), cache, BlobReader(), FillOptions(), told.append)

    space = next(event for event in told if isinstance(event, StepEvent))
    assert space.step == "space"
    assert "for 4 layers" in space.detail
    ends = {event.layer: event.state for event in told if isinstance(event, LayerEvent)}
    assert ends == dict.fromkeys(range(4), "written")


@pytest.mark.parametrize("kind", ["xfs", "btrfs"])
def test_plain_layers_share_the_disk_with_their_layout(tmp_path: Path, kind: str) -> None:
    with sharing_disk(kind, tmp_path) as disk:
        layout = write_layout(disk / "layout", IMAGE)
        before = used(disk)

        report = fill(layout, disk / "cache")

        assert states(report) == ["made"] * 4
        assert report.entries[2].shared == len(WEIGHTS.content) // 4096 * 4096
        assert used(disk) - before < 500_000
        assert report.bytes_written < 500_000
        for layer in IMAGE:
            assert (disk / "cache" / layer.path).read_bytes() == blob_of(layer.content)


class TestDmVerity:
    def test_each_entry_has_a_tree_and_its_root_beside_it(self, layout: Path, cache: Path) -> None:
        report = fill(layout, cache, dm_verity=True)

        assert files_in(cache) == sorted(
            name for layer in IMAGE for name in (layer.path, f"{layer.path}.dmverity")
        )
        for entry, layer in zip(report.entries, IMAGE, strict=True):
            sidecar = json.loads((cache / f"{layer.path}.dmverity").read_text())
            assert sidecar["roothash"] == entry.root_hash
            assert sidecar["hashoffset"] == len(blob_of(layer.content))

    def test_veritysetup_finds_every_block_in_order(self, layout: Path, cache: Path) -> None:
        veritysetup = need("veritysetup")
        fill(layout, cache, dm_verity=True)

        for layer in IMAGE:
            sidecar = json.loads((cache / f"{layer.path}.dmverity").read_text())
            entry = str(cache / layer.path)
            offset = f"--hash-offset={sidecar['hashoffset']}"
            subprocess.run(
                [veritysetup, "verify", entry, entry, sidecar["roothash"], offset], check=True
            )

    def test_entries_without_a_tree_are_made_anew_and_those_with_one_kept(
        self, layout: Path, cache: Path
    ) -> None:
        fill(layout, cache)

        assert states(fill(layout, cache, dm_verity=True)) == ["made"] * 4
        assert states(fill(layout, cache, dm_verity=True, verify=True)) == ["kept"] * 4
        assert states(fill(layout, cache)) == ["kept"] * 4

    def test_a_root_that_does_not_fit_is_no_entry(self, layout: Path, cache: Path) -> None:
        fill(layout, cache, dm_verity=True)
        (cache / f"{WEIGHTS.path}.dmverity").write_text('{"roothash": "00", "hashoffset": 1}')

        report = fill(layout, cache)

        assert states(report) == ["kept", "kept", "made", "kept"]
        assert not (cache / f"{WEIGHTS.path}.dmverity").exists()

    def test_two_fills_give_the_same_bytes(self, layout: Path, cache: Path) -> None:
        fill(layout, cache, dm_verity=True)
        fill(layout, cache.with_name("other"), dm_verity=True)

        for name in files_in(cache):
            assert (cache / name).read_bytes() == (cache.with_name("other") / name).read_bytes()


class TestDamagedEntries:
    def damaged(self, layout: Path, cache: Path, offset: int, *, dm_verity: bool) -> None:
        fill(layout, cache, dm_verity=dm_verity)
        with (cache / WEIGHTS.path).open("r+b") as file:
            file.seek(offset, os.SEEK_END if offset < 0 else os.SEEK_SET)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))

    @pytest.mark.parametrize(
        "offset",
        [100, 1074, 4096 + 20, 1_500_000, -100],
        ids=["head", "uuid", "tar", "data", "end"],
    )
    @pytest.mark.parametrize("dm_verity", [False, True], ids=["plain", "with a tree"])
    def test_one_wrong_bit_anywhere_is_found_and_replaced(
        self, layout: Path, cache: Path, offset: int, dm_verity: bool
    ) -> None:
        self.damaged(layout, cache, offset, dm_verity=dm_verity)

        report = fill(layout, cache, dm_verity=dm_verity, verify=True)

        assert states(report) == ["kept", "kept", "made", "kept"]
        assert report.entries[2].note == "the entry that was there was damaged"
        found = find_entry(cache / WEIGHTS.path)
        assert found is not None
        assert verify_entry(found, WEIGHTS.diff_id)

    def test_a_shortened_entry_is_replaced_without_being_asked(
        self, layout: Path, cache: Path
    ) -> None:
        fill(layout, cache)
        os.truncate(cache / WEIGHTS.path, 5000)

        assert states(fill(layout, cache)) == ["kept", "kept", "made", "kept"]

    def test_an_entry_of_another_layer_is_none_of_this(self, layout: Path, cache: Path) -> None:
        fill(layout, cache)
        (cache / WEIGHTS.path).write_bytes((cache / CONFIG.path).read_bytes())

        assert states(fill(layout, cache, verify=True)) == ["kept", "kept", "made", "kept"]


class TestEntriesOfOtherTools:
    @pytest.fixture
    def foreign(self, layout: Path, cache: Path, tmp_path: Path) -> bytes:
        """An entry as containerd's tool makes it, smaller than ours."""
        files = tmp_path / "files"
        files.mkdir()
        (files / "model.safetensors").write_bytes(b"the same to the eye")
        entry = cache / WEIGHTS.path
        entry.parent.mkdir(parents=True)
        subprocess.run([need("mkfs.erofs"), "--quiet", str(entry), str(files)], check=True)
        return entry.read_bytes()

    def test_they_are_kept_and_told(self, layout: Path, cache: Path, foreign: bytes) -> None:
        report = fill(layout, cache)

        assert states(report) == ["made", "made", "kept", "made"]
        assert "another tool made the entry" in report.entries[2].note
        assert (cache / WEIGHTS.path).read_bytes() == foreign

    @pytest.mark.parametrize("option", ["verify", "dm_verity"])
    def test_they_are_replaced_where_more_is_asked(
        self, layout: Path, cache: Path, foreign: bytes, option: str
    ) -> None:
        report = fill(layout, cache, **{option: True})

        assert states(report)[2] == "made"
        assert (cache / WEIGHTS.path).read_bytes() != foreign


class TestLyingImages:
    def refused(self, tmp_path: Path, cache: Path, *layers: MadeLayer) -> PackagerError:
        layout = write_layout(tmp_path / "lie", layers)
        with pytest.raises(LayerBroken) as refused:
            fill(layout, cache)
        assert files_in(cache) == []
        return refused.value

    def test_another_content_than_the_diff_id(self, tmp_path: Path, cache: Path) -> None:
        other = "sha256:" + hashlib.sha256(b"other").hexdigest()

        error = self.refused(tmp_path, cache, replace(BASE, stated_diff_id=other))

        assert f"the digest of its content (diffID) is {BASE.diff_id}" in error.message
        assert other in error.message
        assert error.exit_code == 65

    def test_another_digest_of_what_travels(self, tmp_path: Path, cache: Path) -> None:
        other = "sha256:" + hashlib.sha256(b"other").hexdigest()

        error = self.refused(tmp_path, cache, replace(BASE, stated_digest=other))

        assert f"its digest is {BASE.digest}, its image says {other}" in error.message

    def test_a_tar_whose_diff_id_is_not_its_digest(self, tmp_path: Path, cache: Path) -> None:
        other = "sha256:" + hashlib.sha256(b"other").hexdigest()

        error = self.refused(tmp_path, cache, replace(WEIGHTS, stated_diff_id=other))

        assert "it is not compressed" in error.message

    @pytest.mark.parametrize("name", ["sha256:../../../tmp/owned", "md5:1234", "x"])
    def test_a_diff_id_that_is_no_name_of_a_file(
        self, tmp_path: Path, cache: Path, name: str
    ) -> None:
        error = self.refused(tmp_path, cache, replace(BASE, stated_diff_id=name))

        assert "names no digest of its content" in error.message

    def test_a_bomb(self, tmp_path: Path, cache: Path) -> None:
        zeros = bytes(300 * 1024 * 1024)
        packed = gzip.compress(zeros, 1)
        bomb = MadeLayer(data=packed, content=b"", media_type=GZIP, stated_diff_id=BASE.diff_id)

        # A tar of zeros ends at once, and everything behind its end counts.
        assert "over 100 times its size" in self.refused(tmp_path, cache, bomb).message

    def test_a_stream_that_ends_early(self, tmp_path: Path, cache: Path) -> None:
        short = replace(BASE, data=BASE.data[:-50])

        assert "ends early" in self.refused(tmp_path, cache, short).message

    def test_other_layers_that_were_complete_stay(self, tmp_path: Path, cache: Path) -> None:
        other = "sha256:" + hashlib.sha256(b"other").hexdigest()
        layout = write_layout(tmp_path / "lie", [WEIGHTS, replace(BASE, stated_diff_id=other)])

        with pytest.raises(LayerBroken):
            fill(layout, cache, at_once=1)

        assert files_in(cache) == [WEIGHTS.path]


class TestLayersThatNoFileSystemShows:
    SPARSE = plain(tar_of({"../outside": b"x"}), role="model")

    def test_they_are_passed_over_with_the_reason(self, tmp_path: Path, cache: Path) -> None:
        layout = write_layout(tmp_path / "odd", [WEIGHTS, self.SPARSE])

        report = fill(layout, cache)

        assert states(report) == ["made", "passed over"]
        assert "leads out of the layer" in report.entries[1].note
        assert files_in(cache) == [WEIGHTS.path]

    def test_strictly_they_are_an_error(self, tmp_path: Path, cache: Path) -> None:
        layout = write_layout(tmp_path / "odd", [self.SPARSE])

        with pytest.raises(LayerNotMountable):
            fill(layout, cache, strict=True)

        assert files_in(cache) == []


class TestSpace:
    @pytest.fixture
    def small_disk(self, tmp_path: Path) -> Iterator[Path]:
        with disks.small_disk(tmp_path / "disk") as place:
            yield place

    def test_too_little_is_told_before_anything_is_read(
        self, layout: Path, small_disk: Path
    ) -> None:
        reader = BlobReader()

        with pytest.raises(
            OutputFailed, match=r"are needed in .* for 4 layers, and 2.1 MB are free"
        ):
            fill_node_cache(opened(layout), small_disk / "cache", reader, FillOptions())

        assert reader.bytes_read == 0

    def test_a_disk_that_fills_up_leaves_no_entry(self, tmp_path: Path, small_disk: Path) -> None:
        packed = gzipped(tar_of({"zeros": bytes(5_000_000)}))
        layout = write_layout(tmp_path / "packed", [packed])

        with pytest.raises(OutputFailed, match="no space left"):
            fill(layout, small_disk / "cache")

        assert files_in(small_disk / "cache") == []


class TestBesideOthers:
    def test_what_a_killed_run_left_is_removed(self, layout: Path, cache: Path) -> None:
        left = (cache / WEIGHTS.path).with_name(f".{Path(WEIGHTS.path).name}.tmp")
        left.parent.mkdir(parents=True)
        left.write_bytes(b"half")
        elsewhere = cache / "sha256" / "zz" / ".other.erofs.tmp"
        elsewhere.parent.mkdir(parents=True)
        elsewhere.write_bytes(b"half")

        fill(layout, cache)

        assert files_in(cache) == sorted(layer.path for layer in IMAGE)

    def test_what_another_run_is_writing_stays_and_is_waited_for(
        self, layout: Path, cache: Path
    ) -> None:
        entry = cache / WEIGHTS.path
        temporary = entry.with_name(f".{entry.name}.tmp")
        temporary.parent.mkdir(parents=True)
        reports: list[NodeCacheReport] = []
        with temporary.open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            run = threading.Thread(target=lambda: reports.append(fill(layout, cache)))
            run.start()
            run.join(1)
            assert run.is_alive()
            file.write(blob_of(WEIGHTS.content))
            file.flush()
            temporary.rename(entry)
        run.join(60)

        assert states(reports[0]) == ["made", "made", "kept", "made"]

    def test_a_dead_writer_is_not_waited_for(self, layout: Path, cache: Path) -> None:
        entry = cache / WEIGHTS.path
        temporary = entry.with_name(f".{entry.name}.tmp")
        temporary.parent.mkdir(parents=True)
        reports: list[NodeCacheReport] = []
        with temporary.open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            run = threading.Thread(target=lambda: reports.append(fill(layout, cache)))
            run.start()
            file.write(b"as far as it came")
        run.join(60)

        assert states(reports[0]) == ["made"] * 4
        assert (cache / WEIGHTS.path).read_bytes() == blob_of(WEIGHTS.content)

    def test_many_at_once_make_each_entry_once(self, layout: Path, cache: Path) -> None:
        reports: list[NodeCacheReport] = []
        runs = [
            threading.Thread(target=lambda: reports.append(fill(layout, cache))) for _ in range(4)
        ]
        for run in runs:
            run.start()
        for run in runs:
            run.join(60)

        made = [entry.path for report in reports for entry in report.entries if entry.read]
        assert len(made) == len(set(made)) == 4
        assert files_in(cache) == sorted(layer.path for layer in IMAGE)


def test_layers_of_unknown_types_are_passed_over(tmp_path: Path, cache: Path) -> None:
    foreign = replace(WEIGHTS, media_type=f"{MEDIA_LAYER}+xz")

    report = fill(write_layout(tmp_path / "foreign", [foreign]), cache)

    assert states(report) == ["passed over"]


KILLED = """
import os, signal, sys
from pathlib import Path
from packager.images.blobs import BlobReader
from packager.images.node_cache import entry_file
from packager.images.node_cache.entry_file import EntryFile
from packager.images.node_cache.fill import FillOptions, fill_node_cache
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
@pytest.mark.parametrize(
    "where",
    [
        "while it is written",
        "before the tree",
        "before it has its name",
        "behind the sidecar",
        "before the names are on the disk",
    ],
)
def test_a_killed_run_leaves_entries_that_are_whole_and_the_next_run_the_rest(
    layout: Path, cache: Path, where: str, had_entries: bool
) -> None:
    if had_entries:
        fill(layout, cache)

    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(layout), str(cache), where], check=False
    )

    assert done.returncode == -signal.SIGKILL
    for layer in IMAGE:
        if (cache / layer.path).exists():
            found = find_entry(cache / layer.path)
            assert found is not None
            assert verify_entry(found, layer.diff_id)
    fill(layout, cache, dm_verity=True)
    assert files_in(cache) == sorted(
        name for layer in IMAGE for name in (layer.path, f"{layer.path}.dmverity")
    )
