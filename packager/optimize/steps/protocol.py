"""The worker's protocol, the same for every executor: lay out, listen, judge.

See docs/tools.md.  Nothing a worker writes is trusted: lines, result and files
are bounded and checked before any of it is used.
"""

from __future__ import annotations

import os
import selectors
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO

from packager.core.documents import NotStrict, parse_model
from packager.core.errors import StepFailed
from packager.core.events import EventSink, StepEvent
from packager.core.files.opening import check_unchanged
from packager.core.image import Blob, FileRange
from packager.core.model import ModelFile
from packager.core.recipe import Step, StepResult
from packager.core.worker import WorkerEvent, WorkerResult, WorkerSpec
from packager.optimize.steps.failures import (
    DISK_FULL,
    StepBroken,
    StepDiskFull,
    StepOutOfMemory,
    StepRejected,
    StepTimedOut,
    failed,
)

LINE_BYTES = 64 * 1024
RESULT_BYTES = 8 * 1024 * 1024
STRAY_LINES = 100
POLL_S = 0.25

# The base environment of every worker. Changing it may change results: it is part of the protocol,
# whose version is part of every worker's digest.
BASE_ENV: Mapping[str, str] = {
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONNOUSERSITE": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}


def thread_settings(step: Step) -> Mapping[str, str]:
    """Return variables about threads; they do not affect results.

    Threads that wait sleep: on cores that others use too, those of OpenMP would wait for each
    other in loops, thirty times as long.
    """
    count = step.env.get("OMP_NUM_THREADS", str(step.threads or ""))
    settings = {"OMP_NUM_THREADS": count} if count else {}
    return settings if count == "1" else {**settings, "OMP_WAIT_POLICY": "passive"}


def memory_settings(step: Step) -> Mapping[str, str]:
    """Return variables about memory; they do not affect results.

    By itself glibc comes to keep tensors of up to 32 MiB in heaps of its threads, and how much of
    them stays unused depends on which thread freed first: on a busy machine a quantizer's peak was
    a fifth above the bound that the plan states.
    """
    return {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)} if step.tool == "llmcompressor" else {}


ReadBlob = Callable[[Blob], Iterable[memoryview]]


def make_spec(step: Step, *, root: str, output: str) -> WorkerSpec:
    """Return the worker's specification, with paths below `root`."""
    return WorkerSpec(
        tool=step.tool,
        step=step.name,
        inputs={role: step.places.get(role, f"{root}/inputs/{role}") for role in step.inputs},
        parameters=dict(step.parameters),
        output=step.places.get("output", output),
        work=f"{root}/work",
        result=f"{root}/answer/result.json",
        gpus=step.gpus,
    )


def lay_out(
    step: Step,
    place: Path,
    read: ReadBlob,
    on_event: EventSink,
    offer: Callable[[Path, Path], None] = lambda source, target: target.symlink_to(source),
    *,
    work: Path | None = None,
) -> None:
    """Create the directories of a run, with links to local files and copies of the rest.

    `offer` shows a local file at a place in the inputs, without copying it.  `work` is
    a directory that the step keeps, where it has one.
    """
    for name in ("inputs", "home", "tmp", "answer"):
        (place / name).mkdir(mode=0o700)
    if work is None:
        (place / "work").mkdir(mode=0o700)
    else:
        (place / "work").symlink_to(work.absolute())
    for role, given in step.inputs.items():
        root = place / "inputs" / role
        root.mkdir()
        for file in given.files:
            target = root / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            if source := whole_file(file):
                check_file(file)
                _compare(file, read)
                offer(source, target)
            else:
                detail = f"fetching {file.path}"
                on_event(StepEvent(step=step.name, state="running", detail=detail))
                _write(file, target, read)


def whole_file(file: ModelFile) -> Path | None:
    """Return the local file that a model file is; None when it is a part or remote."""
    content = file.content
    if not isinstance(content, FileRange) or content.offset:
        return None
    path = Path(content.path).absolute()
    return path if path.stat().st_size == content.length else None


def check_inputs(step: Step) -> None:
    """Raise `SourceChanged` when a worker may have read other files than were checked."""
    for given in step.inputs.values():
        for file in given.files:
            check_file(file)


def check_file(file: ModelFile) -> None:
    """Raise `SourceChanged` when a local file of a model is not the one that was checked."""
    segments = file.content.segments if isinstance(file.content, Blob) else (file.content,)
    for segment in segments:
        if isinstance(segment, FileRange):
            check_unchanged(segment)


def fetched_bytes(step: Step) -> int:
    """Return the disk space in bytes for inputs that are not local files."""
    files = [file for given in step.inputs.values() for file in given.files]
    return sum(file.size for file in files if whole_file(file) is None)


def _compare(file: ModelFile, read: ReadBlob) -> None:
    """Verify a file of the artifact cache by reading it; a worker opens the file itself."""
    content = file.content
    if isinstance(content, FileRange) and content.sha256:
        for _ in read(Blob((content,))):
            pass


def _write(file: ModelFile, target: Path, read: ReadBlob) -> None:
    content = file.content
    blob = content if isinstance(content, Blob) else Blob((content,))
    with target.open("xb") as out:
        for chunk in read(blob):
            out.write(chunk)


class Listener:
    """Parser of a worker's stdout while it runs."""

    def __init__(self, step: Step, log: IO[bytes], on_event: EventSink) -> None:
        self.notices: list[str] = []
        self.stray = 0
        self._step = step
        self._log = log
        self._on_event = on_event
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Parse the next bytes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(line)
        if len(self._rest) > LINE_BYTES:
            self._line(self._rest)
            self._rest = b""

    def _line(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            event = parse_model(WorkerEvent, line)
        except NotStrict:
            self.stray += 1
            self._log.write(line[:LINE_BYTES] + b"\n")
            self._log.flush()
            return
        if event.event == "note":
            self.notices.append(event.message)
        if event.event != "alive":
            share = f", {event.done:g} of {event.total:g}" if event.total else ""
            detail = event.message + share
            self._on_event(
                StepEvent(
                    step=self._step.name,
                    state="running",
                    detail=detail,
                    stage=event.message if event.event == "progress" else "",
                    units_done=event.done,
                    units=event.total,
                )
            )


def listen(
    stdout: int, step: Step, listener: Listener, log: Path, running: Callable[[], bool]
) -> None:
    """Follow the worker to its end; raises on time-out, silence or excessive output."""
    began = heard = time.monotonic()
    os.set_blocking(stdout, False)
    with selectors.DefaultSelector() as selector:
        selector.register(stdout, selectors.EVENT_READ)
        while True:
            # Checked before reading: its last output is still in the pipe.
            alive = running()
            if selector.select(POLL_S if alive else 0):
                data = os.read(stdout, LINE_BYTES)
                if not data:
                    return
                heard = time.monotonic()
                listener.feed(data)
            elif not alive:
                return
            if listener.stray > STRAY_LINES:
                reason = f"wrote more than {STRAY_LINES} lines on stdout that are not events"
                raise failed(StepBroken, step, reason, log)
            now = time.monotonic()
            if now - began > step.timeout_s:
                raise failed(StepTimedOut, step, f"ran over {step.timeout_s:.0f} s", log)
            if now - heard > step.quiet_s:
                reason = f"produced no output for {step.quiet_s:.0f} s: it hangs"
                raise failed(StepTimedOut, step, reason, log)


def judge(
    step: Step, code: int, answer: Path, into: Path, listener: Listener, log: Path, *, oom: bool
) -> StepResult:
    """Convert the end of a run into a result, or raise the typed error."""
    result = _read_result(step, code, answer, log, oom=oom)
    if error := result.error:
        kinds: Mapping[str, type[StepFailed]] = {
            "rejected": StepRejected,
            "bad-input": StepRejected,
            "out-of-memory": StepOutOfMemory,
        }
        kind = kinds.get(error.class_, StepFailed)
        if error.class_ == "internal" and any(words in error.message for words in DISK_FULL):
            kind = StepDiskFull
        raise failed(kind, step, f"failed: {error.message}", log, hint=error.hint)
    if code:
        raise failed(StepFailed, step, f"ended with status {code} after it gave a result", log)
    left = _files_below(step, into, log)
    if left != set(result.files) or not left:
        odd = ", ".join(sorted(left ^ set(result.files))[:3]) or "none at all"
        raise failed(StepBroken, step, f"left other files than its result names: {odd}", log)
    notices = list(listener.notices)
    if listener.stray:
        notices.append(f"step {step.name!r} wrote {listener.stray} lines that are not events")
    return StepResult(
        versions=result.versions,
        details=result.details,
        seconds=result.seconds,
        peak_memory_bytes=result.peak_memory_bytes,
        notices=tuple(notices),
    )


def _read_result(step: Step, code: int, answer: Path, log: Path, *, oom: bool) -> WorkerResult:
    try:
        # A link could point to anything that we may read and it may not.
        descriptor = os.open(answer, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(RESULT_BYTES + 1)
    except OSError as error:
        raise _no_result(step, code, log, oom=oom) from error
    if len(data) > RESULT_BYTES:
        raise failed(StepBroken, step, "gave a result that is too long", log)
    try:
        return parse_model(WorkerResult, data, max_bytes=RESULT_BYTES, allow_infinity=True)
    except NotStrict as error:
        reason = f"gave a result that cannot be read: {error}"
        raise failed(StepBroken, step, reason, log) from error


def _no_result(step: Step, code: int, log: Path, *, oom: bool) -> StepFailed:
    if oom:
        hint = "use a machine with more memory, or a smaller calibration set"
        return failed(StepOutOfMemory, step, "was killed: memory ran out", log, hint=hint)
    if code < 0:
        return failed(StepFailed, step, f"was killed by signal {-code}", log)
    if code:
        return failed(StepFailed, step, f"ended with status {code}", log)
    return failed(StepBroken, step, "ended without a result", log)


def _files_below(step: Step, into: Path, log: Path) -> set[str]:
    found = set()
    for path in into.rglob("*"):
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            continue
        name = path.relative_to(into).as_posix()
        if not stat.S_ISREG(mode):
            raise failed(StepBroken, step, f"left {name!r}, which is not a plain file", log)
        found.add(name)
    return found
