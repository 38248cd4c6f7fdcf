"""One builder per key: kernel locks on a machine, leases between machines.

A lock only saves work.  It carries no correctness: publishing is atomic with or
without it.  The kernel releases it with its holder, so there is no expiry that
could give it to two, and nothing to clean up.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout

from artifact_cache.store import Address

POLL_S = 0.02


class Lease(Protocol):
    """Lease that keeps machines from doing the same work at once, as far as possible."""

    def hold(
        self,
        address: Address,
        wait_s: float,
        on_wait: Callable[[str], None],
        is_published: Callable[[], bool],
    ) -> AbstractContextManager[bool]:
        """Acquire the lease for the block, which runs anyway; yields False where another has it.

        Waits while another holds it, but no longer than until `is_published`,
        or for `wait_s`; calls `on_wait` once, with who holds it, before.  Never
        raises: a lease that cannot be had, or is lost, costs work done twice.
        """
        ...


class KeyLocks:
    """Locks in one directory, a file per key. Lock files are never removed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @contextmanager
    def hold(self, key: str, wait_s: float, on_wait: Callable[[str], None]) -> Iterator[bool]:
        """Acquire the key's lock; yield False when another held it for all of `wait_s`.

        Calls `on_wait` once, with who holds it, before waiting.  Raises OSError
        where there can be no locks.
        """
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._directory / f"{key}.lock"
        lock = FileLock(path)
        held = _acquired(lock, 0)
        if not held:
            on_wait(_holder(path))
            held = _acquired(lock, wait_s)
        try:
            yield held
        finally:
            if held:
                with suppress(OSError):  # the kernel lets go when the process ends
                    lock.release()


def flock_within(descriptor: int, how: int, wait_s: float) -> bool:
    """Lock an open file, shared or alone; False when others held it for all of `wait_s`."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        except OSError:  # no locks on this file system: then nobody collects
            return how == fcntl.LOCK_SH
        else:
            return True


def _acquired(lock: FileLock, timeout_s: float) -> bool:
    try:
        lock.acquire(timeout=timeout_s, poll_interval=POLL_S)
    except Timeout:
        return False
    return True


def _holder(path: Path) -> str:
    """Return the holding process, where the kernel tells; it is for people only."""
    try:
        status = path.stat()
        device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
        held = f"{device}:{status.st_ino}"
        for line in Path("/proc/locks").read_text("ascii").splitlines():
            fields = line.split()
            if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == held:
                return f"process {fields[4]}"
    except OSError:
        pass
    return "another process"
