"""The same image in a layout, a real registry and a real engine, seen by independent tools."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import need
from tests.live.building import told
from tests.live.image_tools import inspected
from tests.support.commandline import TINY, Packager

pytestmark = pytest.mark.live

BUILD = ("build", "--model", str(TINY), "--instance", "local", "--base", "scratch")


def bytes_read_from_weights(trace: str) -> int:
    """Sum what read-like calls took from files ending in .safetensors (strace -y)."""
    pattern = re.compile(r"(?:read|pread64|sendfile|copy_file_range)\(.*?safetensors>.* = (\d+)$")
    return sum(
        int(found.group(1)) for line in trace.splitlines() if (found := pattern.search(line))
    )


@pytest.mark.capability("push")
def test_three_outputs_are_one_image_from_one_read(
    packager: Packager, registry: str, engine: str, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    done = subprocess.run(
        # One file a thread (-ff): in a common one, calls of several threads interrupt each other.
        [need("strace"), "-ff", "-y", "-qq", "-e", "trace=read,pread64,sendfile,copy_file_range"]
        + ["-o", str(trace), sys.executable, "-m", "packager", *BUILD, "--quiet"]
        + ["--output", "oci:out", "--output", f"{registry}/tiny:1", "--output", "docker:tiny:1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr

    digests = {line.rpartition("@")[2] for line in done.stdout.splitlines()}
    assert (len(done.stdout.splitlines()), len(digests)) == (3, 1)
    calls = "\n".join(path.read_text() for path in sorted(tmp_path.glob("trace.*")))
    weights = sum(path.stat().st_size for path in TINY.glob("*.safetensors"))
    headers = 3 * 64 * 1024  # the plan reads each shard's header
    assert weights <= bytes_read_from_weights(calls) <= weights + headers

    [digest] = digests
    for reference in (f"oci:{tmp_path}/out:latest", f"docker://{registry}/tiny:1"):
        assert inspected(reference)["Digest"] == digest


@pytest.mark.capability("known")
def test_second_identical_push_sends_no_blob(
    packager: Packager, registry: str, tmp_path: Path
) -> None:
    arguments = (*BUILD, "--quiet", "--output", f"{registry}/again:1")
    first, second = (told(packager, *arguments) for _ in range(2))

    assert first["transfer"]["bytes_sent"] > 8_000_000
    assert (second["transfer"]["bytes_sent"], second["transfer"]["bytes_read"]) == (0, 0)
    assert first["digest"] == second["digest"]
