"""Errors of the operating system, of engines and libraries, with their exit statuses.

Any other exception is a bug, and ends with status 70.
"""

from __future__ import annotations

import errno
import os

from packager.core.documents import shorten
from packager.core.errors import (
    AccessDenied,
    NotFound,
    OutputFailed,
    PackagerError,
    SystemLimit,
    Unavailable,
    UsageError,
    is_system_limit,
)

_NO_OUTPUT = (errno.EBADF, errno.EIO)  # a closed stream, or a terminal that has gone
_OF_ENGINES = ("docker.errors", "requests.exceptions")
_RENAME = "rename it: documents and images hold names in UTF-8 alone"


def explain_unforeseen(error: Exception) -> PackagerError:
    """Return the error to print for an uncaught exception."""
    if is_system_limit(error):
        return SystemLimit(error)
    if isinstance(error, UnicodeError):
        text = getattr(error, "object", "")
        if isinstance(text, str) and any("\ud800" <= letter <= "\udfff" for letter in text):
            return UsageError(
                f"a name is not UTF-8: {shorten(text, 200)}",
                hint=_RENAME,
            )
    if type(error).__name__ == "PydanticSerializationError" and "surrogates not allowed" in str(
        error
    ):  # of pydantic-core, which keeps no text
        return UsageError("a name or a path is not UTF-8", hint=_RENAME)
    if type(error).__module__ in _OF_ENGINES:
        return _of_an_engine(error)
    if isinstance(error, OSError) and error.errno is not None:
        return _of_the_system(error)
    if isinstance(error, ConnectionError | TimeoutError):
        return Unavailable(f"a connection broke: {error or type(error).__name__}", hint="run again")
    if type(error).__module__ == "sqlite3":
        return OutputFailed(
            f"a database of packager's own cannot be used: {error}",
            hint="check its disk, and who may write to ~/.local/state and ~/.cache",
        )
    if isinstance(error, ImportError):
        from artifact_cache.distribution import find_requirement

        if needed := find_requirement((error.name or "").partition(".")[0]):
            return Unavailable(f"{needed} is not installed", hint=f"pip install '{needed}'")
        return Unavailable(
            f"packager's installation is incomplete: {error}", hint="install packager again"
        )
    return PackagerError(
        f"unexpected {type(error).__name__}: {error}",
        hint="this is a bug; run again with PACKAGER_DEBUG=1 and report it",
    )


def _of_an_engine(error: Exception) -> PackagerError:
    """Return the error for what docker-py, or the HTTP library that it uses, raised."""
    if not hasattr(error, "explanation"):
        return Unavailable(
            "the connection to the Docker Engine was lost",
            hint="see whether it still runs: `docker info`",
        )
    from packager.images.docker_engine import engine_reason

    status = getattr(getattr(error, "response", None), "status_code", 0)
    kind = AccessDenied if status in (401, 403) else Unavailable
    return kind(
        f"the Docker Engine refuses a request: {engine_reason(error)}",
        hint="see whether it answers: `docker info`; plug-ins of an engine may deny requests",
    )


def _of_the_system(error: OSError) -> PackagerError:
    """Return the error for a refusal of the operating system; with its file name, if any."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OutputFailed(
            "no space is left to write to", hint="free some space, on the output's disk or stdout's"
        )
    if error.errno == errno.EFBIG:
        return OutputFailed(
            "a file may not become so large", hint="allow more: `ulimit -f` shows how much"
        )
    if error.errno in _NO_OUTPUT and not error.filename:
        return OutputFailed(
            "stdout or stderr cannot be written: it is closed",
            hint="redirect it, to /dev/null where nobody reads it",
        )
    if error.errno in (errno.ENOENT, errno.ESTALE) and not _has_directory():
        return NotFound(
            "the working directory is gone", hint="change to one that is there: `cd DIR`"
        )
    if error.errno == errno.ENAMETOOLONG:
        return UsageError(
            f"a path is too long for this machine: {shorten(str(error.filename), 200)}",
            hint="give a shorter one",
        )
    if isinstance(error, ConnectionError | TimeoutError):
        return Unavailable(f"a connection broke: {error.strerror}", hint="run again")
    what = shorten(str(error.filename), 200) if error.filename else "a file or process"
    return OutputFailed(
        f"the system refuses {what}: {os.strerror(error.errno or 0).lower()}",
        hint="check its disk, its permissions and the limits of this process (`ulimit -a`)",
    )


def _has_directory() -> bool:
    try:
        os.getcwd()  # noqa: PTH109
    except OSError:
        return False
    return True
