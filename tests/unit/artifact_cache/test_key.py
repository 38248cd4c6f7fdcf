"""A key is a hash of unambiguous bytes, and a manifest one of a set of files."""

from __future__ import annotations

from typing import Any

import pytest

from artifact_cache.key import key_of_plain, manifest_digest

A = "a" * 64
B = "b" * 64


def test_the_hashed_bytes_are_the_prefix_and_sorted_json() -> None:
    # printf 'packager-key-v1\n{"a":"\xc3\xa9","b":[1,true,null]}' | sha256sum
    assert (
        key_of_plain({"b": [1, True, None], "a": "é"})
        == "c960145ac97cf8ba84a3eeb7f6c3cdaf818522a8bcbd731e3a82e3dd3ba0a1e7"
    )


@pytest.mark.parametrize(
    "ambiguous",
    [
        pytest.param({"learning_rate": 0.1}, id="float"),
        pytest.param({"name": "cafe\u0301"}, id="not NFC"),
        pytest.param({"seed": 2**53}, id="beyond doubles"),
        pytest.param({1: "x"}, id="name that is no text"),
    ],
)
def test_what_two_systems_write_differently_has_no_key(ambiguous: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        key_of_plain(ambiguous)


def test_a_manifest_is_a_set_of_files() -> None:
    one, two = ("a.safetensors", 1, A), ("b.safetensors", 2, B)

    assert manifest_digest([one, two]) == manifest_digest([two, one])
    assert manifest_digest([one]) != manifest_digest([one, two])
    assert manifest_digest([("c.safetensors", 1, A)]) != manifest_digest([one])
    with pytest.raises(ValueError, match="stands twice"):
        manifest_digest([one, one])
