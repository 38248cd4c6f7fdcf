"""References as the distribution grammar has them."""

from __future__ import annotations

import pytest

from packager.errors import UsageError
from packager.images.registry.reference import Reference, parse_reference

DIGEST = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    ("text", "host", "repository", "tag", "digest"),
    [
        ("ubuntu", "docker.io", "library/ubuntu", None, None),
        ("ubuntu:24.04", "docker.io", "library/ubuntu", "24.04", None),
        ("vllm/vllm-openai:v1", "docker.io", "vllm/vllm-openai", "v1", None),
        ("index.docker.io/ubuntu", "docker.io", "library/ubuntu", None, None),
        ("localhost/a:1", "localhost", "a", "1", None),
        ("localhost:5000/a/b:1", "localhost:5000", "a/b", "1", None),
        ("127.0.0.1:5000/a:1", "127.0.0.1:5000", "a", "1", None),
        ("[::1]:5000/a:1", "[::1]:5000", "a", "1", None),
        ("[::1]/a", "[::1]", "a", None, None),
        (f"ghcr.io/o/r@{DIGEST}", "ghcr.io", "o/r", None, DIGEST),
        (f"ghcr.io/o/r:t@{DIGEST}", "ghcr.io", "o/r", "t", DIGEST),
        ("Upper.example/a", "Upper.example", "a", None, None),
        ("r.example/a__b/c-d/e.f_g", "r.example", "a__b/c-d/e.f_g", None, None),
    ],
)
def test_a_reference_is_split(
    text: str, host: str, repository: str, tag: str | None, digest: str | None
) -> None:
    assert parse_reference(text) == Reference(
        host=host, repository=repository, tag=tag, digest=digest
    )


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "''"),
        ("r.example/", "''"),
        ("r.example/A", "'A'"),
        ("r.example/a//b", "'a//b'"),
        ("r.example/a_", "'a_'"),
        ("r.example/a:", "''"),
        ("r.example/a:b c", "'b c'"),
        ("r.example/a:" + "t" * 129, "is not a tag"),
        ("r.example/a@sha256:short", "'sha256:short'"),
        ("r.example/a@sha512:" + "0" * 128, "is not a digest"),
        ("r.example:99999/a", "'r.example:99999'"),
        ("-bad-.example/a", "'-bad-.example'"),
        ("[::1/a", "'[::1'"),
        ("r.example/" + "a" * 250, "longer than 255"),
        ("r.example/a\n", "'a\\n'"),
    ],
)
def test_what_is_no_reference_is_refused_by_the_wrong_part(text: str, part: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_reference(text)

    assert part in refused.value.message
    assert refused.value.hint


def test_upper_case_is_explained() -> None:
    with pytest.raises(UsageError) as refused:
        parse_reference("ghcr.io/Org/Model:1")

    assert refused.value.hint == "use lower case: 'org/model'"


def test_a_scheme_is_explained() -> None:
    with pytest.raises(UsageError) as refused:
        parse_reference("https://ghcr.io/org/model")

    assert refused.value.hint == "leave out https://"


def test_a_digest_wins_over_a_tag() -> None:
    assert parse_reference(f"r.example/a:1@{DIGEST}").pointer == DIGEST
    assert parse_reference("r.example/a:1").pointer == "1"
    assert parse_reference("r.example/a").pointer == "latest"
