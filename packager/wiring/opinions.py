"""Services for second opinions: a tool environment of this machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from packager.images.blobs import BlobReader
from packager.plugins.tables import EXECUTORS
from packager.ports import Executor
from packager.remote.hub import HubReader
from packager.remote.s3 import S3Reader
from packager.wiring.caches import work_root
from packager.wiring.settings import Settings
from packager.wiring.steps import executor_context
from packager.wiring.techniques import environments_for

if TYPE_CHECKING:
    from packager.steps.workspace import Workspace


def opinion_executor(settings: Settings) -> Executor:
    """Return what runs the tool, always here: it takes seconds and gives no artifact."""
    reader = BlobReader((HubReader(), S3Reader()))
    context = executor_context(settings, environments_for(settings), reader)
    return EXECUTORS.find("local").make(replace(context, check=True, restart=False))


def opinion_workspace(settings: Settings) -> Workspace:
    """Return where the answer lies until it is read."""
    from packager.steps.workspace import Workspace

    return Workspace(work_root(settings) / "work")
