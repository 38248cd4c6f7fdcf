"""Files out of the artifact cache: whoever takes them compares them with their digest."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.core.errors import CachedFileChanged
from packager.images.blobs import BlobReader
from packager.images.daemon.sink import DockerSink
from packager.images.digest_index import DigestIndex
from packager.images.target import parse_target
from packager.images.tee import write_image
from tests.unit.images.test_cached_files import cached, flip, image_of, write
from tests.unit.images.test_docker import FakeEngine


def test_an_engine_that_was_sent_a_damaged_file_ends_as_damage_of_the_cache(tmp_path: Path) -> None:
    """The kernel sends files to an engine; it says that a layer is wrong, not why."""
    content = cached(tmp_path / "a")
    write(image_of(content), tmp_path / "before", tmp_path / "state")
    flip(content.path)
    said = "filesystem layer verification failed for digest sha256:ab"
    engine = FakeEngine({"error": said, "errorDetail": {"message": said}})
    sink = DockerSink(
        parse_target("docker:team/model:1"), reader=BlobReader(), connect=lambda: engine
    )
    index = DigestIndex(tmp_path / "state/digests")

    with pytest.raises(CachedFileChanged):
        write_image(image_of(content), [sink], reader=BlobReader(), index=index)

    assert engine.tagged == []
