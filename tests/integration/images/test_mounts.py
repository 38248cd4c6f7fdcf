"""Images mounted where they lie: what they show, and that nothing remains of failures."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from packager.addons.nodes.mounts import mounts as module
from packager.addons.nodes.mounts import syscalls
from packager.addons.nodes.mounts.mounts import (
    ImageMount,
    MountOptions,
    check_machine,
    list_mounts,
    mount_image,
    unmount_image,
)
from packager.addons.nodes.mounts.table import read_mounts
from packager.addons.nodes.node_cache.fill import FillOptions, fill_node_cache
from packager.core.errors import PackagerError
from packager.images.blobs import BlobReader
from packager.images.digest_index import DigestIndex
from tests.conftest import unavailable
from tests.support import disks
from tests.support.cases import cases
from tests.support.layer_layouts import MadeLayer, gzipped, opened, plain, tar_of, write_layout
from tests.support.made_images import blob_in
from tests.support.places import files_below
from tests.support.processes import run_python
from tests.support.refusals import raises_code

SHARD = random.Random(7).randbytes(2_000_000)
WEIGHTS = plain(tar_of({"opt/packager/model/model.safetensors": SHARD}))
MODEL = plain(
    tar_of({"opt/packager/model/config.json": b"{}", "opt/packager/model/empty": b""}), role="model"
)
BASE = plain(
    tar_of({"etc/passwd": b"root\n", "opt/packager/model/config.json": b"old"}, mode=0o755),
    role="base",
)
HOUR_NS = 3600 * 10**9
Refusal = pytest.ExceptionInfo[Any]


def loops() -> set[str]:
    """Files that loop devices hold, without those of tests in other processes."""
    held = {
        path.read_text().strip()
        for path in Path("/sys/block").glob("loop*/loop/backing_file")
        if path.exists()
    }
    own = f"/popen-{os.environ.get('PYTEST_XDIST_WORKER')}/"
    return {file for file in held if "/popen-gw" not in file or own in file}


class Machine:
    """Where packager remembers mounts, an image in a layout, and a directory to mount it at."""

    def __init__(self, root: Path) -> None:
        self.records = root / "state" / "mounts"
        self.index = DigestIndex(root / "digests", clock_ns=lambda: time.time_ns() + HOUR_NS)
        self.root, self.place = root, root / "mnt"
        self.place.mkdir()
        self.layout = self.write("layout", BASE, WEIGHTS, MODEL)

    @property
    def weights(self) -> Path:
        """The blob of the weights."""
        return blob_in(self.layout, WEIGHTS.digest)

    def write(self, name: str, *layers: MadeLayer) -> Path:
        return write_layout(self.root / name, layers)

    def mount(
        self, layout: Path | None = None, place: Path | None = None, **options: object
    ) -> ImageMount:
        return mount_image(
            opened(layout or self.layout),
            place or self.place,
            MountOptions(**options),  # type: ignore[arg-type]
            records=self.records,
            index=self.index,
        )

    def unmount(self, place: Path | None = None) -> ImageMount:
        return unmount_image(place or self.place, self.records)

    def is_mounted(self) -> bool:
        return any(one.directory == str(self.place) for one in read_mounts())

    def fill_node_cache(self, layout: Path | None = None, **options: bool) -> Path:
        cache = self.root / "cache"
        made = FillOptions(**options)  # type: ignore[arg-type]
        fill_node_cache(opened(layout or self.layout), cache, BlobReader(), made)
        return cache

    @contextmanager
    def refusing(self, *codes: str, match: str | None = None) -> Iterator[Refusal]:
        """Expect an error with one of these codes, and that nothing is mounted after it."""
        with raises_code(*codes, match=match) as refused:
            yield refused
        assert not self.is_mounted()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    if os.geteuid() != 0:
        unavailable("root, to mount,")
    try:
        check_machine("mount")
    except PackagerError:
        unavailable("a kernel with EROFS")
    before, made = loops(), Machine(tmp_path)
    yield made
    while made.is_mounted():
        syscalls.unmount(str(made.place))
    assert not [one for one in read_mounts() if str(tmp_path) in one.directory]
    assert _soon(lambda: not loops() - before)


def _soon(is_so: Callable[[], bool]) -> bool:
    """Whether something becomes so within seconds: the kernel frees loop devices a little later."""
    for _ in range(100):
        if is_so():
            return True
        time.sleep(0.05)
    return False


def shown(place: Path) -> dict[str, tuple[int, bytes]]:
    return files_below(place, lambda path: (path.stat().st_mode & 0o7777, path.read_bytes()))


OWN = {
    "opt/packager/model/model.safetensors": (0o644, SHARD),
    "opt/packager/model/config.json": (0o644, b"{}"),
    "opt/packager/model/empty": (0o644, b""),
}


@pytest.mark.parametrize(
    ("options", "files"),
    [
        ({}, OWN),
        ({"layers": "all"}, OWN | {"etc/passwd": (0o755, b"root\n")}),  # upper over lower layers
        ({"layers": "weights"}, {"opt/packager/model/model.safetensors": (0o644, SHARD)}),
    ],
    ids=["what packager added", "the whole image", "one layer alone"],
)
def test_what_is_chosen_is_shown(
    machine: Machine, options: dict[str, str], files: dict[str, tuple[int, bytes]]
) -> None:
    made = machine.mount(**options)

    assert shown(machine.place) == files
    assert (made.was_mounted, made.proven) == (False, True)


def test_files_that_an_upper_layer_removed_are_gone(machine: Machine) -> None:
    removing = plain(
        tar_of({"opt/packager/model/.wh.empty": b"", "etc/.wh..wh..opq": b"", "etc/new": b"1"}),
        role="config",
    )

    machine.mount(machine.write("removed", BASE, WEIGHTS, MODEL, removing), layers="all")

    found = shown(machine.place)
    assert "opt/packager/model/empty" not in found
    assert [name for name in found if name.startswith("etc")] == ["etc/new"]


def test_nothing_can_be_written_and_no_device_or_suid_counts(machine: Machine) -> None:
    machine.mount()

    with pytest.raises(OSError, match="Read-only") as refused:
        (machine.place / "new").write_bytes(b"")
    assert refused.value.errno == errno.EROFS
    flags = os.statvfs(machine.place).f_flag
    for flag in (os.ST_RDONLY, os.ST_NOSUID, os.ST_NODEV):
        assert flags & flag


def test_unmounting_takes_everything_away(machine: Machine) -> None:
    machine.mount()
    assert machine.mount().was_mounted  # a second time changes nothing

    assert machine.unmount().image == f"oci:{machine.layout}"
    assert not machine.is_mounted()
    assert list(machine.place.iterdir()) == []
    assert list(machine.records.iterdir()) == []


def test_two_at_once_mount_one(machine: Machine) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: machine.mount(), range(4)))

    assert sorted(one.was_mounted for one in made) == [False, True, True, True]
    machine.unmount()
    assert not machine.is_mounted()


def test_another_choice_at_the_same_place_is_refused(machine: Machine) -> None:
    machine.mount()

    with raises_code("PlaceNotFree", match="is mounted there") as refused:
        machine.mount(layers="all")

    assert f"packager unmount {machine.place}" in refused.value.hint


def test_without_its_record_a_mount_is_listed_and_unmounted(machine: Machine) -> None:
    machine.mount()
    for record in machine.records.iterdir():
        record.unlink()

    assert machine.place in [one.directory for one in list_mounts(machine.records)]
    assert machine.unmount().image == ""


class TestProof:
    def test_a_layer_is_hashed_once_while_its_file_stays_as_it_is(
        self, machine: Machine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        machine.mount()
        machine.unmount()
        read: list[int] = []
        monkeypatch.setattr(os, "pread", _counting(read))

        assert machine.mount().proven
        assert sum(read) < 100_000

    @pytest.mark.parametrize("was_mounted", [True, False])
    def test_a_damaged_blob_is_not_proven(self, machine: Machine, was_mounted: bool) -> None:
        if was_mounted:
            machine.mount()
            machine.unmount()
        write_at(machine.weights, 1_000_000, b"damage")

        with machine.refusing("LayerBroken", match="its file has the digest"):
            machine.mount()
        assert not machine.mount(verify=False).proven

    def test_a_wrong_diff_id_is_refused(self, machine: Machine) -> None:
        other = "sha256:" + hashlib.sha256(b"other").hexdigest()
        layout = machine.write("lie", replace(WEIGHTS, stated_diff_id=other))

        with raises_code("LayerBroken", match="it is not compressed, and its image says"):
            machine.mount(layout, verify=False)

    def test_a_file_of_another_size_is_refused(self, machine: Machine) -> None:
        os.truncate(machine.weights, 4096)

        with machine.refusing():
            machine.mount(verify=False)


def write_at(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


class TestNodeCaches:
    @pytest.mark.parametrize("dm_verity", [False, True], ids=["plain", "with a hash tree"])
    def test_entries_show_what_the_layers_hold(self, machine: Machine, dm_verity: bool) -> None:
        machine.fill_node_cache()

        machine.mount(node_cache=machine.fill_node_cache(dm_verity=dm_verity))

        assert shown(machine.place) == OWN

    @pytest.mark.parametrize("offset", [1080, 500_000], ids=["its index", "its data"])
    def test_a_damaged_entry_is_refused(self, machine: Machine, offset: int) -> None:
        cache = machine.fill_node_cache()
        write_at(cache / WEIGHTS.path, offset, b"\xff")

        with machine.refusing("LayerBroken", match="is damaged"):
            machine.mount(node_cache=cache)

    def test_a_missing_entry_is_told_with_the_command_that_makes_it(self, machine: Machine) -> None:
        cache = machine.fill_node_cache()
        (cache / MODEL.path).unlink()

        with machine.refusing("NotFound", match="is not there") as refused:
            machine.mount(node_cache=cache)

        assert "packager node-cache" in refused.value.hint

    def test_a_compressed_layer_is_mounted_out_of_it(self, machine: Machine) -> None:
        layout = machine.write("packed", gzipped(WEIGHTS.content, role="weights"))
        with machine.refusing("LayerCompressed") as refused:
            machine.mount(layout)
        assert "packager node-cache" in refused.value.hint

        machine.mount(layout, node_cache=machine.fill_node_cache(layout))

        assert shown(machine.place)["opt/packager/model/model.safetensors"] == (0o644, SHARD)


class TestLoopDevices:
    """Kernels before 6.12, and file systems such as tmpfs, mount no files."""

    def test_they_show_the_same(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        before = loops()
        mount = syscalls.mount

        def without_files(
            source: bytes, target: bytes, kind: bytes, flags: int, options: bytes
        ) -> None:
            if kind == b"erofs" and not os.path.realpath(source).startswith(b"/dev/loop"):
                raise OSError(errno.ENOTBLK, os.strerror(errno.ENOTBLK))
            mount(source, target, kind, flags, options)

        monkeypatch.setattr(syscalls, "mount", without_files)
        machine.mount()

        assert shown(machine.place) == OWN
        assert len(loops() - before) == 4  # two layers, each a tar and its index
        machine.unmount()
        assert _soon(lambda: loops() == before)

    def test_a_layout_on_a_disk_in_memory_is_mounted(self, machine: Machine) -> None:
        disk = Path("/dev/shm")
        if not os.access(disk, os.W_OK):
            unavailable("/dev/shm")
        place = disk / f"packager-test-{os.getpid()}"
        try:
            machine.mount(write_layout(place, [WEIGHTS, MODEL]))
            assert shown(machine.place) == OWN
            machine.unmount()
        finally:
            subprocess.run(["rm", "-rf", str(place)], check=True)

    def test_a_failure_leaves_none(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        before = loops()

        def refuse(*_: object) -> None:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

        monkeypatch.setattr(syscalls, "detach_copy", refuse)
        with machine.refusing("MountFailed", match="the overlay of the layers"):
            machine.mount()

        assert _soon(lambda: loops() == before)
        assert not list(machine.records.glob("work-*"))


def test_a_full_disk_leaves_nothing_mounted(machine: Machine) -> None:
    with disks.small_disk(machine.root / "full", "64k") as disk:
        machine.records = disk / "mounts"
        (disk / "filler").write_bytes(bytes(56_000))

        with machine.refusing("OutputFailed", match="no space left"):
            machine.mount()

        assert not list(machine.records.iterdir())


def nothing(place: Path) -> Path:
    return place / "none"


def with_a_file(place: Path) -> Path:
    (place / "file").touch()
    return place


def a_file(place: Path) -> Path:
    return with_a_file(place) / "file"


def a_link(place: Path) -> Path:
    link = place.with_name("link")
    link.symlink_to(place)
    return link


class TestPlaces:
    @pytest.mark.parametrize(
        ("make", "reason"),
        [
            (nothing, ""),
            (with_a_file, "it is not empty"),
            (a_file, "not a directory"),
            (a_link, "it is a link"),
        ],
        ids=["nothing", "a directory with files", "a file", "a link"],
    )
    def test_what_is_no_empty_directory_is_refused(
        self, machine: Machine, make: Callable[[Path], Path], reason: str
    ) -> None:
        place = make(machine.place)

        with machine.refusing("PlaceNotFree", "NotFound") as refused:
            machine.mount(place=place)

        assert reason in refused.value.message
        if make is nothing:
            assert refused.value.exit_code == 66
            assert f"mkdir -p {place}" in refused.value.hint

    def test_something_else_that_is_mounted(self, machine: Machine) -> None:
        syscalls.mount(b"none", os.fsencode(machine.place), b"tmpfs", 0, b"")

        with raises_code("PlaceNotFree", match="something else is mounted there"):
            machine.mount()
        with raises_code("NotMountedHere", match="tmpfs is mounted there"):
            machine.unmount()

    def test_a_name_with_everything_in_it(self, machine: Machine) -> None:
        place = machine.root / "a, b:c\\ d=\u4e2d"
        place.mkdir()

        machine.mount(place=place)
        assert shown(place) == OWN
        assert machine.mount(place=place).was_mounted
        machine.unmount(place)

        assert list(place.iterdir()) == []


def test_a_mount_in_use_stays_and_says_who_uses_it(machine: Machine) -> None:
    machine.mount()
    with subprocess.Popen(["sleep", "60"], cwd=machine.place) as user:
        try:
            with raises_code("MountBusy", match="in use by sleep") as refused:
                machine.unmount()
            assert f"process {user.pid}" in refused.value.message
            assert shown(machine.place) == OWN
        finally:
            user.kill()

    machine.unmount()


def test_what_is_not_mounted_cannot_be_unmounted(machine: Machine) -> None:
    with raises_code("NotMountedHere", match="no mount that packager made"):
        machine.unmount()


NATIVE = replace(WEIGHTS, media_type="application/vnd.erofs.layer.v1")


@pytest.mark.parametrize(
    ("layer", "error", "reason"),
    [
        (plain(tar_of({"../outside": b"x"})), "LayerNotMountable", ""),
        (NATIVE, "MountFailed", WEIGHTS.digest),
    ],
    ids=["no file system could show it", "it says that it is a file system and is none"],
)
def test_a_layer_that_cannot_be_mounted_is_refused(
    machine: Machine, layer: MadeLayer, error: str, reason: str
) -> None:
    layout = machine.write("odd", layer)

    with machine.refusing(error, match=reason or None):
        machine.mount(layout)


KILLED = """
import os, signal, sys
from packager.images.digest_index import DigestIndex
from packager.addons.nodes.mounts import mounts, syscalls, trees
from packager.addons.nodes.mounts.mounts import MountOptions, mount_image
from pathlib import Path
from tests.support.layer_layouts import opened
layout, root, where = sys.argv[1:]

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

if where == "between layers":
    first = trees._mount_layer
    def second(layer, place):
        trees._mount_layer = die
        first(layer, place)
    trees._mount_layer = second
elif where == "with loop devices":
    trees._mount_layer = lambda layer, place: (trees._mount_by_loops(layer, place), die())
elif where == "before the overlay":
    syscalls.detach_copy = die
elif where == "before it is attached":
    mounts._attach = die
mount_image(
    opened(Path(layout)), Path(root, "mnt"), MountOptions(),
    records=Path(root, "state/mounts"), index=DigestIndex(Path(root, "digests")),
)
"""


@cases("a_killed_mount_leaves_nothing_mounted")
def test_a_killed_mount_leaves_nothing_mounted(machine: Machine, where: str) -> None:
    before = loops()
    arguments = [str(machine.layout), str(machine.root), where]

    run_python("-c", KILLED, *arguments, status=-signal.SIGKILL)

    assert not machine.is_mounted()
    assert _soon(lambda: loops() == before)
    machine.mount()
    assert shown(machine.place) == OWN
    assert not list(machine.records.glob("work-*"))


def test_every_file_of_many_is_the_tars(machine: Machine) -> None:
    numbers = random.Random(3)
    files = {f"d{n % 7}/file-{n:05}": numbers.randbytes(n % 900) for n in range(3000)}
    files["n" * 255] = b"a long name"

    machine.mount(machine.write("many", plain(tar_of(files, mode=0o640))))

    assert shown(machine.place) == {name: (0o640, data) for name, data in files.items()}


def test_without_root_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.os, "geteuid", lambda: 1000)

    with raises_code("NotRoot") as refused:
        check_machine("mount oci:out mnt")

    assert (refused.value.exit_code, refused.value.hint) == (
        77,
        "run `sudo packager mount oci:out mnt`",
    )


def test_a_kernel_without_erofs_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "filesystems").write_text("nodev\ttmpfs\nnodev\toverlay\n")
    monkeypatch.setattr(module, "_FILE_SYSTEMS", tmp_path / "filesystems")
    monkeypatch.setattr(module.os, "geteuid", lambda: 0)
    monkeypatch.setattr(module, "_is_module", lambda _name: False)

    with raises_code("KernelLacksErofs", match="no erofs file system") as refused:
        check_machine("mount")

    assert refused.value.exit_code == 69


def _counting(read: list[int]) -> object:
    pread = os.pread

    def counted(file: int, length: int, offset: int) -> bytes:
        data = pread(file, length, offset)
        read.append(len(data))
        return data

    return counted
