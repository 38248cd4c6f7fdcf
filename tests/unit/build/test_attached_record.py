"""What of a build record others may read."""

from __future__ import annotations

import pytest

from packager.build.attached_record import _base, _without_path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/ann/models/secret-plan", "./secret-plan"),
        ("~/heads/eagle", "./eagle"),
        ("../data/chats.jsonl", "./chats.jsonl"),
        ("work/of/ann", "./ann"),
        ("eagle3:/home/ann/head", "eagle3:./head"),
        ("org/name", "org/name"),
        ("eagle3:org/head@abc", "eagle3:org/head@abc"),
        ("default", "default"),
        ("s3://bucket/prefix/", "s3://bucket/prefix/"),
        ("s3://key:secret@bucket/prefix", "s3://***@bucket/prefix"),
        ("https://host/data?signature=abc", "https://host/data"),
        ("622:250", "622:250"),
    ],
)
def test_a_reference_loses_the_directories_of_this_machine(text: str, expected: str) -> None:
    assert _without_path(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("oci:/srv/ann/base:1", "oci:base:1"),
        ("registry.example/team/vllm:1", "registry.example/team/vllm:1"),
        ("localhost:5000/a/b/c:1", "localhost:5000/a/b/c:1"),
        ("scratch", "scratch"),
    ],
)
def test_a_base_image_keeps_its_name(text: str, expected: str) -> None:
    assert _base(text) == expected
