"""Logs of steps, kept in the state directory for later questions."""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from pathlib import Path

from packager.core.files.atomic import explain_disk_errors

KEPT = 50


def new_log(directory: Path, step: str) -> Path:
    """Return a path for a new log, and delete the oldest logs."""
    with explain_disk_errors(directory):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    known = sorted(directory.glob("*.log"))
    for old in known[: max(0, len(known) - KEPT + 1)]:
        with suppress(OSError):
            old.unlink()
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return directory / f"{moment}-{step}-{secrets.token_hex(3)}.log"
