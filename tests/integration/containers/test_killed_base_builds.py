"""A base build that is killed at any moment leaves nothing that the next one trusts."""

from __future__ import annotations

import contextlib
import fcntl
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tests.support.workers import SERVING, load

pytestmark = pytest.mark.extended

builder = load(SERVING / "vllm-cpu/build-base")

# A build whose parts are programs, as debootstrap, pip and tar are, that outlive a killed builder.
PROGRAM = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tests.support.workers import SERVING, load
builder = load(SERVING / "vllm-cpu/build-base")

def build(work, mirror, *, exact):
    rootfs, blobs = work / "rootfs", work / "layout/blobs/sha256"
    rootfs.mkdir()
    blobs.mkdir(parents=True)
    slow = "for n in $(seq 30); do echo $n > rootfs/$n; sleep 0.01; done"
    with ThreadPoolExecutor() as pool, builder.ending_together():  # as the real one runs them
        pool.submit(builder.call, ["sh", "-c", slow], "debootstrap", work).result()
    layers = [builder.write_layer(rootfs, blobs)]
    builder.write_image(work / "layout", {"name": "b", "version": "1", "config": {}}, layers)
    record = {"inputs": builder.inputs_digest()}
    (work / "layout/build.json").write_text(json.dumps(record))
    return work / "layout"

builder.build = build
builder.install_host_packages = lambda: None
builder.platform.machine = lambda: "x86_64"
builder.os.geteuid = lambda: 0
print("ready", flush=True)
sys.exit(builder.main())
"""


def begin(output: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, "--output", str(output), *more]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def finish(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    digest = process.stdout.read().strip()
    assert process.wait(60) == 0
    return digest


@pytest.mark.parametrize("seed", range(10))
def test_a_build_killed_at_any_moment_is_begun_anew(seed: int, tmp_path: Path) -> None:
    output = tmp_path / "base"
    process = begin(output)
    time.sleep(random.Random(seed).uniform(0, 0.7))
    process.send_signal(signal.SIGKILL)
    process.wait()

    assert not output.exists() or builder.damage(output) == ""
    digest = finish(begin(output))

    assert builder.damage(output) == ""
    assert builder.read_digest(output) == digest
    assert {path.name for path in tmp_path.iterdir()} == {"base", ".base.lock"}


def test_two_builds_make_one_base(tmp_path: Path) -> None:
    both = [begin(tmp_path / "base") for _ in range(2)]

    first, second = (finish(process) for process in both)

    assert first == second
    assert builder.damage(tmp_path / "base") == ""


def test_a_builder_that_is_told_to_end_leaves_nothing(tmp_path: Path) -> None:
    process = begin(tmp_path / "base")
    while not list(tmp_path.glob(".base.*.tmp/rootfs")):
        time.sleep(0.01)
    process.terminate()

    assert process.wait(60) == 143
    assert [path.name for path in tmp_path.iterdir()] == [".base.lock"]


def test_a_base_build_ends_when_the_command_that_asked_for_it_is_killed(tmp_path: Path) -> None:
    """Else it goes on unseen, holds the lock, and takes gigabytes."""
    script = tmp_path / "build-base"
    script.write_text(
        PROGRAM.replace(
            "import json, sys\n", f"import json, sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        )
        .replace("seq 30", "seq 9000")
        .replace(
            "sys.exit(builder.main())",
            f"sys.argv += ['--output', {str(tmp_path / 'base')!r}]\nsys.exit(builder.main())",
        )
    )
    asking = (
        "from pathlib import Path\nfrom packager.images.bases import embedded\n"
        f"embedded._builder = lambda name: Path({str(script)!r})\n"
        "embedded.build_base('vllm-cpu')\n"
    )
    packager = subprocess.Popen([sys.executable, "-c", asking], cwd=ROOT, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".base.*.tmp/rootfs/1")):
        assert time.monotonic() < deadline
        time.sleep(0.02)

    packager.kill()
    packager.wait()

    deadline = time.monotonic() + 60
    while list(tmp_path.glob(".base.*.tmp")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not (tmp_path / "base").exists()


def test_what_a_killed_build_of_another_version_left_is_removed(tmp_path: Path) -> None:
    dead, busy = (tmp_path / f".vllm-cpu-{digit * 16}.abcd.tmp" for digit in "01")
    for place in (dead, busy):
        (place / "rootfs").mkdir(parents=True)
    other = tmp_path / ".not-ours.tmp"
    other.mkdir()

    with (tmp_path / f".vllm-cpu-{'1' * 16}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        builder.remove_abandoned(tmp_path / "vllm-cpu-2222222222222222")

    assert (dead.exists(), busy.exists(), other.exists()) == (False, True, True)


def test_a_program_of_a_killed_build_is_ended_before_its_directory_is_removed(
    tmp_path: Path,
) -> None:
    work = tmp_path / ".base.0.tmp"
    work.mkdir()
    writing = "while :; do mkdir -p a/b; echo x > a/b/c; done 2>/dev/null"
    orphan = subprocess.Popen(["sh", "-c", writing], cwd=work)
    bystander = subprocess.Popen(["sleep", "600"], cwd=tmp_path)
    try:
        builder.remove_work(tmp_path / "base")

        assert orphan.wait(120) == -signal.SIGKILL
        assert bystander.poll() is None
        assert not work.exists()
    finally:
        for process in (orphan, bystander):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()


def test_an_unverified_base_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    verified = builder.default_output()
    monkeypatch.setenv("PACKAGER_ALLOW_UNHASHED", "1")

    assert builder.default_output() != verified
