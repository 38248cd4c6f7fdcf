"""kill -9 while weights are quantized on their way: the next build sends what is missing, alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.scale import LONG
from tests.faults.test_killed_builds import Target, made_target, new_scene

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Target:
    return made_target(tmp_path_factory.mktemp("models"), "--quantize", "fp8")


@pytest.mark.parametrize("seed", range(100 if LONG else 20))
def test_a_stream_killed_at_any_moment_is_mended_by_the_next(
    target: Target, registry: str, tmp_path: Path, seed: int
) -> None:
    scene = new_scene(target, registry, tmp_path / "scene")

    status = scene.machine.kill(seed, 0.02, target.seconds * 1.3, *scene.build(target.model))

    scene.check(status)
