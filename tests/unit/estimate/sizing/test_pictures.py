"""Tokens of pictures by families of processors; the live test compares 200 sizes of each."""

from __future__ import annotations

from typing import Any

import pytest

from packager.estimate.sizing.pictures import COUNTS, picture_tokens
from tests.support.cases import read_tables

TABLES = read_tables(__file__)


@pytest.mark.parametrize("case", TABLES["family"], ids=lambda case: str(case["config"]))
def test_a_family_counts_as_its_processor(case: dict[str, Any]) -> None:
    counted = [
        picture_tokens(case["config"], case["settings"], (width, height))
        for width, height in TABLES["sizes"]
    ]

    assert counted == case["tokens"]


def test_families_without_files_of_a_processor_have_usual_settings() -> None:
    assert all(picture_tokens({"model_type": name}, {}, (640, 480)) for name in COUNTS)


@pytest.mark.parametrize(
    ("config", "settings"),
    [
        ({"model_type": "unheard_of"}, {}),
        ({}, {}),
        ({"model_type": ["qwen2_vl"]}, {}),
    ],
)
def test_what_is_not_known_is_not_counted(config: dict[str, Any], settings: Any) -> None:
    assert picture_tokens(config, settings, (640, 480)) is None


@pytest.mark.parametrize("family", sorted(COUNTS))
@pytest.mark.parametrize(
    "hostile",
    [
        {"size": "large", "patch_size": -1, "merge_size": 0, "image_seq_length": []},
        {"size": {"shortest_edge": 0, "longest_edge": 0}, "max_patches": 10**9},
        {"image_grid_pinpoints": [[0, 0], "x"], "crop_size": None, "min_pixels": "1"},
        {"max_image_size": {"longest_edge": 0}, "image_seq_len": -5, "max_pixels": 10**30},
    ],
)
def test_hostile_settings_end_soon_and_without_a_fault(
    family: str, hostile: dict[str, Any]
) -> None:
    config = {"model_type": family, "vision_config": {"patch_size": 0, "image_size": "x"}}

    counted = picture_tokens(config, hostile, (99999, 1))

    assert counted is None or counted >= 0
