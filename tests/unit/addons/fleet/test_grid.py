"""A grid of requests: what it stands for, and what is no grid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from packager.addons.fleet.grid import expand, read_grid_or_plan, read_plan
from packager.core.errors import NotFound, UsageError
from packager.core.warmup import Grid
from tests.support.cases import cases

AXES = {"model": ["a", "b"], "instance": ["ml.g5.xlarge", "ml.inf2.xlarge"]}


def grid(**fields: Any) -> Grid:
    return Grid.model_validate(fields)


def test_every_combination_of_axes_and_shapes_is_a_request() -> None:
    shapes = [{"max_batch": 1}, {"max_batch": 8, "max_total_tokens": 2048}]

    found = list(expand(grid(defaults={"family": "vllm"}, axes=AXES, shapes=shapes)))

    assert len(found) == 8
    assert found[0] == {"family": "vllm", "model": "a", "instance": "ml.g5.xlarge", "max_batch": 1}
    assert found[1]["max_total_tokens"] == 2048


def test_an_axis_wins_over_a_default_and_a_shape_over_both() -> None:
    [found] = expand(
        grid(
            defaults={"max_batch": 1, "goal": "cost"},
            axes={"max_batch": [2]},
            shapes=[{"max_batch": 3}],
        )
    )

    assert found == {"max_batch": 3, "goal": "cost"}


@cases("excludes")
def test_an_exclude_leaves_out_what_matches_all_its_fields(
    exclude: dict[str, Any], left: tuple[str, ...]
) -> None:
    found = expand(grid(axes=AXES, exclude=[exclude]))

    assert [f"{one['model']} {one['instance'].split('.')[1]}" for one in found] == [*left]


@cases("refused")
def test_a_grid_that_says_something_else_than_was_meant_is_refused(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        list(expand(grid(**fields)))


@cases("no_grid")
def test_a_file_that_is_no_grid_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    place = tmp_path / "grid.toml"
    place.write_text(text)

    with pytest.raises(UsageError, match=message):
        read_grid_or_plan(str(place))


def test_a_plan_of_another_schema_is_not_guessed_at(tmp_path: Path) -> None:
    place = tmp_path / "plan.json"
    place.write_text('{"schema": 99, "jobs": []}')

    with pytest.raises(UsageError, match="a plan of schema 99, not 1 to 4"):
        read_plan(str(place))


def test_a_grid_is_no_plan(tmp_path: Path) -> None:
    place = tmp_path / "grid.toml"
    place.write_text("[axes]\nmodel = ['a']")

    with pytest.raises(UsageError, match="it is a grid"):
        read_plan(str(place))
    with pytest.raises(NotFound):
        read_plan(str(tmp_path / "none.json"))


def test_a_grid_in_yaml_is_the_same_grid(tmp_path: Path) -> None:
    file = tmp_path / "grid.yaml"
    file.write_text("defaults: {workload: 64:32}\naxes:\n  model: [a, b]\n  max_batch: [1, 8]\n")

    found = read_grid_or_plan(str(file))

    axes = {"model": ["a", "b"], "max_batch": [1, 8]}
    assert found == grid(defaults={"workload": "64:32"}, axes=axes)
    file.write_text("axes: {model: [a]}\naxes: {}\n")
    with pytest.raises(UsageError, match="cannot be parsed"):
        read_grid_or_plan(str(file))
