"""Everything that can go wrong and be explained, with its exit code.

    PackagerError                 70  a bug, or a failure nobody foresaw
    ├── UsageError                 2  the command line or request file is wrong
    ├── PlanRejected               3  the plan cannot work; every finding is listed
    ├── SmokeFailed                4  the container did not start or did not answer
    ├── NotReproduced              5  a build from a record gave another digest
    ├── StepFailed                 6  a tool did not finish its work; the end of its log is shown
    ├── QualityRejected            7  quantizing cost more quality than was allowed
    ├── SpeculationRejected        7  a draft gains less than was asked for, or changes answers
    ├── BenchRejected            7, 9  limits are kept too seldom; slower than the baseline
    ├── NotCached                  8  something is not in the cache, and running it is not allowed
    │   └── LostFromCache              it was there when asked for, and could not be taken
    ├── ModelRefused              65  the model's files are broken or unsafe
    ├── CachedFileChanged         65  a file out of the artifact cache is not what was published
    ├── NotFound                  66  a model, base image, file or record is not there
    ├── Unavailable               69  a registry, hub or engine does not answer
    │   └── ToolUnavailable            a tool cannot be installed; the end of its log is shown
    ├── SystemLimit               71  this process may have no more memory, files or threads
    ├── OutputFailed              74  the result cannot be written: disk full, no permission
    ├── ProtocolFailed            76  a registry answered against its specification
    └── AccessDenied              77  credentials are missing or wrong

Codes from 64 up follow sysexits(3).  Messages are lower case without a full
stop and quote the user's value; the hint is a command or a choice.  Secrets
never reach a message: callers pass names and hosts, not headers or bodies,
whoever logs in is left out of the addresses in it, and what was sent as a
credential becomes `***` (`artifact_cache.secrets`).
"""

from __future__ import annotations

import errno
from collections.abc import Mapping

from artifact_cache.printable import hide_userinfo
from artifact_cache.secrets import hide_secrets
from packager.core.findings import Finding

EXIT_INTERRUPTED = 130


class PackagerError(Exception):
    """Base of all explained failures: a message, what to do next, an exit code.

    `code` names what happened more exactly than the class does: what nobody catches apart has a
    code and no class of its own.
    """

    exit_code = 70

    def __init__(
        self, message: str, *, hint: str = "", code: str = "", exit_code: int | None = None
    ) -> None:
        self.message = hide_secrets(hide_userinfo(message))
        self.hint = hide_secrets(hide_userinfo(hint))
        self.code = code or type(self).__name__
        if exit_code is not None:
            self.exit_code = exit_code
        super().__init__(self.message)


class UsageError(PackagerError):
    """The command line, request file or configuration asks for something meaningless."""

    exit_code = 2


class PlanRejected(PackagerError):
    """No plan can satisfy the request. Carries every finding, not only the first.

    `nearest` are changes to the command line, each of which was planned and fits.
    """

    exit_code = 3

    def __init__(self, findings: tuple[Finding, ...], nearest: tuple[str, ...] = ()) -> None:
        errors = [finding for finding in findings if finding.severity == "error"]
        first = errors[0] if errors else None
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        super().__init__(
            f"the plan is rejected: {first.message if first else 'no reason given'}{more}",
            hint=next((finding.hint for finding in errors if finding.hint), ""),
        )
        self.findings = findings
        self.nearest = nearest


class SmokeFailed(PackagerError):
    """A container was started and did not do what a serving container must."""

    exit_code = 4

    def __init__(self, message: str, *, hint: str = "", log: str = "", code: str = "") -> None:
        super().__init__(message, hint=hint, code=code)
        self.log = log


class NotReproduced(PackagerError):
    """A build from a record gave another digest than the record holds."""

    exit_code = 5


class StepFailed(PackagerError):
    """A step of the recipe failed. `permanent` means that trying again is pointless."""

    exit_code = 6
    permanent = False

    def __init__(self, message: str, *, hint: str = "", log: str = "", code: str = "") -> None:
        super().__init__(message, hint=hint, code=code)
        self.log = log


class QualityRejected(PackagerError):
    """The quantized model is farther from its base than allowed.

    `figures` is the quality report as a JSON object: `core.quality.QualityReport`.
    """

    exit_code = 7

    def __init__(self, message: str, *, hint: str = "", figures: Mapping[str, object]) -> None:
        super().__init__(message, hint=hint)
        self.figures = figures


class SpeculationRejected(PackagerError):
    """A draft does not do for its server what was asked for. The figures were printed."""

    exit_code = 7


class BenchRejected(PackagerError):
    """A server kept the limits less often than was demanded.

    `figures` is the report as a JSON object: `core.bench.BenchReport`.
    """

    exit_code = 7

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        figures: Mapping[str, object] | None = None,
        code: str = "",
        exit_code: int | None = None,
    ) -> None:
        super().__init__(message, hint=hint, code=code, exit_code=exit_code)
        self.figures = figures or {}


class NotCached(PackagerError):
    """A step would have to run, and the build was told that everything is in the cache."""

    exit_code = 8


class LostFromCache(NotCached):
    """A step's result was in the cache when it was looked up, and could not be taken then."""

    def __init__(self, step: str, reason: str) -> None:
        super().__init__(
            f"the result of step {step!r} cannot be taken from the cache: {reason}",
            hint="`packager cache explain --last` compares it with what is there; "
            "build where steps may run",
        )


class CachedFileChanged(PackagerError):
    """A file out of the artifact cache holds other bytes than were published, or cannot be read."""

    exit_code = 65

    def __init__(self, path: str, reason: str = "holds other bytes than were published") -> None:
        super().__init__(
            f"{path!r} out of the artifact cache {reason}",
            hint="`packager cache verify` reads every file there; look at the disk and the memory "
            "of this machine when it happens again",
        )


class ModelRefused(PackagerError):
    """The model's files are incomplete, broken or unsafe to package."""

    exit_code = 65


class NotFound(PackagerError):
    """Something that the user named does not exist."""

    exit_code = 66


class Unavailable(PackagerError):
    """A service the build needs does not answer."""

    exit_code = 69
    retry_after_s = 0.0  # how long the service asks us to wait, where it says so


class ToolUnavailable(Unavailable):
    """A tool's environment cannot be made here."""

    def __init__(self, message: str, *, hint: str = "", log: str = "", code: str = "") -> None:
        super().__init__(message, hint=hint, code=code)
        self.log = log


class SystemLimit(PackagerError):
    """The machine gives this process no more memory, open files or threads."""

    exit_code = 71

    def __init__(self, error: BaseException) -> None:
        found = getattr(error, "errno", None)
        if found in (errno.EMFILE, errno.ENFILE):
            what, hint = "open files", "allow more: `ulimit -n` shows how many, `ulimit -n 1024`"
        elif found == errno.EAGAIN or isinstance(error, RuntimeError):
            what, hint = "threads or processes", "allow more: `ulimit -u` shows how many"
        else:
            what = "memory"
            hint = "`ulimit -v` and the limit of its container say how much it may have"
        super().__init__(f"this machine gives packager no more {what}", hint=hint)


def is_system_limit(error: BaseException) -> bool:
    """Return whether an exception says that the process may have no more of something."""
    if isinstance(error, OSError) and not isinstance(error, BlockingIOError):
        return error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
    text = str(error) if isinstance(error, (RuntimeError, ImportError)) else ""
    return isinstance(error, MemoryError) or any(
        words in text
        for words in ("can't start new thread", "failed to map segment", "cannot allocate memory")
    )


class OutputFailed(PackagerError):
    """The result cannot be written."""

    exit_code = 74


class ProtocolFailed(PackagerError):
    """A registry answered something its specification does not allow."""

    exit_code = 76


class AccessDenied(PackagerError):
    """A service wants credentials that are missing or wrong."""

    exit_code = 77
