"""Services for second opinions: a tool environment of this machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from packager.cli.plugins.tables import EXECUTORS
from packager.cli.wiring.caches import work_root
from packager.cli.wiring.settings import Settings
from packager.cli.wiring.steps import executor_context
from packager.cli.wiring.techniques import environments_for
from packager.core.ports import Executor
from packager.core.remote.hub import HubReader
from packager.core.remote.s3 import S3Reader
from packager.images.blobs import BlobReader

if TYPE_CHECKING:
    from packager.optimize.steps.workspace import Workspace


def opinion_executor(settings: Settings) -> Executor:
    """Return what runs the tool, always here: it takes seconds and gives no artifact."""
    reader = BlobReader((HubReader(), S3Reader()))
    context = executor_context(settings, environments_for(settings), reader)
    return EXECUTORS.find("local").make(replace(context, check=True, restart=False))


def opinion_workspace(settings: Settings) -> Workspace:
    """Return the directory for the predictor's answer."""
    from packager.optimize.steps.workspace import Workspace

    return Workspace(work_root(settings) / "work")
