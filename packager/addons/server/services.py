"""Services of operations and pages; made once by the command `serve`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from packager.addons.server.endpoints.lifecycle import Endpoints
from packager.addons.server.jobs.values import BackgroundJob, JobPage, JobQuery, NewJob
from packager.addons.server.resources import ResourceStore
from packager.addons.server.sagemaker.early_checks import ReadConfig
from packager.addons.server.sagemaker.settings import JobSettings

Document = Mapping[str, Any]
Operation = Callable[[Document], Awaitable[Document]]  # body → answer; raises `ApiRefusal`


class Jobs(Protocol):
    """A store of jobs; `packager.addons.server.jobs.store.JobStore` is one.

    Methods may block on the disk: call them in a thread, except `get` and `list_quickly`, which
    take less time than the thread would. `JobMissing` and `JobExists` of
    `packager.addons.server.jobs.errors` are raised.
    """

    def create(self, new: NewJob) -> BackgroundJob:
        """Keep the job and its files, queued; raises `JobExists`."""
        ...

    def get(self, kind: str, name: str) -> BackgroundJob:
        """Return the job; raises `JobMissing`."""
        ...

    def list(self, query: JobQuery) -> JobPage:
        """Return a page of jobs."""
        ...

    def list_quickly(self, query: JobQuery) -> JobPage | None:
        """Return a page of jobs; None where that takes longer than a millisecond or so."""
        ...

    def stop(self, kind: str, name: str) -> BackgroundJob:
        """Request the end of a job; one that has ended is unchanged."""
        ...

    def delete(self, kind: str, name: str) -> None:
        """Remove a job that has ended, with its folder; raises `UsageError` for others."""
        ...

    def tag(self, kind: str, name: str, tags: Mapping[str, str]) -> BackgroundJob:
        """Replace the tags of a job; raises `JobMissing`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeServices:
    """Stores and settings of one server."""

    jobs: Jobs
    state: Path  # folder of the server: its resources, its endpoints' files
    settings: JobSettings
    wake: Callable[[], None] = lambda: None  # looks at the queue now: a job was made
    read_config: ReadConfig = lambda _: None  # config.json of a model; called in a thread
    resources: ResourceStore  # all but jobs; its methods are called in a thread
    endpoints: Endpoints  # used in the event loop
