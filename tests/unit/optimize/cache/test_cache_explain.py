"""A miss names the model's file and the field, for a model that nobody has read yet, too."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from packager.core.cached import difference_name
from packager.optimize.cache.report import neighbour_lines
from tests.support.cases import cases
from tests.support.commandline import TINY


@cases("difference")
def test_a_difference_is_named_in_the_users_words(pointer: str, name: str) -> None:
    assert difference_name(pointer) == name


def test_another_model_does_not_fill_the_screen() -> None:
    differences = [
        {"pointer": f"/graph/architecture/field{n}", "wanted": "1", "found": "2"} for n in range(50)
    ]
    told: dict[str, Any] = {
        "key": "a" * 64,
        "labels": {},
        "built_at": 0,
        "differences": differences,
    }

    lines = list(neighbour_lines(told, 0.0))

    assert len(lines) == 22
    assert lines[-1] == "    and 30 more; --format json has all of them"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TINY, tmp_path / "model"))
