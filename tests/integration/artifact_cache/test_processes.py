"""Several processes, some of them killed: one build, and never half of one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from tests.support.cache_entries import CHECKPOINT, Build, files_below
from tests.support.cache_opening import open_local


def start(tmp_path: Path, name: str, seconds: float) -> subprocess.Popen[str]:
    """Start a process that gets or builds into `name`."""
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.support.cache_builder",
            tmp_path / "cache",
            tmp_path / name,
            tmp_path / "log",
            str(seconds),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.01)


def test_four_processes_at_once_make_one_build(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]
    processes = [start(tmp_path, name, 0.5) for name in names]
    results = [json.loads(process.communicate(timeout=120)[0]) for process in processes]

    builders = (tmp_path / "log").read_text().split()
    assert len(builders) == 1
    assert sorted(result["hit"] for result in results) == [False, True, True, True]
    assert all(result["stored"] for result in results)
    for name in names:
        assert files_below(tmp_path / name)["rank0/model.bin"] == builders[0].encode() * 100


def test_a_killed_builder_is_taken_over_at_once(tmp_path: Path) -> None:
    victim = start(tmp_path, "a", 600)
    wait_for(tmp_path / "a/begun")
    heir = start(tmp_path, "b", 0)
    time.sleep(1)  # let it come to wait for the victim
    assert len((tmp_path / "log").read_text().split()) == 1

    victim.kill()
    wait_for(tmp_path / "b/config.json")  # long before the victim would have ended
    result = json.loads(heir.communicate(timeout=120)[0])
    victim.communicate()

    assert result == {"hit": False, "stored": True}
    assert open_local(tmp_path / "cache").get_or_build(CHECKPOINT, Build(), tmp_path / "c").hit


def test_a_builder_killed_while_publishing_leaves_nothing_that_can_be_found(
    tmp_path: Path,
) -> None:
    """Killed after each half of the order: blobs without an entry, then the entry as well."""
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from artifact_cache.stores.local import LocalStore\n"
        "def die(*_): os.kill(os.getpid(), signal.SIGKILL)\n"
        "setattr(LocalStore, sys.argv.pop(1), die)\n"
        "from tests.support.cache_builder import main\n"
        "main(*sys.argv[1:])\n"
    )
    for name in ("_publish_blob", "_publish_entry"):
        arguments = [str(tmp_path / one) for one in ("cache", name, "log")]
        done = subprocess.run([sys.executable, "-c", script, name, *arguments, "0"])
        assert done.returncode == -9

    cache = open_local(tmp_path / "cache")
    assert cache.find(CHECKPOINT) is None
    assert not cache.get_or_build(CHECKPOINT, Build(), tmp_path / "a").hit
    assert cache.get_or_build(CHECKPOINT, Build(), tmp_path / "b").hit
    assert list((tmp_path / "cache/tmp").iterdir()) == []
