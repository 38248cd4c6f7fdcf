"""One operation under strace: which system calls change something, and one of them going wrong."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import need, unavailable
from tests.faults.cache.working import work
from tests.faults.counters import never
from tests.faults.forking import FORKED
from tests.support.running_jobs import until

CHANGING = (
    *("openat", "write", "pwrite64", "ftruncate", "fsync", "fdatasync", "rename", "renameat"),
    *("renameat2", "link", "linkat", "unlink", "unlinkat", "rmdir", "mkdir", "mkdirat"),
    *("chmod", "fchmod", "fchmodat", "utimensat", "ioctl", "sendfile", "copy_file_range"),
)
PATIENCE_S = 60.0
_CALL = re.compile(r"\d+ +(\w+)\((.*)")


@dataclass(frozen=True)
class Call:
    """The number-th call of its name, as strace wrote it."""

    name: str
    number: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a traced operation ended."""

    killed: bool
    injected: bool
    error: str = ""
    explained: bool = True
    right: bool | None = None  # whether the files it gave out were right, if it gave out any
    calls: tuple[Call, ...] = field(default=(), repr=False)


def run(operation: str, scene: Path, fault: str = "", call: str = "") -> Ended:
    """Run an operation to its end, or to the end that the fault gives it."""
    trace = scene / "trace"
    process = FORKED.Process(target=work, args=(operation, str(scene)), daemon=True)
    process.start()
    until((scene / "ready").exists, every_s=0.002)  # from here on its calls are the operation's
    expression = ["-e", f"inject={call}:{fault}"] if call else []
    names = call or ",".join(f"?{name}" for name in CHANGING)
    tracer = subprocess.Popen(
        [need("strace"), "-f", "-qq", "-y", "-s", "0", "-o", str(trace), "-p", str(process.pid)]
        + ["-e", f"trace={names}", *expression],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _wait_until_traced(process.pid or 0, tracer)
        (scene / "go").touch()
        process.join(PATIENCE_S)
        with never("hangs"):
            assert process.exitcode is not None, f"{operation} with {call}:{fault} hangs"
    finally:
        process.kill()
        _, complaint = tracer.communicate(timeout=PATIENCE_S)
    killed = process.exitcode == -9
    said = scene / "said"
    text = trace.read_text(errors="replace")
    with never("untyped_failures"):
        assert killed or said.exists(), f"{operation} ended with {process.exitcode}: {complaint}"
    return Ended(
        killed=killed,
        injected=killed or "(INJECTED" in text,
        calls=_calls(text, scene),
        **(json.loads(said.read_text()) if said.exists() else {}),
    )


def _wait_until_traced(pid: int, tracer: subprocess.Popen[str]) -> None:
    status = Path(f"/proc/{pid}/status")

    def is_traced() -> bool:
        if tracer.poll() is not None:
            unavailable(f"strace, which says {(tracer.stderr.read() if tracer.stderr else '')!r},")
        return "TracerPid:\t0\n" not in status.read_text()

    until(is_traced, every_s=0.002)


def _calls(text: str, scene: Path) -> tuple[Call, ...]:
    """Give the calls that change something below the cache, or where files are handed out."""
    places = [f"{scene}/{name}" for name in ("cache", "out", "far", "theirs")]
    numbers: Counter[str] = Counter()
    found = []
    for line in text.splitlines():
        match = _CALL.match(line)
        if match is None:
            continue
        name, rest = match.groups()
        numbers[name] += 1
        changes = {"openat": "O_CREAT", "ioctl": "CLONE"}.get(name, "")
        if changes in rest and any(place in rest for place in places):
            found.append(Call(name, numbers[name], rest))
    return tuple(found)
