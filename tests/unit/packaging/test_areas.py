"""Each test file belongs to one area, and areas are named as pages of docs/."""

from __future__ import annotations

import pytest

from tests.support.areas import Area, area_of, files_by_area, read_areas
from tests.support.cases import cases_of
from tests.support.places import ROOT

cases = cases_of(__file__)

AREAS = read_areas()


def test_every_test_file_belongs_to_one_area() -> None:
    files = files_by_area(AREAS)

    assert sum(map(len, files.values())) == len(list((ROOT / "tests").rglob("test_*.py")))
    assert [name for name in files if not files[name]] == []


@pytest.mark.parametrize("area", AREAS.values(), ids=list(AREAS))
def test_an_area_has_a_page_and_its_patterns_match(area: Area) -> None:
    assert (ROOT / "docs" / f"{area.page}.md").is_file()
    assert [one for one in area.tests if not list(ROOT.glob(one))] == []


@cases("a_file_that_is_not_one_area_s_is_refused")
def test_a_file_that_is_not_one_area_s_is_refused(tests: tuple[str, ...], problem: str) -> None:
    areas = [Area(name=name, page="", tests=tests) for name in ("one", "two")]

    with pytest.raises(LookupError, match=problem):
        area_of("tests/unit/cli/test_hub.py", areas)
