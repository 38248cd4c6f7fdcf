"""References as the distribution grammar has them."""

from __future__ import annotations

import pytest

from packager.core.errors import UsageError
from packager.images.registry.reference import Reference, parse_reference
from tests.support.cases import cases

DIGEST = "sha256:" + "0a" * 32


@cases("split")
def test_a_reference_is_split(
    text: str, host: str, repository: str, tag: str | None, digest: str | None
) -> None:
    assert parse_reference(text) == Reference(
        host=host, repository=repository, tag=tag, digest=digest
    )


@cases("wrong")
def test_what_is_no_reference_is_refused_by_the_wrong_part(text: str, part: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_reference(text)

    assert part in refused.value.message
    assert refused.value.hint


@cases("explained")
def test_a_slip_is_explained(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_reference(text)

    assert refused.value.hint == hint


def test_a_digest_wins_over_a_tag() -> None:
    assert parse_reference(f"r.example/a:1@{DIGEST}").pointer == DIGEST
    assert parse_reference("r.example/a:1").pointer == "1"
    assert parse_reference("r.example/a").pointer == "latest"
