"""Work directories that survive an interrupted run, so that the next one resumes there.

One for each key: another input is another directory.  Only one run has it at a time.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from packager.core.files.atomic import explain_disk_errors
from packager.core.recipe import Step
from packager.optimize.steps.failures import StepDiskFull, StepFailed
from packager.optimize.steps.workspace import Workspace, remove_tree, remove_unless_held

KEPT_DAYS = 14


@contextmanager
def step_places(work_dir: Path, step: Step, *, restart: bool) -> Iterator[tuple[Path, Path | None]]:
    """Yield an empty directory for this run of a step, and the one of `kept_work`."""
    with (
        Workspace(work_dir) as workspace,
        kept_work(_unfinished(work_dir), step, restart=restart) as kept,
        explain_disk_errors(work_dir),
    ):
        try:
            yield workspace.directory(step.name), kept
        except StepDiskFull as error:
            error.hint = (
                f"free some space on the file system of {str(work_dir)!r}, "
                "or put the cache elsewhere with --cache-dir"
            )
            raise


def kept_bytes(work_dir: Path, step: Step) -> int:
    """Return the size of an interrupted run's work directory for this step."""
    name = _name(step)
    if not name:
        return 0
    sizes = []
    for path in (_unfinished(work_dir) / name).rglob("*"):
        with suppress(OSError):  # another run may be at it
            if path.is_file() and not path.is_symlink():
                sizes.append(path.stat().st_size)
    return sum(sizes)


def _unfinished(work_dir: Path) -> Path:
    return work_dir.with_name(f"{work_dir.name}-unfinished")


@contextmanager
def kept_work(root: Path, step: Step, *, restart: bool = False) -> Iterator[Path | None]:
    """Yield the work directory of a resumable step, with what an interrupted run left in it.

    None where the step keeps nothing, its inputs are not all known, or another run has it.
    It is removed when the run ends well, or never can.  `restart` empties it first.
    """
    name = _name(step)
    held = _held(root, name) if name else None
    if held is None:
        yield None
        return
    place, lock = held
    try:
        if restart:
            _empty(place)
        os.utime(place)
        yield place
        remove_tree(place)
    except StepFailed as error:
        if error.permanent:
            remove_tree(place)
        else:
            again = "the same command goes on where this one ended"
            error.hint = f"{error.hint}; {again}" if error.hint else again
        raise
    finally:
        os.close(lock)


def _name(step: Step) -> str:
    if not step.resumable or step.key is None:
        return ""
    from artifact_cache.key import key_of

    return key_of(step.key)


def _held(root: Path, name: str) -> tuple[Path, int] | None:
    """Create and lock the directory; None when another process holds it."""
    with explain_disk_errors(root):
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        _reap(root)
        place = root / name
        while True:
            place.mkdir(mode=0o700, exist_ok=True)
            lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                return None
            if _is_still(place, lock):
                return place, lock
            os.close(lock)  # its last holder removed it meanwhile


def _is_still(place: Path, descriptor: int) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(place.stat(), os.fstat(descriptor))
    return False


def _reap(root: Path) -> None:
    """Remove work directories that were not resumed for a long time."""
    oldest = time.time() - KEPT_DAYS * 24 * 3600
    for path in root.iterdir():
        with suppress(OSError):
            if path.stat().st_mtime > oldest:
                continue
            remove_unless_held(path)


def _empty(place: Path) -> None:
    for path in place.iterdir():
        if path.is_dir() and not path.is_symlink():
            remove_tree(path)
        else:
            path.unlink()
