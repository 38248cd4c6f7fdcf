"""Steps that run in an image of their own, with inputs and result where the image has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from packager.core.events import ignore
from packager.core.image import BaseImage, Inline, Platform
from packager.core.model import ModelFile
from packager.core.recipe import StepInput
from packager.images.blobs import BlobReader
from packager.steps.docker import DockerExecutor
from tests.live.tiny_images import PYTHON
from tests.support.commandline import TINY
from tests.support.tool_steps import environments, model_files, step

pytestmark = pytest.mark.live

SERVING = BaseImage(
    reference="some serving image", digest="sha256:1", platform=Platform(), layers=(), config={}
)


@pytest.fixture
def loaded(tmp_path: Path, engine: str, python_base: str) -> Iterator[DockerExecutor]:
    asked: list[str] = []

    def load_image(base: BaseImage) -> str:
        asked.append(base.reference)
        return PYTHON

    yield DockerExecutor(
        environments(tmp_path),
        work_dir=tmp_path / "work",
        log_dir=tmp_path / "logs",
        read=BlobReader().chunks,
        on_event=ignore,
        base="there-is-no-such-image",
        load_image=load_image,
    )
    assert asked == ["some serving image"]


def test_a_step_finds_its_inputs_and_leaves_its_result_where_the_image_has_them(
    loaded: DockerExecutor, tmp_path: Path
) -> None:
    into = tmp_path / "into"
    into.mkdir()
    rendered = ModelFile(path="rendered/note.txt", role="other", content=Inline(b"rendered"))

    loaded.run(
        step(
            "copy",
            inputs={"model": StepInput(files=(*model_files(TINY), rendered))},
            parameters={"seed": 9},
            image=SERVING,
            places={"model": "/opt/packager/model", "output": "/opt/packager/compiled"},
        ),
        into,
    )

    assert json.loads((into / "config.json").read_text())["demo"] == 9
    assert (into / "rendered/note.txt").read_bytes() == b"rendered"
