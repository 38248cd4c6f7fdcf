"""The manifest of a model's tree: every file, and how a container mounts them.

It is the last file that is written: a tree without it is not complete.  Its bytes depend on the
files and the build alone, so that their sha256 names the tree.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from packager.core.documents import NotStrict, parse_model
from packager.core.image import ModelTree, TreeRole
from packager.core.strict_models import StrictDocument

MANIFEST = "packager-tree.json"
MAX_MANIFEST_BYTES = 64 * 1024 * 1024


def _check_path(path: str) -> str:
    """Refuse a path that leads out of the tree."""
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or not path.isprintable():
        raise ValueError("it is not the path of a file in the tree")
    return path


class ListedFile(StrictDocument):
    """A file of the tree."""

    path: Annotated[str, AfterValidator(_check_path)] = Field(min_length=1, max_length=1024)
    size: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    role: TreeRole
    executable: bool = False


class TreeMount(StrictDocument):
    """A directory of the tree, and where a container looks for it."""

    tree: str  # relative to the tree; "." for all of it
    container: str


class TreeContainer(StrictDocument):
    """The container that serves the tree, and what it is told."""

    image: str = ""  # that the catalog names; "" where there is none
    family: str
    engine: str
    engine_version: str
    entrypoint: tuple[str, ...] = ()  # (): the image's own
    cmd: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    port: int


class TreeManifest(StrictDocument):
    """What is in a tree, and how it is served."""

    schema_version: Literal[1] = 1
    files: tuple[ListedFile, ...]  # by path
    mounts: tuple[TreeMount, ...]  # exactly one, if the image is configured by `env`
    container: TreeContainer
    build: dict[str, Any]  # as the label `dev.packager.record` of an image


def write_manifest(tree: ModelTree, digests: Mapping[str, str]) -> bytes:
    """Return the manifest's bytes; `digests` are the sha256 of the files, by path."""
    manifest = TreeManifest(
        files=tuple(
            ListedFile(
                path=file.path,
                size=file.size,
                sha256=digests[file.path],
                role=file.role,
                executable=file.executable,
            )
            for file in sorted(tree.files, key=lambda file: file.path)
        ),
        **tree.about,
    )
    document = manifest.model_dump(mode="json", exclude_defaults=True)
    text = json.dumps({"schema_version": 1, **document}, indent=1, ensure_ascii=True)
    return text.encode() + b"\n"


def read_manifest(data: bytes) -> TreeManifest:
    """Read a manifest, which may be anyone's; raise `NotStrict` where it is none."""
    if len(data) > MAX_MANIFEST_BYTES:
        raise NotStrict(f"it has more than {MAX_MANIFEST_BYTES} bytes")
    return parse_model(TreeManifest, data)
