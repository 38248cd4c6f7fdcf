"""Questions to servers, and addresses that are none."""

from __future__ import annotations

import pytest

from packager.cli.serving.openai import Server
from packager.core.errors import UsageError
from packager.core.probes import ProbeResponse, probe_request
from packager.core.samples import Sample


def test_time_for_a_token_counts_tokens_and_not_chunks() -> None:
    assert ProbeResponse(tokens=6, chunks=2, first_s=1.0, last_s=1.5).tpot_s == 0.1
    assert ProbeResponse(tokens=1, chunks=1, first_s=1.0, last_s=1.0).tpot_s is None


@pytest.mark.parametrize("address", ["ftp://host", "http://", "http://host:port", "http://[::1"])
def test_an_address_that_is_none_is_refused_without_being_repeated(address: str) -> None:
    with pytest.raises(UsageError, match="the server's address") as caught:
        Server(address)

    assert address not in caught.value.message


def test_a_question_says_which_it_was() -> None:
    assert probe_request(Sample(prompt="word " * 40), 4).shown == f"…{'word ' * 12}".rstrip()
