"""What is in the files that servers read when they start, as far as a change of it can be seen."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import stat
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from packager.addons.deploy.compose.spec import ComposeSpec
from packager.core.errors import PackagerError
from packager.core.files.atomic import explain_disk_errors, read_regular

KEY = ".key"  # a file of the state directory
_KEY_BYTES = 32
_MOST_BYTES = 16 << 20  # of a file that servers read


def with_contents(wanted: ComposeSpec, folder: Path) -> ComposeSpec:
    """Return the spec with a digest of its files of variables and secrets.

    It is keyed, since containers show it as a label, and a plain digest allows guessing passwords.
    """
    paths = (*wanted.env_files, *dict(sorted(wanted.secrets.items())).values())
    if not paths:
        return wanted
    key = _key(folder)
    made = hmac.new(key, digestmod=hashlib.sha256)
    for path in paths:
        made.update(hmac.digest(key, _seen_of(Path(path)), hashlib.sha256))
    return replace(wanted, contents=made.hexdigest()[:16])


def _key(folder: Path) -> bytes:
    """Return the key of this machine's digests; created at its first use."""
    place = folder / KEY
    with explain_disk_errors(place):
        if place.is_file() and len(key := place.read_bytes()) == _KEY_BYTES:
            return key
        folder.mkdir(parents=True, exist_ok=True)
        place.touch(mode=0o600)
        place.chmod(0o600)
        place.write_bytes(secrets.token_bytes(_KEY_BYTES))
        return place.read_bytes()


def _seen_of(path: Path) -> bytes:
    """Return what is in a file; of one that only the Engine may read, when it was written.

    A pipe is left alone: what is read of it here, the servers would not get.
    """
    try:
        return read_regular(path, _MOST_BYTES)
    except (OSError, PackagerError):
        with suppress(OSError):
            status = path.stat()
            if stat.S_ISREG(status.st_mode):
                return f"{status.st_mtime_ns} {status.st_size} {status.st_ino}".encode()
    return b""
