"""Errors of jobs."""

from __future__ import annotations

from pathlib import Path

from packager.core.documents import shorten
from packager.core.errors import (
    EXIT_INTERRUPTED,
    NotFound,
    PackagerError,
    StepFailed,
    Unavailable,
    UsageError,
)


class JobMissing(NotFound):
    """No job has this name."""

    def __init__(self, kind: str, name: str) -> None:
        of_kind = f"{kind} job" if kind else "job"
        super().__init__(
            f"there is no {of_kind} {shorten(name, 80)}",
            hint="`packager jobs ls` lists what there is",
        )


class JobExists(UsageError):
    """A job of this kind has the name already."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(
            f"the name {shorten(name, 80)} is that of another {kind} job",
            hint="choose another name, or delete that job with `packager jobs delete`",
        )


class JobRunning(UsageError):
    """The job is still running, and the operation needs an ended one."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(
            f"{kind} job {shorten(name, 80)} has not ended",
            hint=f"end it first: `packager jobs stop {name}`",
        )


class JobAmbiguous(UsageError):
    """Jobs of several kinds have the name."""

    def __init__(self, name: str, kinds: tuple[str, ...]) -> None:
        super().__init__(
            f"jobs of several kinds are named {shorten(name, 80)}: {', '.join(kinds)}",
            hint=f"say which one: `--kind {kinds[0]}`",
        )


class JobInvalid(UsageError):
    """The job cannot be stored as requested."""


class PageTokenInvalid(UsageError):
    """The token of a page is not one of this list."""

    def __init__(self) -> None:
        super().__init__(
            "the token of the next page is not one of this list",
            hint="ask for the first page again, with the same order",
        )


class RunnerNotStarted(Unavailable):
    """The system cannot start another process."""

    def __init__(self, error: OSError) -> None:
        super().__init__(
            f"no runner of a job can be started: {(error.strerror or str(error)).lower()}",
            hint="look at the memory of this machine and at `ulimit -u`; it is tried again",
        )


class JobFilesLost(NotFound):
    """Input files of a job are missing from its folder."""

    def __init__(self, folder: Path, error: Exception) -> None:
        super().__init__(
            f"the files of the job in {str(folder)!r} cannot be read: {error}",
            hint="make the job anew",
        )


class DirectoryGone(NotFound):
    """The directory that a stage shall run in is not there."""

    def __init__(self, stage: str, directory: str) -> None:
        super().__init__(
            f"the directory {directory!r} that stage {stage!r} runs in cannot be entered",
            hint="make it again, and the job anew",
        )


class JobFailed(StepFailed):
    """A job that was waited for has failed."""

    def __init__(self, kind: str, name: str, failure: str) -> None:
        super().__init__(
            f"{kind} job {shorten(name, 80)} has failed: {failure}",
            hint=f"`packager jobs logs {name}` shows what it did",
        )


class JobStopped(PackagerError):
    """A job that was waited for was stopped before its end."""

    exit_code = EXIT_INTERRUPTED

    def __init__(self, kind: str, name: str, why: str) -> None:
        super().__init__(
            f"{kind} job {shorten(name, 80)} was stopped: {why}",
            hint=f"`packager jobs logs {name}` shows what it did",
        )


class StillRunning(Unavailable):
    """A job did not end within the wait's time limit."""

    def __init__(self, kind: str, name: str, status: str, waited_s: float) -> None:
        super().__init__(
            f"{kind} job {shorten(name, 80)} is {status} after {waited_s:g} s",
            hint=f"wait for longer, or end it with `packager jobs stop {name}`",
        )
