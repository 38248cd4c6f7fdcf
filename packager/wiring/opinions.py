"""Who gives second opinions: a tool environment of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packager import plugins
from packager.adapters.blobs import BlobReader
from packager.adapters.remote.hub import HubReader
from packager.adapters.remote.s3 import S3Reader
from packager.ports import Executor
from packager.wiring.caches import work_root
from packager.wiring.settings import Settings, log_dir
from packager.wiring.techniques import environments_for

if TYPE_CHECKING:
    from packager.adapters.executors.workspace import Workspace


def opinion_executor(settings: Settings) -> Executor:
    """Return what runs the tool, always here: it takes seconds and gives no artifact."""
    executor: Executor = plugins.load(plugins.EXECUTORS, "local")(
        environments_for(settings),
        work_dir=work_root(settings) / "runs",
        log_dir=log_dir(settings),
        read=BlobReader((HubReader(), S3Reader())).chunks,
        on_event=settings.on_event,
    )
    return executor


def opinion_workspace(settings: Settings) -> Workspace:
    """Return where the answer lies until it is read."""
    from packager.adapters.executors.workspace import Workspace

    return Workspace(work_root(settings) / "work")
