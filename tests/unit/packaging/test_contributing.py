"""The map of CONTRIBUTING.md is that of the tree."""

from __future__ import annotations

import re
import tomllib

from tests.support.places import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_map_names_every_package_from_the_top_floor_down() -> None:
    told = []
    for row in re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", PAGE, re.MULTILINE):
        told += re.findall(r"`(\w+)`", row)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = [one["layers"] for one in contracts if one["type"] == "layers"]
    floors = [floor.split(" | ") for floor in layers]

    assert sorted(told) == sorted(name for floor in floors for name in floor)
    heights = {name: height for height, floor in enumerate(floors) for name in floor}
    assert [heights[name] for name in told] == sorted(heights[name] for name in told)


def test_every_page_that_is_linked_is_there() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", PAGE)

    assert len(links) > 30
    assert [link for link in links if not (ROOT / link).exists()] == []
