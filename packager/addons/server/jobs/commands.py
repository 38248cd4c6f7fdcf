"""Runs commands of packager as processes that outlive their runner.

A shell waits for the command and keeps its status in a file.  So a command whose runner was killed
goes on, and the next runner learns how it ended.  The lock of the stage is held by all of them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from packager.addons.server.jobs.errors import DirectoryGone
from packager.addons.server.jobs.folders import STAGE_LOCK_FILE, is_locked, result_file, take_lock
from packager.addons.server.jobs.values import JOB_FOLDER, Stage
from packager.core.files.atomic import explain_disk_errors, read_regular

# Options that a runner adds; a test holds these against the commands.
SHOW_PROGRESS = frozenset(
    {("bench",), ("build",), ("copy",), ("evaluate",), ("mount",), ("neo",), ("node-cache",)}
    | {("join",), ("lock",), ("push",), ("run",), ("tune",)}
    | {
        ("base", "build"),
        ("base", "slim"),
        ("draft", "train"),
        ("jobs", "measure"),
        ("tools", "install"),
        ("warm", "run"),
    }
    | {("cache", name) for name in ("explain", "export", "gc", "import", "verify")}
    | {("bundle", name) for name in ("create", "load", "verify")}
)
WITHOUT_FORMAT = frozenset(
    {
        ("api", "env"),
        ("base", "build"),
        ("completion",),
        ("jobs", "render"),
        ("keys", "make"),
        ("neo",),
        ("warm", "render", "kubernetes"),
    }
    | {("cache", name) for name in ("keygen", "trust", "unpin")}
    | {("claims", name) for name in ("export", "import")}
    | {("deploy", name, "invoke") for name in ("compose", "kserve", "kubernetes", "sagemaker")}
    | {("tools", name) for name in ("install", "path", "rm", "schema")}
    | {("schema",)}
    | {("warm", name) for name in ("one", "schema", "step", "tool")}
)
_MAX_STATUS = 16
_NOTHING_YET = b"-" * 11 + b"\n"  # as long as any number: writing it later needs no disk
# $1 to $4: the shell's process, the status, the command's output and its errors.
_SCRIPT = """
umask 077
trap : TERM INT HUP
printf %-11s $$ 1<>"$1"
status="$2" output="$3" errors="$4"
shift 4
"$@" >"$output" 2>"$errors"
printf %-11s $? 1<>"$status"
"""


@dataclass(frozen=True, slots=True)
class StageFiles:
    """Files of a stage's command while it runs, and until its end is known."""

    folder: Path
    number: int  # from 1
    name: str

    @property
    def process(self) -> Path:
        """Return where the number of its group of processes is."""
        return self._place("process")

    @property
    def status(self) -> Path:
        """Return the file of its exit status, written when it ends by itself."""
        return self._place("status")

    @property
    def output(self) -> Path:
        """Return where it prints its result."""
        return self._place("output")

    @property
    def errors(self) -> Path:
        """Return where it prints progress and errors."""
        return self._place("errors")

    @property
    def result(self) -> Path:
        """Return where the result is once the stage is complete."""
        return result_file(self.folder, self.number, self.name)

    def was_started(self) -> bool:
        """Return whether a command was started whose end is not handled yet."""
        return self.errors.exists() or self.process.exists()

    def clear(self) -> None:
        """Remove a command's files, except its result."""
        for place in (self.output, self.status, self.process, self.errors):
            place.unlink(missing_ok=True)

    def keep_result(self) -> None:
        """Rename the output of a complete stage to its result, unless that was done before."""
        with explain_disk_errors(self.result), suppress(FileNotFoundError):
            self.output.replace(self.result)

    def _place(self, what: str) -> Path:
        return self.folder / f".{self.number}-{self.name}.{what}"


def start(stage: Stage, files: StageFiles, lock: int) -> subprocess.Popen[bytes]:
    """Start a stage's command in a session of its own; it inherits `lock`.

    Raises `DirectoryGone`, and `OutputFailed` where the disk has no room for its output.
    """
    places = (files.process, files.status, files.output, files.errors)
    command = [sys.executable, "-P", "-m", "packager", *arguments_of(stage, files.folder)]
    with explain_disk_errors(files.errors):
        files.clear()
        for place, data in ((files.errors, b""), *((one, _NOTHING_YET) for one in places[:2])):
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
            with os.fdopen(os.open(place, flags, 0o600), "wb") as file:
                file.write(data)
    directory = stage.directory.replace(JOB_FOLDER, str(files.folder))
    try:
        return subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "sh", *map(str, places), *command],
            cwd=directory,
            env={**os.environ, **stage.environment},
            stdin=subprocess.DEVNULL,
            pass_fds=(lock,),
            start_new_session=True,
        )
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise DirectoryGone(stage.name, directory) from error


def arguments_of(stage: Stage, folder: Path) -> list[str]:
    """Return the arguments of a stage's command: in its folder, for a program that reads it."""
    words = [one.replace(JOB_FOLDER, str(folder)) for one in stage.arguments]
    end = words.index("--") if "--" in words else len(words)
    options = words[:end]
    added = []
    if not _is_one_of(options, WITHOUT_FORMAT) and not _has(options, "--format"):
        added += ["--format", "json"]
    if _is_one_of(options, SHOW_PROGRESS) and not _has(options, "--progress"):
        added += ["--progress", "json"]
    return [*options, *added, *words[end:]]


def is_running(folder: Path) -> bool:
    """Return whether a stage's command runs, whichever runner started it."""
    return is_locked(folder / STAGE_LOCK_FILE)


def take_stage_lock(folder: Path) -> int | None:
    """Return a descriptor that holds the stage's lock; None while a command has it."""
    return take_lock(folder / STAGE_LOCK_FILE)


def send_signal(files: StageFiles, number: signal.Signals) -> bool:
    """Send a signal to a command and its processes; False where it has ended, or just begins.

    Its number is not reused while it holds the lock, which is checked first.
    """
    group = _number_in(files.process)
    if group is not None and group > 1 and is_running(files.folder):
        with suppress(ProcessLookupError):
            os.killpg(group, number)
            return True
    return False


def status_of(files: StageFiles) -> int | None:
    """Return the exit status of a command that has ended; None where it was killed."""
    return _number_in(files.status)


def _number_in(path: Path) -> int | None:
    with suppress(OSError):
        text = read_regular(path, _MAX_STATUS).strip()
        return int(text) if text.isdigit() else None
    return None


def _is_one_of(words: list[str], commands: frozenset[tuple[str, ...]]) -> bool:
    return any(tuple(words[: len(one)]) == one for one in commands)


def _has(words: list[str], option: str) -> bool:
    return any(one == option or one.startswith(f"{option}=") for one in words)
