"""What a head was measured with goes where the head goes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from packager.core.tree_manifest import read_manifest
from tests.integration.images.trees.building import DRAFT, built
from tests.support.cases import read_tables

FIGURES: dict[str, Any] = read_tables(__file__)["figures"]


@pytest.fixture
def head(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DRAFT, tmp_path / "head"))


def test_figures_of_a_training_go_with_the_head(head: Path, tmp_path: Path) -> None:
    (head / "training.json").write_text(json.dumps({**FIGURES, "note": "of tomorrow"}))

    built(f"dir:{tmp_path}/tree", draft=str(head), base="scratch")

    manifest = read_manifest((tmp_path / "tree/packager-tree.json").read_bytes())
    assert json.loads((tmp_path / "tree/draft/training.json").read_bytes()) == FIGURES
    assert manifest.build["draft_training"] == FIGURES
    [listed] = [file for file in manifest.files if file.path == "draft/training.json"]
    assert listed.role == "draft"


@pytest.mark.parametrize("what", ["none", "text", "other", "long"])
def test_a_head_without_figures_is_built_as_it_is(head: Path, tmp_path: Path, what: str) -> None:
    place = head / "training.json"
    if what != "none":
        data = {"text": "{", "other": '{"epochs": 3}', "long": " " * 300_000 + json.dumps(FIGURES)}
        place.write_text(data[what])

    built(f"dir:{tmp_path}/tree", draft=str(head), base="scratch")

    assert not (tmp_path / "tree/draft/training.json").exists()
    manifest = read_manifest((tmp_path / "tree/packager-tree.json").read_bytes())
    assert "draft_training" not in manifest.build
