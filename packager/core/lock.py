"""Lock file: what the targets of a project file were resolved to, byte for byte the same each time.

`packager lock` writes it beside the project file; `--locked` refuses what differs from it, and
builds on the revision and the base that it names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from pydantic import Field

from packager.core.strict_models import StrictDocument
from packager.core.text import json_text

LOCK_SCHEMA: Final = 1
FILE_NAME = "packager.lock"
NONE = "none"


class LockedModel(StrictDocument):
    """A model, or a draft's, as it was found."""

    source: str
    name: str
    revision: str = Field(default="", description="commit on a hub")
    files: str = Field(default="", description="digest of paths and contents where no commit is")


class LockedBase(StrictDocument):
    """A base image."""

    reference: str
    digest: str = Field(description="of the platform's manifest; empty for scratch")


class LockedTool(StrictDocument):
    """A tool that steps of the build run."""

    worker: str = Field(description="sha256 of its sources")
    requirements: str = Field(description="sha256 of what is installed")
    build: str = Field(description="cpu or cuda")
    image: str = Field(default="", description="digest of the image that it runs in")


class LockedTarget(StrictDocument):
    """One target of the project file."""

    fields: dict[str, Any] = Field(description="of the project file, defaults included")
    model: LockedModel
    draft: LockedModel | None = None
    adapters: dict[str, LockedModel] = Field(default_factory=dict)
    base: LockedBase
    tools: dict[str, LockedTool] = Field(default_factory=dict)
    data: dict[str, str] = Field(
        default_factory=dict, description="use of texts, such as calibration → their sha256"
    )


class ProjectLock(StrictDocument):
    """The lock file."""

    schema_version: Literal[1] = LOCK_SCHEMA
    targets: dict[str, LockedTarget]


def lock_text(lock: ProjectLock) -> str:
    """Return the file: sorted, without times, paths of this machine and versions of packager."""
    return json_text(_plain(lock.model_dump(mode="json", exclude_none=True))) + "\n"


def differences(locked: LockedTarget, now: LockedTarget) -> Iterator[str]:
    """Yield what differs, each with what is locked and what is found."""
    before, after = (dict(_leaves(one.model_dump(mode="json"))) for one in (locked, now))
    for place in sorted({*before, *after}):
        was, found = before.get(place, NONE), after.get(place, NONE)
        if was != found:
            yield f"{place} is {found}, locked is {was}"


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield the values of a document with their places, such as `tools.llmcompressor.worker`."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield from _leaves(one, f"{place}.{name}" if place else str(name))
    elif value not in (None, ""):
        yield place, str(value)


def _plain(value: Any) -> Any:
    """Return a document with its names in order."""
    if isinstance(value, Mapping):
        return {name: _plain(value[name]) for name in sorted(value)}
    return [_plain(one) for one in value] if isinstance(value, list) else value
