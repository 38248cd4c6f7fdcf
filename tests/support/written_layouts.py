"""Layouts that a command has written, read as documents and files."""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.known import known


@dataclass(frozen=True, slots=True)
class WrittenLayout:
    """The first image of a layout."""

    root: Path

    @property
    def index(self) -> dict[str, Any]:
        return dict(json.loads((self.root / "index.json").read_bytes()))

    @property
    def digest(self) -> str:
        return str(self.index["manifests"][0]["digest"])

    @property
    def manifest(self) -> dict[str, Any]:
        return self.document(self.digest)

    @property
    def config(self) -> dict[str, Any]:
        return self.document(self.manifest["config"]["digest"])

    @property
    def layers(self) -> list[Path]:
        """Return the files of its layers, the lowest first."""
        return [self.blob(layer["digest"]) for layer in self.manifest["layers"]]

    def blob(self, digest: str) -> Path:
        return self.root / "blobs" / "sha256" / digest.removeprefix("sha256:")

    def document(self, digest: str) -> dict[str, Any]:
        return dict(json.loads(self.blob(digest).read_bytes()))


def files_in(layers: list[Path]) -> dict[str, tuple[int, bytes]]:
    """Return the mode and the content of each file that tars hold, by Python's reader."""
    found = {}
    for path in layers:
        with tarfile.open(path) as archive:
            for member in archive:
                if member.isreg():
                    content = known(archive.extractfile(member))
                    found[member.name] = (member.mode, content.read())
    return found
