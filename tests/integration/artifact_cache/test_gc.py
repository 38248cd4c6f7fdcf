"""What is collected: the old, the many, the litter; never the pinned, the new, the used."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from artifact_cache import gc
from artifact_cache.errors import Rejected
from artifact_cache.gc import GcPolicy, collect
from artifact_cache.stores import local
from tests.support.cache_entries import (
    CHECKPOINT,
    Build,
    document,
    files_below,
    files_of,
)
from tests.support.cache_opening import LocalStore, open_local
from tests.unit.artifact_cache.test_gc import (
    AT_ONCE,
    DAY,
    HOUR,
    built,
    collected,
    is_whole,
    later,
    seeds_left,
)


def test_a_publisher_between_its_blobs_and_its_entry_is_waited_for(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen in a race: blobs looked at before the entry came, and taken for garbage."""
    halfway, may_go_on = threading.Event(), threading.Event()
    publish_entry = local.LocalStore._publish_entry
    blobs = gc._Collection.blobs

    def slowly(self: LocalStore, *arguments: object) -> bool:
        halfway.set()
        assert may_go_on.wait(60)
        return publish_entry(self, *arguments)  # type: ignore[arg-type]

    def look(self: gc._Collection) -> dict[str, gc.SeenBlob]:
        found = blobs(self)
        threading.Timer(0.2, may_go_on.set).start()
        return found

    monkeypatch.setattr(local.LocalStore, "_publish_entry", slowly)
    monkeypatch.setattr(gc._Collection, "blobs", look)
    publisher = threading.Thread(target=built, args=(root, tmp_path, 1))
    publisher.start()
    assert halfway.wait(60)
    collected(root, GcPolicy(grace_s=0), in_s=DAY)
    publisher.join()

    assert seeds_left(root) == [1]
    assert is_whole(root)


def test_litter_goes_and_what_is_in_use_stays(root: Path, tmp_path: Path) -> None:
    built(root, tmp_path, 1)
    (root / "tmp/stray").touch()
    for name in ("partial/a.part", "quarantine/x.blob", "stamp/ab/ab", "use/ab/ab", "pins/.a.1"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    (root / "partial/b.part").touch()
    with (root / "partial/b.part").open("rb") as download:
        fcntl.flock(download, fcntl.LOCK_EX)
        running = subprocess.Popen(["sleep", "600"], stdin=download)  # which has the lock, too
    with pytest.raises(Rejected):
        open_local(root).get_or_build(CHECKPOINT, reject, tmp_path / "rejected")
    before = set(files_below(root))

    early = collected(root, GcPolicy())
    after_hours = collected(root, GcPolicy(), in_s=2 * HOUR)
    gone = before - set(files_below(root))
    long_after = collected(root, GcPolicy(), in_s=40 * DAY)
    running.kill()
    running.wait()

    assert early.litter == 0
    assert after_hours.litter == 4
    assert gone == {
        "tmp/stray",
        "stamp/ab/ab",
        "use/ab/ab",
        "pins/.a.1",
    }
    assert long_after.litter == 3
    assert list(root.glob("neg/*/*/*")) == list(root.glob("quarantine/*")) == []
    assert [path.name for path in root.glob("partial/*")] == ["b.part"]
    assert seeds_left(root) == [1]


def reject(directory: Path) -> None:
    raise Rejected("no")


def test_a_publisher_that_does_not_let_go_is_waited_for_and_then_named(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(root, tmp_path, 1)
    monkeypatch.setattr("artifact_cache.gc.LOCK_WAIT_S", 0.1)
    with LocalStore(root).no_gc():
        report = collected(root, AT_ONCE)

    assert (report.removed, report.blobs) == ((), 0)
    assert report.problem.startswith("publishers or readers were busy")
    assert seeds_left(root) == [1]


def test_a_collector_that_is_stopped_stops_no_build(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(root, tmp_path, 1)
    monkeypatch.setattr(local, "LOCK_WAIT_S", 0.1)
    with LocalStore(root).collecting(1) as alone:
        assert alone
        result = open_local(root).get_or_build(document(1), Build(b"mine"), tmp_path / "a")

    assert files_below(result.path) == files_of(b"mine")
    assert [notice.code for notice in result.notices] == ["store", "not-stored"]


PUBLISHER = """
import sys
from pathlib import Path
from tests.support.cache_opening import open_local
from tests.support.cache_entries import Build, document, files_below, files_of
root, into = Path(sys.argv[1]), Path(sys.argv[2])
for turn in range(int(sys.argv[3])):
    content = f"tensor{turn % 3}".encode()
    result = open_local(root).get_or_build(
        document(turn % 3), Build(content), into / str(turn))
    assert files_below(result.path) == files_of(content), turn
    assert not {"corrupt"} & {notice.code for notice in result.notices}, result.notices
"""


def test_collectors_beside_publishers_and_readers_lose_no_blob(root: Path, tmp_path: Path) -> None:
    LocalStore(root).capability()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PUBLISHER, root, tmp_path / str(number), "40"],
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    cycles = 0
    while any(process.poll() is None for process in processes):
        collect(LocalStore(root), AT_ONCE, clock=lambda: later(DAY))
        cycles += 1
    said = [process.communicate()[1] for process in processes]

    assert [process.returncode for process in processes] == [0, 0], said
    assert cycles > 5
    collect(LocalStore(root), AT_ONCE, clock=lambda: later(DAY))
    assert is_whole(root)


def test_a_collector_killed_anywhere_leaves_a_whole_cache(root: Path, tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from artifact_cache import gc\n"
        "from artifact_cache.stores.local import LocalStore\n"
        "left = int(sys.argv[2])\n"
        "unlink = Path.unlink\n"
        "def dying(self, missing_ok=False):\n"
        "    global left\n"
        "    left -= 1\n"
        "    if left < 0: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    unlink(self, missing_ok)\n"
        "Path.unlink = dying\n"
        "gc.collect(LocalStore(Path(sys.argv[1])), gc.GcPolicy(max_bytes=0, grace_s=0),\n"
        "           clock=lambda: 4e9)\n"
    )
    killed = 0
    for after in range(0, 8, 2):
        built(root, tmp_path / str(after), 1, 2)
        done = subprocess.run([sys.executable, "-c", script, root, str(after)])
        killed += done.returncode == -9
        for seed in seeds_left(root):
            open_local(root).get_or_build(
                document(seed), Build(), tmp_path / str(after) / f"hit{seed}"
            )
        assert list(root.glob("quarantine/*")) == []
        collected(root, AT_ONCE, in_s=DAY)
        assert files_below(root / "cas") == files_below(root / "ac") == {}
    assert killed == 4
