"""Workloads by name and by counts."""

from __future__ import annotations

import pytest

from packager.core.errors import UsageError
from packager.core.workload import WORKLOADS, Workload, parse_workload
from tests.support.cases import cases
from tests.support.known import known


@cases("a_name_or_counts_give_lengths_and_requests_at_once")
def test_names_and_counts_give_lengths_and_load(
    name: str | None, counts: tuple[int, int, int]
) -> None:
    found = known(parse_workload(name))

    assert (found.input_tokens, found.output_tokens, found.concurrency) == counts


@pytest.mark.parametrize("text", ["0:1", "1:0", "1:1:0", "999999999:1", "1:1:999999999"])
def test_counts_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="out of range"):
        parse_workload(text)


@pytest.mark.parametrize("text", ["requests.jsonl", "./1000:200:3:4", "chats/", "1000:", "١:٢"])
def test_what_is_neither_is_a_file(text: str) -> None:
    assert parse_workload(text) is None


def test_a_server_must_accept_requests_as_long_as_95_of_100() -> None:
    spread = Workload(
        input_tokens=500, output_tokens=100, p95_input_tokens=3000, p95_output_tokens=90
    )

    assert (spread.tokens, spread.longest_tokens) == (600, 3100)
    assert Workload(input_tokens=500, output_tokens=100).longest_tokens == 600


def test_every_workload_that_is_not_plain_names_its_source() -> None:
    assert all(found.source for found in WORKLOADS.values() if found.concurrency)
