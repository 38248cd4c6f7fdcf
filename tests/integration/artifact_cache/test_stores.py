"""What every store promises, and what the local one leaves on the disk."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from artifact_cache.errors import Corrupt
from artifact_cache.store import Capability
from tests.support.cache_entries import CHECKPOINT, NEURON, files_of
from tests.support.cache_opening import LocalStore
from tests.support.cache_places import Mount
from tests.support.cache_stores import built, damage, extracted, published, the_blob
from tests.support.known import known


def test_files_go_to_and_from_another_disk(root: Path, tmp_path: Path, mounted: Mount) -> None:
    other = mounted("-t", "tmpfs", "none")
    store = LocalStore(root)
    published(store, other / "a", NEURON)

    assert extracted(store, NEURON, other / "out") == files_of(b"tensors")


def test_damage_is_noticed_between_disks(root: Path, tmp_path: Path, mounted: Mount) -> None:
    other = mounted("-t", "tmpfs", "none")
    store = LocalStore(root)
    published(store, tmp_path / "a", NEURON)
    damage(the_blob(root, b"tensors" * 100), b"TENSORS" * 100)

    with pytest.raises(Corrupt):
        extracted(store, NEURON, other / "out")
    assert not (other / "out/rank0/model.bin").exists()


def test_a_read_only_disk_is_found_out_at_start(root: Path, tmp_path: Path, mounted: Mount) -> None:
    published(LocalStore(root), tmp_path / "a", CHECKPOINT)
    read_only = LocalStore(mounted("--bind", "-o", "ro", str(root)))

    assert read_only.capability() == Capability("read-only", "read-only file system")
    assert extracted(read_only, CHECKPOINT, tmp_path / "out") == files_of(b"tensors")


def test_what_a_killed_publisher_left_is_removed_by_the_next_start(root: Path) -> None:
    LocalStore(root).capability()
    code = (
        "import sys, time, pathlib\n"
        "from artifact_cache.stores.local import LocalStore\n"
        "with LocalStore(pathlib.Path(sys.argv[1]))._staging() as staging:\n"
        "    (staging / 'half').touch()\n"
        "    print('here', flush=True)\n"
        "    time.sleep(60)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, root], stdout=subprocess.PIPE)
    assert known(holder.stdout).readline() == b"here\n"

    LocalStore(root).capability()
    while_alive = list((root / "tmp").glob("*/half"))
    holder.kill()
    holder.communicate()
    LocalStore(root).capability()

    assert len(while_alive) == 1
    assert list((root / "tmp").iterdir()) == []


def test_a_publisher_waits_for_the_collector(root: Path, tmp_path: Path) -> None:
    """The lock is taken now, so that a collector can come later and be safe."""
    store = LocalStore(root)
    entry = built(tmp_path / "a", CHECKPOINT)
    store.capability()
    with (root / "locks/gc.lock").open("a") as lock, ThreadPoolExecutor(1) as pool:
        fcntl.flock(lock, fcntl.LOCK_EX)
        published = pool.submit(store.put, entry, tmp_path / "a")
        with pytest.raises(TimeoutError):
            published.result(timeout=0.3)
        fcntl.flock(lock, fcntl.LOCK_UN)

        assert published.result(timeout=60)
