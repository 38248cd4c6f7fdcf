"""The map of rooms is that of the tree, and CONTRIBUTING.md leads to it."""

from __future__ import annotations

import re
import tomllib

from tests.support.places import ROOT
from tests.support.reference_pages import is_page

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_map_names_every_room_and_add_on_from_the_top_floor_down() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    map_of_rooms = page[page.index("## Rooms") : page.index("## How bytes move")]
    told = re.findall(r"^\| `(\w+)` \|", map_of_rooms, re.MULTILINE)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    rooms, addons = [one["layers"] for one in contracts if one["type"] == "layers"]
    below = [name for floor in addons for name in floor.split(" | ")]

    assert told == [*rooms[1:], *below]


def test_every_page_that_is_linked_is_there() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", PAGE)

    assert len(links) > 10
    assert [link for link in links if not is_page(ROOT / link)] == []
