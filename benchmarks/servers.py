"""The registry and the engine of a benchmark: private, fresh, stopped however it ends."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from measuring import call

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


@contextmanager
def registry(work: Path) -> Iterator[tuple[str, int]]:
    """Start an empty docker-registry; give HOST:PORT and its process."""
    root = work / "registry"
    host = _start("registry", root).split()[-1]
    try:
        yield host, _pid("registry", root)
    finally:
        call([str(SCRIPTS / "registry"), "stop", "--root", str(root)])
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def discarding_registry() -> Iterator[tuple[str, int]]:
    """Start a registry that keeps no blob; give HOST:PORT and its process."""
    script = str(Path(__file__).with_name("discarding.py"))
    with subprocess.Popen(
        [sys.executable, script],
        stdin=subprocess.PIPE,  # it ends when that does
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield f"127.0.0.1:{int(process.stdout.readline())}", process.pid
        finally:
            process.kill()


@contextmanager
def engine(root: Path) -> Iterator[tuple[str, int]]:
    """Start a private Docker Engine; give DOCKER_HOST and its process."""
    _start("docker-engine", root)
    try:
        exported = call([str(SCRIPTS / "docker-engine"), "env", "--root", str(root)])
        host = exported.split("DOCKER_HOST=")[1].split()[0].strip("'\";")
        yield host, _pid("docker-engine", root)
    finally:
        call([str(SCRIPTS / "docker-engine"), "stop", "--root", str(root)])


def make_base() -> None:
    """Import a one-layer image of a few bytes into the engine."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        member = tarfile.TarInfo("etc/base")
        member.size = 4
        tar.addfile(member, io.BytesIO(b"base"))
    importing = ["docker", "import", "-", "bench-base:1"]
    subprocess.run(importing, input=archive.getvalue(), check=True, capture_output=True)


def push_base(host: str) -> None:
    """Put the base into a registry, as `HOST/base:1`."""
    call(["docker", "tag", "bench-base:1", f"{host}/base:1"])
    call(["docker", "push", "-q", f"{host}/base:1"])


def _start(script: str, root: Path) -> str:
    """Start a server that also stops when this process was killed."""
    mine = str(os.getpid())
    return call([str(SCRIPTS / script), "start", "--root", str(root), "--end-with", mine])


def _pid(script: str, root: Path) -> int:
    status = call([str(SCRIPTS / script), "status", "--root", str(root), "--format", "json"])
    return int(json.loads(status)["pid"])
