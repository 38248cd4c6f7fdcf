"""What every worker needs, with the standard library alone.

    from packager_worker import run, Rejected

    def work(spec, report):
        report.progress("calibrating", 3, 16)
        (spec.output / "config.json").write_text("{}")
        return {"anything": "for the record"}

    if __name__ == "__main__":
        run(work, packages=("torch", "llmcompressor"))

Whatever libraries print goes to the log: stdout belongs to the protocol.  The
process ends with the packager that started it, however that one ends.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import resource
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROTOCOL = 1
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory")


class WorkerFailed(Exception):
    """Base of the failures that have a class of their own."""

    kind = "internal"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Rejected(WorkerFailed):
    """These inputs cannot be worked on, whoever tries again."""

    kind = "rejected"


class BadInput(WorkerFailed):
    """An input file is missing or broken."""

    kind = "bad-input"


def check_gpus(gpus: int, torch: Any) -> None:
    """Raise where a step was given GPUs and the worker's `torch` finds fewer."""
    found = torch.cuda.device_count() if gpus and torch.cuda.is_available() else 0
    if found < gpus:
        raise WorkerFailed(
            f"the step has {gpus} GPUs, and torch {torch.__version__} finds {found or 'none'}",
            "compare the driver that `nvidia-smi` names with what this torch needs, "
            "or use `--gpus 0`",
        )


@dataclass(frozen=True)
class Spec:
    """One run, as the executor wrote it."""

    tool: str
    step: str
    inputs: Mapping[str, Path]
    parameters: Mapping[str, Any]
    output: Path
    work: Path
    result: Path
    gpus: int


class Report:
    """The worker's voice. Lines may come from any thread."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def progress(self, message: str, done: float = 0, total: float = 0) -> None:
        """Say how far the work is."""
        self._say({"event": "progress", "message": message[:1000], "done": done, "total": total})

    def note(self, message: str) -> None:
        """Say something that people should know."""
        self._say({"event": "note", "message": message[:1000]})

    def alive(self) -> None:
        """Show a sign of life."""
        self._say({"event": "alive"})

    @contextlib.contextmanager
    def busy(self, message: str, every_s: float = 15.0) -> Iterator[None]:
        """Show signs of life during a call that reports nothing, such as loading a model.

        It hides a hang in that call: use it for calls that are known to end.
        """
        self.progress(message)
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(every_s):
                self.alive()

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _say(self, line: dict[str, Any]) -> None:
        data = json.dumps(line).encode() + b"\n"
        with self._lock:
            while data:
                data = data[os.write(self._descriptor, data) :]


Work = Callable[[Spec, Report], "Mapping[str, Any] | None"]


def run(work: Work, packages: Iterable[str] = ()) -> None:
    """Do the work that the command line names, write the result and end the process.

    `packages` are the distributions whose versions reach the result.
    """
    spec = _read_spec(Path(sys.argv[1]))
    report = Report(_take_stdout())
    started = time.monotonic()
    try:
        details = work(spec, report) or {}
        result = {
            "files": sorted(
                path.relative_to(spec.output).as_posix()
                for path in spec.output.rglob("*")
                if not path.is_dir() or path.is_symlink()
            ),
            "versions": versions_of(packages),
            "details": dict(details),
        }
    except Exception as error:
        traceback.print_exc()
        result = {"error": _describe(error)}
    result["protocol"] = PROTOCOL
    result["seconds"] = round(time.monotonic() - started, 3)
    result["peak_memory_bytes"] = peak_memory_bytes()
    draft = spec.result.with_name(spec.result.name + ".part")
    draft.write_text(json.dumps(result), encoding="utf-8")
    draft.replace(spec.result)
    sys.stderr.flush()
    # Threads that libraries left behind must not hold up, or spoil, what is done.
    os._exit(1 if "error" in result else 0)


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Give the installed versions, local part included."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def peak_memory_bytes() -> int:
    """Give the largest memory that this process or one of its children had."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(each).ru_maxrss for each in who) * 1024


def _read_spec(path: Path) -> Spec:
    document = json.loads(path.read_text(encoding="utf-8"))
    if document["protocol"] != PROTOCOL:
        raise SystemExit(f"this worker speaks protocol {PROTOCOL}, not {document['protocol']}")
    return Spec(
        tool=document["tool"],
        step=document["step"],
        inputs={role: Path(place) for role, place in document["inputs"].items()},
        parameters=document["parameters"],
        output=Path(document["output"]),
        work=Path(document["work"]),
        result=Path(document["result"]),
        gpus=document["gpus"],
    )


def _take_stdout() -> int:
    """Keep stdout for the protocol; whoever prints from now on prints into the log."""
    sys.stdout.flush()
    descriptor = os.dup(1)
    os.dup2(2, 1)
    return descriptor


def _describe(error: Exception) -> dict[str, str]:
    message = str(error) or type(error).__name__
    if isinstance(error, WorkerFailed):
        return {"class": error.kind, "message": message, "hint": error.hint}
    said = message.lower()
    memory = isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__
    if memory or any(words in said for words in _OUT_OF_MEMORY):
        return {"class": "out-of-memory", "message": message}
    return {"class": "internal", "message": f"{type(error).__name__}: {message}"}
