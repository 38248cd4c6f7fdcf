"""What of a build record others may read."""

from __future__ import annotations

from packager.pipeline.attached_record import _without_path, published_base
from tests.support.cases import cases


@cases("a_reference_loses_the_directories_of_this_machine")
def test_a_reference_loses_the_directories_of_this_machine(text: str, expected: str) -> None:
    assert _without_path(text) == expected


@cases("a_base_image_keeps_its_name")
def test_a_base_image_keeps_its_name(text: str, expected: str) -> None:
    assert published_base(text) == expected
