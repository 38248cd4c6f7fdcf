"""Builds of trees through the whole line, as the command makes them."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

from packager.cli.wiring.builds import services_for
from packager.cli.wiring.settings import settings_for
from packager.core.record import BuildRecord
from packager.core.request import BuildRequest
from packager.pipeline import pipeline
from tests.support.known import known

MODEL = "examples/tiny-llama"
DRAFT = "examples/tiny-llama-draft"


def built(*outputs: str, model: str | Path = MODEL, **asked: Any) -> BuildRecord:
    """Build and return the record; `asked` are fields of the request."""
    fields = {"instance": "local", **asked}
    request = BuildRequest(model=str(model), outputs=outputs, **fields)
    return pipeline.build(request, services_for(settings_for(request)))


def files_of_image(layout: Path) -> dict[str, bytes]:
    """Return the bytes of all files in the layers of a layout's image, as tarfile reads them."""
    blobs = layout / "blobs" / "sha256"
    index = json.loads((layout / "index.json").read_bytes())
    manifest = json.loads((blobs / index["manifests"][0]["digest"][7:]).read_bytes())
    found: dict[str, bytes] = {}
    for layer in manifest["layers"]:
        with tarfile.open(blobs / layer["digest"][7:]) as archive:
            for member in archive:
                if member.isfile():
                    file = known(archive.extractfile(member))
                    found[f"/{member.name}"] = file.read()
    return found
