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
            hint="choose another name, or delete that job with `packager jobs rm`",
        )


def job_running(kind: str, name: str) -> UsageError:
    """Return an error: the job is still running, and the operation needs an ended one."""
    return UsageError(
        f"{kind} job {shorten(name, 80)} has not ended",
        hint=f"end it first: `packager jobs stop {name}`",
        code="JobRunning",
    )


def job_ambiguous(name: str, kinds: tuple[str, ...]) -> UsageError:
    """Return an error: jobs of several kinds have the name."""
    return UsageError(
        f"jobs of several kinds are named {shorten(name, 80)}: {', '.join(kinds)}",
        hint=f"say which one: `--kind {kinds[0]}`",
        code="JobAmbiguous",
    )


def job_invalid(message: str, *, hint: str = "") -> UsageError:
    """Return an error: the job cannot be stored as requested."""
    return UsageError(message, hint=hint, code="JobInvalid")


def page_token_invalid() -> UsageError:
    """Return an error: the token of a page is not one of this list."""
    return UsageError(
        "the token of the next page is not one of this list",
        hint="ask for the first page again, with the same order",
        code="PageTokenInvalid",
    )


def runner_not_started(error: OSError) -> Unavailable:
    """Return an error: the system cannot start another process."""
    return Unavailable(
        f"no runner of a job can be started: {(error.strerror or str(error)).lower()}",
        hint="look at the memory of this machine and at `ulimit -u`; it is tried again",
        code="RunnerNotStarted",
    )


def job_files_lost(folder: Path, error: Exception) -> NotFound:
    """Return an error: input files of a job are missing from its folder."""
    return NotFound(
        f"the files of the job in {str(folder)!r} cannot be read: {error}",
        hint="make the job anew",
        code="JobFilesLost",
    )


class DirectoryGone(NotFound):
    """The directory that a stage shall run in is not there."""

    def __init__(self, stage: str, directory: str) -> None:
        super().__init__(
            f"the directory {directory!r} that stage {stage!r} runs in cannot be entered",
            hint="make it again, and the job anew",
        )


def job_failed(kind: str, name: str, failure: str) -> StepFailed:
    """Return an error: a job that was waited for has failed."""
    return StepFailed(
        f"{kind} job {shorten(name, 80)} has failed: {failure}",
        hint=f"`packager jobs logs {name}` shows what it did",
        code="JobFailed",
    )


def job_stopped(kind: str, name: str, why: str) -> PackagerError:
    """Return an error: a job that was waited for was stopped before its end."""
    return PackagerError(
        f"{kind} job {shorten(name, 80)} was stopped: {why}",
        hint=f"`packager jobs logs {name}` shows what it did",
        code="JobStopped",
        exit_code=EXIT_INTERRUPTED,
    )


def still_running(kind: str, name: str, status: str, waited_s: float) -> Unavailable:
    """Return an error: a job did not end within the wait's time limit."""
    return Unavailable(
        f"{kind} job {shorten(name, 80)} is {status} after {waited_s:g} s",
        hint=f"wait for longer, or end it with `packager jobs stop {name}`",
        code="StillRunning",
    )
