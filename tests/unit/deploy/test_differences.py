"""Differences between what is there and what is wanted."""

from __future__ import annotations

from typing import Any

import pytest

from packager.deploy.sagemaker.differences import differences


@pytest.mark.parametrize(
    ("there", "wanted", "found"),
    [
        ({"a": 1, "of-aws": 2}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, [("a", 1, 2)]),
        ({}, {"a": {"b": 1}}, [("a", None, {"b": 1})]),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, [("a.b[1]", 2, 3)]),
        ({"a": [1]}, {"a": [1, 2]}, [("a", [1], [1, 2])]),
        ({"a": [{"b": 1, "more": 2}]}, {"a": [{"b": 1}]}, []),
    ],
)
def test_only_what_is_wanted_is_compared(
    there: dict[str, Any], wanted: dict[str, Any], found: list[Any]
) -> None:
    assert list(differences(there, wanted)) == found
