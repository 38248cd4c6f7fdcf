"""Images mounted where they lie: what they show, and that nothing remains of failures."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import random
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from packager.errors import NotFound, OutputFailed, PackagerError
from packager.images.blobs import BlobReader
from packager.images.digest_index import DigestIndex
from packager.images.erofs.nodes import LayerNotMountable
from packager.images.erofs.unpacking import LayerBroken
from packager.images.mounts import mounts as module
from packager.images.mounts import syscalls
from packager.images.mounts.failures import (
    KernelLacksErofs,
    MountBusy,
    MountFailed,
    NotMountedHere,
    NotRoot,
    PlaceNotFree,
)
from packager.images.mounts.layer_files import LayerCompressed
from packager.images.mounts.mounts import (
    ImageMount,
    MountOptions,
    check_machine,
    list_mounts,
    mount_image,
    unmount_image,
)
from packager.images.mounts.table import read_mounts
from packager.images.node_cache.fill import FillOptions, fill_node_cache
from tests.conftest import unavailable
from tests.support import disks
from tests.support.layer_layouts import MadeLayer, gzipped, opened, plain, tar_of, write_layout

SHARD = random.Random(7).randbytes(2_000_000)
WEIGHTS = plain(tar_of({"opt/packager/model/model.safetensors": SHARD}))
MODEL = plain(
    tar_of({"opt/packager/model/config.json": b"{}", "opt/packager/model/empty": b""}),
    role="model",
)
BASE = plain(
    tar_of({"etc/passwd": b"root\n", "opt/packager/model/config.json": b"old"}, mode=0o755),
    role="base",
)
HOUR_NS = 3600 * 10**9


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
    """Where packager remembers mounts, and a directory to mount at."""

    def __init__(self, root: Path) -> None:
        self.records = root / "state" / "mounts"
        self.index = DigestIndex(root / "digests", clock_ns=lambda: time.time_ns() + HOUR_NS)
        self.place = root / "mnt"
        self.place.mkdir()

    def mount(self, layout: Path, place: Path | None = None, **options: object) -> ImageMount:
        return mount_image(
            opened(layout),
            place or self.place,
            MountOptions(**options),  # type: ignore[arg-type]
            records=self.records,
            index=self.index,
        )

    def unmount(self) -> ImageMount:
        return unmount_image(self.place, self.records)

    def is_mounted(self) -> bool:
        return any(one.directory == str(self.place) for one in read_mounts())


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    if os.geteuid() != 0:
        unavailable("root, to mount,")
    try:
        check_machine("mount")
    except KernelLacksErofs:
        unavailable("a kernel with EROFS")
    before, made = loops(), Machine(tmp_path)
    yield made
    while made.is_mounted():
        syscalls.unmount(str(made.place))
    assert not [one for one in read_mounts() if str(tmp_path) in one.directory]
    assert _soon(lambda: not loops() - before)


def _soon(is_so: object) -> bool:
    """Whether something becomes so within seconds: the kernel frees loop devices a little later."""
    for _ in range(100):
        if is_so():  # type: ignore[operator]
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    return write_layout(tmp_path / "layout", [BASE, WEIGHTS, MODEL])


def shown(place: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(place)): (path.stat().st_mode & 0o7777, path.read_bytes())
        for path in place.rglob("*")
        if path.is_file()
    }


OWN = {
    "opt/packager/model/model.safetensors": (0o644, SHARD),
    "opt/packager/model/config.json": (0o644, b"{}"),
    "opt/packager/model/empty": (0o644, b""),
}


def test_what_packager_added_is_shown(machine: Machine, layout: Path) -> None:
    made = machine.mount(layout)

    assert shown(machine.place) == OWN
    assert (made.was_mounted, made.proven) == (False, True)


def test_the_whole_image_is_shown_with_upper_layers_over_lower_ones(
    machine: Machine, layout: Path
) -> None:
    machine.mount(layout, layers="all")

    assert shown(machine.place) == OWN | {"etc/passwd": (0o755, b"root\n")}


def test_one_layer_alone_is_shown(machine: Machine, layout: Path) -> None:
    machine.mount(layout, layers="weights")

    assert shown(machine.place) == {"opt/packager/model/model.safetensors": (0o644, SHARD)}


def test_files_that_an_upper_layer_removed_are_gone(machine: Machine, tmp_path: Path) -> None:
    removing = plain(
        tar_of({"opt/packager/model/.wh.empty": b"", "etc/.wh..wh..opq": b"", "etc/new": b"1"}),
        role="config",
    )
    layout = write_layout(tmp_path / "removed", [BASE, WEIGHTS, MODEL, removing])

    machine.mount(layout, layers="all")

    found = shown(machine.place)
    assert "opt/packager/model/empty" not in found
    assert [name for name in found if name.startswith("etc")] == ["etc/new"]


def test_nothing_can_be_written_and_no_device_or_suid_counts(
    machine: Machine, layout: Path
) -> None:
    machine.mount(layout)

    with pytest.raises(OSError, match="Read-only") as refused:
        (machine.place / "new").write_bytes(b"")
    assert refused.value.errno == errno.EROFS
    flags = os.statvfs(machine.place).f_flag
    for flag in (os.ST_RDONLY, os.ST_NOSUID, os.ST_NODEV):
        assert flags & flag


def test_unmounting_takes_everything_away(machine: Machine, layout: Path) -> None:
    machine.mount(layout)

    gone = machine.unmount()

    assert gone.image == f"oci:{layout}"
    assert not machine.is_mounted()
    assert list(machine.place.iterdir()) == []
    assert list(machine.records.iterdir()) == []


def test_mounting_twice_changes_nothing_and_says_so(machine: Machine, layout: Path) -> None:
    machine.mount(layout)

    again = machine.mount(layout)

    assert again.was_mounted
    machine.unmount()
    assert not machine.is_mounted()


def test_two_at_once_mount_one(machine: Machine, layout: Path) -> None:
    made: list[ImageMount] = []
    runs = [threading.Thread(target=lambda: made.append(machine.mount(layout))) for _ in range(4)]
    for run in runs:
        run.start()
    for run in runs:
        run.join(60)

    assert sorted(one.was_mounted for one in made) == [False, True, True, True]
    machine.unmount()
    assert not machine.is_mounted()


def test_another_choice_at_the_same_place_is_refused(machine: Machine, layout: Path) -> None:
    machine.mount(layout)

    with pytest.raises(PlaceNotFree, match="is mounted there") as refused:
        machine.mount(layout, layers="all")

    assert f"packager unmount {machine.place}" in refused.value.hint


def test_the_list_says_what_is_mounted(machine: Machine, layout: Path) -> None:
    machine.mount(layout, layers="all")

    (found,) = [one for one in list_mounts(machine.records) if one.directory == machine.place]

    assert (found.image, found.layers, found.proven) == (f"oci:{layout}", "all", True)
    assert found.digest == opened(layout).image.digest


def test_without_its_record_a_mount_is_listed_and_unmounted(machine: Machine, layout: Path) -> None:
    machine.mount(layout)
    for record in machine.records.iterdir():
        record.unlink()

    assert machine.place in [one.directory for one in list_mounts(machine.records)]
    assert machine.unmount().image == ""


class TestProof:
    def test_a_layer_is_hashed_once_while_its_file_stays_as_it_is(
        self, machine: Machine, layout: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        machine.mount(layout)
        machine.unmount()
        read: list[int] = []
        monkeypatch.setattr(os, "pread", _counting(read))

        assert machine.mount(layout).proven
        assert sum(read) < 100_000

    def test_a_damaged_blob_is_refused(self, machine: Machine, layout: Path) -> None:
        machine.mount(layout)
        machine.unmount()
        blob = layout / "blobs" / "sha256" / WEIGHTS.digest.removeprefix("sha256:")
        with blob.open("r+b") as file:
            file.seek(1_000_000)
            file.write(b"damage")

        with pytest.raises(LayerBroken, match="its file has the digest"):
            machine.mount(layout)

        assert not machine.is_mounted()

    def test_a_damaged_blob_is_mounted_unproven_where_that_is_asked_for(
        self, machine: Machine, layout: Path
    ) -> None:
        blob = layout / "blobs" / "sha256" / WEIGHTS.digest.removeprefix("sha256:")
        with blob.open("r+b") as file:
            file.seek(1_000_000)
            file.write(b"damage")

        assert not machine.mount(layout, verify=False).proven

    def test_a_wrong_diff_id_is_refused(self, machine: Machine, tmp_path: Path) -> None:
        other = "sha256:" + hashlib.sha256(b"other").hexdigest()
        layout = write_layout(tmp_path / "lie", [replace(WEIGHTS, stated_diff_id=other)])

        with pytest.raises(LayerBroken, match="it is not compressed, and its image says"):
            machine.mount(layout, verify=False)

    def test_a_file_of_another_size_is_refused(self, machine: Machine, layout: Path) -> None:
        blob = layout / "blobs" / "sha256" / WEIGHTS.digest.removeprefix("sha256:")
        os.truncate(blob, 4096)

        with pytest.raises(PackagerError):
            machine.mount(layout, verify=False)

        assert not machine.is_mounted()


class TestNodeCaches:
    @pytest.fixture
    def cache(self, layout: Path, tmp_path: Path) -> Path:
        fill_node_cache(opened(layout), tmp_path / "cache", BlobReader(), FillOptions())
        return tmp_path / "cache"

    def test_entries_show_what_the_layers_hold(
        self, machine: Machine, layout: Path, cache: Path
    ) -> None:
        machine.mount(layout, node_cache=cache)

        assert shown(machine.place) == OWN

    def test_entries_with_a_hash_tree_do_too(
        self, machine: Machine, layout: Path, cache: Path
    ) -> None:
        fill_node_cache(opened(layout), cache, BlobReader(), FillOptions(dm_verity=True))

        machine.mount(layout, node_cache=cache)

        assert shown(machine.place) == OWN

    @pytest.mark.parametrize("offset", [1080, 500_000], ids=["its index", "its data"])
    def test_a_damaged_entry_is_refused(
        self, machine: Machine, layout: Path, cache: Path, offset: int
    ) -> None:
        with (cache / WEIGHTS.path).open("r+b") as file:
            file.seek(offset)
            file.write(b"\xff")

        with pytest.raises(LayerBroken, match="is damaged"):
            machine.mount(layout, node_cache=cache)

        assert not machine.is_mounted()

    def test_a_missing_entry_is_told_with_the_command_that_makes_it(
        self, machine: Machine, layout: Path, cache: Path
    ) -> None:
        (cache / MODEL.path).unlink()

        with pytest.raises(NotFound, match="is not there") as refused:
            machine.mount(layout, node_cache=cache)

        assert "packager node-cache" in refused.value.hint

    def test_a_compressed_layer_is_mounted_out_of_it(
        self, machine: Machine, tmp_path: Path
    ) -> None:
        layout = write_layout(tmp_path / "packed", [gzipped(WEIGHTS.content, role="weights")])
        with pytest.raises(LayerCompressed) as refused:
            machine.mount(layout)
        assert "packager node-cache" in refused.value.hint

        fill_node_cache(opened(layout), tmp_path / "cache", BlobReader(), FillOptions())
        machine.mount(layout, node_cache=tmp_path / "cache")

        assert shown(machine.place)["opt/packager/model/model.safetensors"] == (0o644, SHARD)


class TestLoopDevices:
    """Kernels before 6.12, and file systems such as tmpfs, mount no files."""

    def test_they_show_the_same_and_go_with_the_mount(
        self, machine: Machine, layout: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = loops()
        mount = syscalls.mount

        def without_files(
            source: bytes, target: bytes, kind: bytes, flags: int, options: bytes
        ) -> None:
            if kind == b"erofs" and not os.path.realpath(source).startswith(b"/dev/loop"):
                raise OSError(errno.ENOTBLK, os.strerror(errno.ENOTBLK))
            mount(source, target, kind, flags, options)

        monkeypatch.setattr(syscalls, "mount", without_files)
        machine.mount(layout)

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
            write_layout(place, [WEIGHTS, MODEL])
            machine.mount(place)
            assert shown(machine.place) == OWN
            machine.unmount()
        finally:
            subprocess.run(["rm", "-rf", str(place)], check=True)

    def test_a_failing_mount_leaves_none(
        self, machine: Machine, layout: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = loops()

        def refused(*_: object) -> None:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

        monkeypatch.setattr(syscalls, "detach_copy", refused)
        with pytest.raises(MountFailed, match="the overlay of the layers"):
            machine.mount(layout)

        assert not machine.is_mounted()
        assert _soon(lambda: loops() == before)
        assert not list(machine.records.glob("work-*"))


def test_a_full_disk_leaves_nothing_mounted(machine: Machine, layout: Path, tmp_path: Path) -> None:
    with disks.small_disk(tmp_path / "full", "64k") as disk:
        machine.records = disk / "mounts"
        (disk / "filler").write_bytes(bytes(56_000))

        with pytest.raises(OutputFailed, match="no space left"):
            machine.mount(layout)

        assert not machine.is_mounted()
        assert not list(machine.records.iterdir())


class TestPlaces:
    def refused(self, machine: Machine, layout: Path, place: Path) -> PackagerError:
        with pytest.raises((PlaceNotFree, NotFound)) as refused:
            machine.mount(layout, place)
        return refused.value

    def test_a_directory_that_is_not_there(self, machine: Machine, layout: Path) -> None:
        error = self.refused(machine, layout, machine.place / "none")

        assert (error.exit_code, f"mkdir -p {machine.place}/none" in error.hint) == (66, True)

    def test_a_directory_with_files(self, machine: Machine, layout: Path) -> None:
        (machine.place / "file").touch()

        assert "it is not empty" in self.refused(machine, layout, machine.place).message

    def test_a_file(self, machine: Machine, layout: Path) -> None:
        (machine.place / "file").touch()

        error = self.refused(machine, layout, machine.place / "file")

        assert "not a directory" in error.message

    def test_a_link(self, machine: Machine, layout: Path, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(machine.place)

        assert "it is a link" in self.refused(machine, layout, tmp_path / "link").message
        assert not machine.is_mounted()

    def test_something_else_that_is_mounted(
        self, machine: Machine, layout: Path, tmp_path: Path
    ) -> None:
        syscalls.mount(b"none", os.fsencode(machine.place), b"tmpfs", 0, b"")

        error = self.refused(machine, layout, machine.place)

        assert "something else is mounted there" in error.message
        with pytest.raises(NotMountedHere, match="tmpfs is mounted there"):
            machine.unmount()

    def test_a_name_with_everything_in_it(
        self, machine: Machine, layout: Path, tmp_path: Path
    ) -> None:
        place = tmp_path / "a, b:c\\ d=\u4e2d"
        place.mkdir()

        machine.mount(layout, place)
        assert shown(place) == OWN
        assert machine.mount(layout, place).was_mounted
        unmount_image(place, machine.records)

        assert list(place.iterdir()) == []


def test_a_mount_in_use_stays_and_says_who_uses_it(machine: Machine, layout: Path) -> None:
    machine.mount(layout)
    with subprocess.Popen(["sleep", "60"], cwd=machine.place) as user:
        try:
            with pytest.raises(MountBusy, match="in use by sleep") as refused:
                machine.unmount()
            assert f"process {user.pid}" in refused.value.message
            assert shown(machine.place) == OWN
        finally:
            user.kill()

    machine.unmount()


def test_what_is_not_mounted_cannot_be_unmounted(machine: Machine) -> None:
    with pytest.raises(NotMountedHere, match="no mount that packager made"):
        machine.unmount()


def test_a_layer_that_no_file_system_shows_is_refused(machine: Machine, tmp_path: Path) -> None:
    layout = write_layout(tmp_path / "odd", [plain(tar_of({"../outside": b"x"}))])

    with pytest.raises(LayerNotMountable):
        machine.mount(layout)

    assert not machine.is_mounted()


def test_a_layer_that_says_that_it_is_a_file_system_and_is_none(
    machine: Machine, tmp_path: Path
) -> None:
    native = replace(WEIGHTS, media_type="application/vnd.erofs.layer.v1")
    layout = write_layout(tmp_path / "lie", [native])

    with pytest.raises(MountFailed, match=WEIGHTS.digest):
        machine.mount(layout)

    assert not machine.is_mounted()


KILLED = """
import os, signal, sys
from packager.images.digest_index import DigestIndex
from packager.images.mounts import mounts, syscalls, trees
from packager.images.mounts.mounts import MountOptions, mount_image
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


@pytest.mark.parametrize(
    "where",
    ["between layers", "with loop devices", "before the overlay", "before it is attached"],
)
def test_a_killed_mount_leaves_nothing_mounted(
    machine: Machine, layout: Path, tmp_path: Path, where: str
) -> None:
    before = loops()

    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(layout), str(tmp_path), where], check=False
    )

    assert done.returncode == -signal.SIGKILL
    assert not machine.is_mounted()
    assert _soon(lambda: loops() == before)
    assert shown_after(machine, layout) == OWN
    assert not list(machine.records.glob("work-*"))


def shown_after(machine: Machine, layout: Path) -> dict[str, tuple[int, bytes]]:
    machine.mount(layout)
    return shown(machine.place)


def test_every_file_of_many_is_the_tars(machine: Machine, tmp_path: Path) -> None:
    numbers = random.Random(3)
    files = {f"d{n % 7}/file-{n:05}": numbers.randbytes(n % 900) for n in range(3000)}
    files["n" * 255] = b"a long name"
    content = tar_of(files, mode=0o640)
    layer = MadeLayer(data=content, content=content)

    machine.mount(write_layout(tmp_path / "many", [layer]))

    assert shown(machine.place) == {name: (0o640, data) for name, data in files.items()}
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert len(archive.getnames()) == 3001


def test_without_root_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.os, "geteuid", lambda: 1000)

    with pytest.raises(NotRoot) as refused:
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

    with pytest.raises(KernelLacksErofs, match="no erofs file system") as refused:
        check_machine("mount")

    assert refused.value.exit_code == 69


def _counting(read: list[int]) -> object:
    pread = os.pread

    def counted(file: int, length: int, offset: int) -> bytes:
        data = pread(file, length, offset)
        read.append(len(data))
        return data

    return counted
