"""One tiny model in every place that models come from, and the sources that read it there.

A module that imports the fixture `place` has a directory, a hub that serves it once it is
published, and an empty cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from packager.core.image import RemoteRange
from packager.core.model import ModelFiles
from packager.models.hub import HubSource
from packager.models.hub_stream import HubStreamSource
from packager.models.local import LocalSource
from packager.models.reference import parse_model_reference
from tests.support.doubles.fake_hub import FakeHub
from tests.support.doubles.models import write_model
from tests.support.places import files_below

SHARD = "model-00002-of-00003.safetensors"


@dataclass(frozen=True, slots=True)
class Place:
    """A model's directory, the hub that has it as `org/name`, and a cache."""

    model: Path
    hub: FakeHub
    cache: Path

    def publish(self, files: Path | Mapping[str, bytes] | None = None, **options: Any) -> str:
        """Add a commit to the hub and return it: the directory as it is, or other files."""
        return self.hub.add("org/name", files or self.model, **options)

    def publish_with(self, more: Mapping[str, bytes]) -> str:
        """Publish the directory with more files, or with others."""
        return self.publish({**files_below(self.model), **more})

    def facts(
        self, reference: str = "org/name", *, token: str | bool = "hf_right", **asked: bool
    ) -> ModelFiles:
        """Read the model as one that is downloaded."""
        source = HubSource(endpoint=self.hub.url, cache_dir=self.cache, token=token, **asked)
        return source.facts(parse_model_reference(reference))

    def headers(self) -> ModelFiles:
        """Read what a plan needs of the model."""
        return self.facts(headers_only=True)

    def stream(self, **asked: bool) -> ModelFiles:
        """Read the model as one whose weights stay on the hub."""
        source = HubStreamSource(
            endpoint=self.hub.url, cache_dir=self.cache, token=self.hub.token, **asked
        )
        return source.facts(parse_model_reference("hf://org/name"))

    def local(self) -> ModelFiles:
        """Read the directory itself."""
        return LocalSource().facts(parse_model_reference(str(self.model)))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A model of shards that are longer than what is read of a header at first."""
    model = write_model(tmp_path / "model", hidden_size=256, intermediate_size=512)
    with FakeHub() as hub:
        yield Place(model, hub, tmp_path / "hub-cache")


def blob(found: ModelFiles, path: str) -> Path:
    """Return where a file of a downloaded model lies."""
    content = next(file.content for file in found.files if file.path == path)
    return Path(content.path)  # type: ignore[union-attr]


def content(found: ModelFiles, path: str) -> RemoteRange:
    """Return where a file lies that was not downloaded."""
    (file,) = [file for file in found.files if file.path == path]
    assert isinstance(file.content, RemoteRange)
    return file.content
