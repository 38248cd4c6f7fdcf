"""Litter of a local store: what killed processes left, and what has been kept long enough."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from artifact_cache.stores.local import LocalStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Age limits: older files are removed; in seconds since the epoch."""

    any: float  # the start less the grace
    partial: float  # broken-off transfers
    quarantine: float
    failures: float


def sweep(
    store: LocalStore,
    keys: Container[str],
    aside: Container[Path],
    limits: Limits,
    *,
    dry_run: bool,
) -> int:
    """Remove what nobody will come back for; return the number of files.

    `keys` are of the entries that stay, and `aside` files that stay in quarantine.
    """
    root = store.root
    old = list(_old(root.glob("use/??/*"), limits.any, lambda path: path.name not in keys))
    old += _old(
        root.glob("stamp/??/*"), limits.any, lambda path: not store.blob_path(path.name).exists()
    )
    old += _old(root.glob("neg/*/??/*"), limits.failures)
    old += _old(root.glob("neg/*/??/*.json.*"), limits.any)
    old += _old(root.glob("pins/.*"), limits.any)
    old += _old(root.glob("partial/*"), limits.partial, _is_unlocked)
    old += _old(
        root.glob("quarantine/*"),
        limits.quarantine,
        lambda path: path not in aside,
    )
    old += _old(root.glob("*.new"), limits.any)
    stray = list(_old(root.glob("tmp/*"), limits.any, _is_unlocked))
    if not dry_run:
        for path in (*old, *stray):
            with suppress(OSError):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
        store.reap()
    return len(set(old)) + len(stray)


def _old(
    paths: Iterable[Path], limit: float, condition: Callable[[Path], bool] | None = None
) -> Iterator[Path]:
    for path in paths:
        with suppress(OSError):
            status = path.lstat()
            old = max(status.st_mtime, status.st_ctime) < limit
            if old and (condition is None or condition(path)):
                yield path


def _is_unlocked(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
