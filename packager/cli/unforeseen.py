"""Failures that any line of a command may meet: what the system refuses, as errors with a status.

Whatever is none of them is a bug, and ends with status 70.
"""

from __future__ import annotations

import errno

from packager.core.documents import shorten
from packager.errors import OutputFailed, PackagerError, SystemLimit, UsageError, is_system_limit

_NO_OUTPUT = (errno.EBADF, errno.EIO)  # of a stream that is closed, or a terminal that went away


def explain_unforeseen(error: Exception) -> PackagerError:
    """Return the error that a user is told for an exception that nobody caught."""
    if is_system_limit(error):
        return SystemLimit(error)
    if isinstance(error, UnicodeError):
        text = getattr(error, "object", "")
        if isinstance(text, str) and any("\ud800" <= letter <= "\udfff" for letter in text):
            return UsageError(
                f"a name is not UTF-8: {shorten(text, 200)}",
                hint="rename it: documents and images hold names in UTF-8 alone",
            )
    if isinstance(error, OSError):
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return OutputFailed(
                "no space is left to write to",
                hint="free some space, on the output's disk or stdout's",
            )
        if error.errno in _NO_OUTPUT:
            return OutputFailed(
                "stdout or stderr cannot be written: it is closed",
                hint="redirect it, to /dev/null where nobody reads it",
            )
        if error.errno == errno.ENAMETOOLONG:
            return UsageError(
                f"a path is too long for this machine: {shorten(str(error.filename), 200)}",
                hint="give a shorter one",
            )
    return PackagerError(
        f"unexpected {type(error).__name__}: {error}",
        hint="this is a bug; run again with PACKAGER_DEBUG=1 and report it",
    )
