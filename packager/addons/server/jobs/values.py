"""A job's request and its state.

A job is a list of commands of packager. So it survives crashes: each command may be killed and run
again, because steps keep their results in the artifact cache. Users can run the same commands by
hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

JobKind = Literal["optimization", "benchmark", "recommendation", "command"]
JobStatus = Literal["queued", "running", "stopping", "completed", "failed", "stopped"]

ENDED: frozenset[JobStatus] = frozenset({"completed", "failed", "stopped"})
JOB_FOLDER = "{job}"  # placeholder of the job's folder in a stage's arguments

NOTES_FILE = "notes.txt"  # among the files of a job: lines that its log begins with
RECORD_FILE = "record.json"  # build record of an optimization job, in its folder


@dataclass(frozen=True, slots=True)
class Stage:
    """One command of packager, without the program's name.

    `{job}` in an argument stands for the folder of the job.  The runner adds `--format json`, and
    `--progress json` where the command shows progress, unless the arguments have these options.
    """

    name: str  # such as "train", "build"
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)  # beside the starter's; no secrets
    directory: str = JOB_FOLDER  # where it runs


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """Time limits of a job; None: unlimited."""

    run_s: int | None = None  # from its first stage on
    wait_s: int | None = None  # in the queue


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job to be made."""

    kind: JobKind
    name: str  # unique among the jobs of its kind
    document: Mapping[str, Any]  # the original request, of CreateOptimizationJob
    stages: tuple[Stage, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)  # put into its folder before it starts
    limits: JobLimits = JobLimits()
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretJob(NewJob):
    """A job to be made with secrets for its commands.

    They stay in the memory of the process that makes it; their names are in its folder.
    """

    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)  # variables


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundJob:
    """A job and its current state."""

    id: str  # 32 hexadecimal digits; never used again
    asked: NewJob  # `files` are left out: they are in the folder
    status: JobStatus
    folder: Path
    created: datetime  # UTC, as all times are
    modified: datetime
    started: datetime | None = None  # of the first stage, first attempt
    ended: datetime | None = None
    stage: int = 0  # how many stages are complete
    attempt: int = 0  # how often its runner was started
    failure: str = ""  # why it failed or was stopped; no secrets, 1,024 characters at most

    @property
    def kind(self) -> JobKind:
        """Return the kind of work."""
        return self.asked.kind

    @property
    def name(self) -> str:
        """Return the name, unique among jobs of its kind."""
        return self.asked.name

    @property
    def log(self) -> Path:
        """Return the log of every stage and attempt; it grows while the job runs."""
        return self.folder / "log.txt"

    @property
    def record(self) -> Path:
        """Return the build record, which is there once a build is complete."""
        return self.folder / RECORD_FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuery:
    """Which jobs are listed, in which order; everything left out lets all pass."""

    kind: JobKind | None = None
    name_contains: str = ""
    statuses: frozenset[JobStatus] = frozenset()
    created_after: datetime | None = None
    created_before: datetime | None = None
    modified_after: datetime | None = None
    modified_before: datetime | None = None
    sort_by: Literal["created", "name", "status"] = "created"
    descending: bool = True
    most: int = 100
    after: str = ""  # token of the page before


@dataclass(frozen=True, slots=True)
class JobPage:
    """Some jobs of a list."""

    jobs: tuple[BackgroundJob, ...]
    token: str = ""  # of the next page; "" where there is none
