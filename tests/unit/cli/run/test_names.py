"""Names of runs, containers and images."""

from __future__ import annotations

import pytest

from packager.cli.run.names import check_name, container_name, image_name, run_name
from packager.core.errors import UsageError
from packager.images.registry.reference import parse_reference
from tests.support.cases import cases


@cases("runs")
def test_a_run_is_named_after_the_last_part_of_its_model(served: str, name: str) -> None:
    assert run_name(served) == name
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "-x", "a b", "a/b", "x" * 64, "a\n", "ä"])
def test_a_name_that_docker_refuses_is_refused_first(name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a run"):
        check_name(name)


@cases("images")
def test_an_image_has_a_name_that_registries_take(name: str, image: str) -> None:
    assert image_name(name) == image
    assert parse_reference(image).tag == "latest"


def test_a_container_has_the_name_of_its_run_alone() -> None:
    assert container_name("tiny") == "packager-run-tiny"
