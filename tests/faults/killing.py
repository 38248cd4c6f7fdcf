"""Runs of the real command line that can be killed at any moment, and what they leave behind.

Interpreters are forked from one that has imported everything, so that a run takes a fifth of a
second and a kill hits packager instead of Python's start.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from packager.cli import app
from tests.conftest import need
from tests.faults.counters import tried
from tests.faults.forking import FORKED
from tests.support.doubles.registry import sha256

_KINDS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.index.v1+json")
_ACCEPT = {"Accept": ", ".join(_KINDS)}


@dataclass(frozen=True)
class Machine:
    """One user's directories. `environment` is what packager sees of them."""

    root: Path
    variables: Mapping[str, str] = field(default_factory=dict)  # besides

    @property
    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.root),
            "TMPDIR": str(self.root / "tmp"),
            "XDG_STATE_HOME": str(self.root / "state"),
            "XDG_CACHE_HOME": str(self.root / "cache"),
            **self.variables,
        }

    def start(self, *arguments: str) -> BaseProcess:
        """Begin a build; its output goes to `stdout` and `stderr`."""
        (self.root / "tmp").mkdir(parents=True, exist_ok=True)
        process = FORKED.Process(
            target=_run, args=(arguments, str(self.root), self.environment), daemon=True
        )
        process.start()
        return process

    def run(self, *arguments: str) -> int:
        process = self.start(*arguments)
        process.join(300)
        assert process.exitcode is not None, "a hang"
        return process.exitcode

    def kill(self, seed: int, least_s: float, most_s: float, *arguments: str) -> int:
        """Begin a build, and kill it at a moment that follows from the seed."""
        process = self.start(*arguments)
        time.sleep(random.Random(seed).uniform(least_s, most_s))
        process.kill()
        process.join(300)
        tried()
        assert process.exitcode in (0, -9), self.err
        return process.exitcode

    def traced(self, call: str, *options: str, arguments: tuple[str, ...]) -> tuple[int, str]:
        """Run to the end in a process of its own; return its status, and what strace wrote.

        (With --seccomp-bpf, strace 6.1 injects no signals.)
        """
        trace = self.root.with_name(f"{self.root.name}.trace")
        done = subprocess.run(
            [need("strace"), "-f", "-qq", "-o", str(trace), f"--trace={call}", *options]
            + [sys.executable, "-m", "packager", *arguments],
            cwd=self.root,
            # Python renames what it compiles, too: the first run would have other numbers.
            env={**os.environ, **self.environment, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            timeout=300,
        )
        (self.root / "stderr").write_bytes(done.stderr)
        return done.returncode, trace.read_text()

    @property
    def out(self) -> str:
        return (self.root / "stdout").read_text()

    @property
    def err(self) -> str:
        return (self.root / "stderr").read_text()

    def garbage(self) -> list[str]:
        """Files that no finished build leaves anywhere in this machine's directories."""
        return sorted(
            str(path.relative_to(self.root))
            for path in self.root.rglob("*")
            if path.name.endswith((".tmp", ".part", ".incomplete"))
            or path.name.startswith(".new-")
            or path.parent == self.root / "tmp"
        )


def _run(arguments: tuple[str, ...], directory: str, environment: dict[str, str]) -> None:
    os.chdir(directory)
    os.environ.update(environment)
    for number, name in ((1, "stdout"), (2, "stderr")):
        opened = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(opened, number)
    sys.stdout, sys.stderr = open(1, "w"), open(2, "w")  # noqa: SIM115
    sys.argv = ["packager", *arguments]
    app.main()


def tagged(host: str, repository: str, tag: str = "1") -> str:
    """The digest under a tag; nothing when there is none. Fails for an incomplete image."""
    data = _manifest(host, repository, tag)
    document = json.loads(data or "{}")
    for form in document.get("manifests", ()):
        assert tagged(host, repository, form["digest"]) == form["digest"], "a form is missing"
    for entry in _parts(document):
        assert has_blob(host, repository, entry), f"{repository}:{tag} is incomplete"
    return sha256(data) if data else ""


def _manifest(host: str, repository: str, tag: str) -> bytes:
    request = urllib.request.Request(
        f"http://{host}/v2/{repository}/manifests/{tag}", None, _ACCEPT
    )
    with _asked(request) as answer:
        return b"" if answer.status == 404 else bytes(answer.read())


def _asked(request: urllib.request.Request) -> Any:
    """What a registry answers, with 200 or 404.

    It still carries out what a client sent before it was killed. Meanwhile Docker's registry
    answers 500: it empties a tag's file before it writes the new digest into it.
    """
    ends = time.monotonic() + 30
    while True:
        try:
            return urllib.request.urlopen(request, timeout=120)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return error
            assert error.code == 500 and time.monotonic() < ends, error
        time.sleep(0.05)


def _parts(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The configuration and the layers of a manifest; nothing of an index."""
    return [document["config"], *document["layers"]] if "config" in document else []


def has_blob(host: str, repository: str, entry: dict[str, object]) -> bool:
    """Whether a registry has what a descriptor describes."""
    url = f"http://{host}/v2/{repository}/blobs/{entry['digest']}"
    with _asked(urllib.request.Request(url, method="HEAD")) as answer:
        return bool(answer.status == 200 and int(answer.headers["Content-Length"]) == entry["size"])


def layout_image(root: Path) -> str:
    """The digest of a layout's image; nothing when it names none. Fails for an incomplete one."""
    index = root / "index.json"
    if not index.exists():
        return ""
    [entry] = json.loads(index.read_bytes())["manifests"]
    for digest in _reachable(root, entry["digest"]):
        assert sha256((root / "blobs" / "sha256" / digest[7:]).read_bytes()) == digest
    return str(entry["digest"])


def _reachable(root: Path, digest: str) -> set[str]:
    """A manifest, or an index with its manifests, and all that they name."""
    document = json.loads((root / "blobs" / "sha256" / digest[7:]).read_bytes())
    found = {digest, *(part["digest"] for part in _parts(document))}
    for form in document.get("manifests", ()):
        found |= _reachable(root, form["digest"])
    return found


def unneeded_blobs(root: Path) -> set[str]:
    """Blobs of a layout that neither its image needs nor what is attached to it."""
    blobs = root / "blobs" / "sha256"
    [entry] = json.loads((root / "index.json").read_bytes())["manifests"]
    attached = entry.get("annotations", {}).get("dev.packager.attached", "").split()
    needed: set[str] = set()
    for digest in (layout_image(root), *attached):
        needed |= _reachable(root, digest)
    return {f"sha256:{path.name}" for path in blobs.iterdir()} - needed
