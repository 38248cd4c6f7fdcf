"""Folders of jobs: their files and modes, and locks that end with a process.

Two locks show which processes are alive, even after crashes. `lock` belongs to the job's runner.
`stage.lock` is inherited by the command that runs for the stage, which goes on when its runner is
killed: the next runner waits for it before it starts the stage again.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from packager.addons.server.jobs.errors import job_files_lost, job_invalid
from packager.addons.server.jobs.values import RECORD_FILE
from packager.core.documents import shorten
from packager.core.files.atomic import explain_disk_errors, read_regular, sync_directory

WATCH_FILE = "watched"  # of the store: locked by who looks after the queue
LOG_FILE = "log.txt"
LOCK_FILE = "lock"
STAGE_LOCK_FILE = "stage.lock"
PROGRESS_FILE = "progress.json"
SECRETS_FILE = "secrets.json"  # names of a job's secrets
OURS = frozenset({LOG_FILE, LOCK_FILE, STAGE_LOCK_FILE, PROGRESS_FILE, RECORD_FILE, SECRETS_FILE})
_GIVEN_FILE = ".given.json"  # names of the job's input files
_MAX_GIVEN = 1024 * 1024


def make_private(directory: Path) -> None:
    """Create a directory with mode 0700; an existing one gets that mode."""
    with explain_disk_errors(directory):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if directory.stat().st_mode & 0o077:
            directory.chmod(0o700)


def make_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make a job's folder with its files, flushed to disk; remove it on failure."""
    try:
        with explain_disk_errors(folder):
            folder.mkdir(mode=0o700)
            for name, data in files.items():
                place = folder / _checked(name)
                place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                _write_private(place, data)
                sync_directory(place.parent)
            _write_private(folder / _GIVEN_FILE, json.dumps(sorted(files)).encode())
            sync_directory(folder)
            sync_directory(folder.parent)
    except BaseException:
        remove_folder(folder)
        raise


def write_secret_names(folder: Path, names: Iterable[str]) -> None:
    """Write the names of a job's secrets, which are nowhere else."""
    with explain_disk_errors(folder):
        _write_private(folder / SECRETS_FILE, json.dumps(sorted(names)).encode())


def read_secret_names(folder: Path) -> tuple[str, ...]:
    """Return the names of a job's secrets; raises `NotFound`."""
    try:
        return tuple(map(str, json.loads(read_regular(folder / SECRETS_FILE, _MAX_GIVEN))))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError) as error:
        raise job_files_lost(folder, error) from error


def given_files(folder: Path) -> dict[str, bytes]:
    """Return a job's input files by name, with their current content; raises `NotFound`."""
    try:
        names = json.loads(read_regular(folder / _GIVEN_FILE, _MAX_GIVEN))
        return {str(_checked(name)): (folder / name).read_bytes() for name in names}
    except (OSError, ValueError) as error:
        raise job_files_lost(folder, error) from error


def remove_folder(folder: Path) -> None:
    """Remove a job's folder; what cannot be removed now is swept later."""
    shutil.rmtree(folder, ignore_errors=True)


def take_lock(path: Path) -> int | None:
    """Return a descriptor that holds the lock, or None where another process holds it.

    It is closed in programs that this process starts, unless it is handed to them.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        # Shared: two that look at the same time do not take each other for the holder.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


@contextmanager
def watching(root: Path) -> Iterator[None]:
    """Mark this process as the queue's runner until the block ends."""
    make_private(root)
    descriptor = os.open(root / WATCH_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def is_watched(root: Path) -> bool:
    """Return whether a process looks after the queue."""
    try:
        descriptor = os.open(root / WATCH_FILE, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


def result_file(folder: Path, number: int, name: str) -> Path:
    """Return the path of a complete stage's result, its command's stdout; stages count from 1."""
    return folder / f"{number}-{name}.json"


def _checked(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    parts = path.parts
    if not parts or path.is_absolute() or ".." in parts or "\0" in name:
        raise job_invalid(
            f"invalid name of a job's file: {shorten(name, 80)}",
            hint="name it relative to the job's folder, within it",
        )
    if parts[0] in OURS or parts[0].startswith("."):
        raise job_invalid(
            f"a job's file may not be named {shorten(name, 80)}",
            hint="choose a name that the job's runner does not use",
        )
    return path


def _write_private(path: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        with suppress(OSError):  # some file systems cannot
            os.fsync(file.fileno())
