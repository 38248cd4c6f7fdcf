"""What a search found, in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from packager.bench.page_tables import boundary_words
from packager.core.bench import Boundary


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            {"feasible": 8, "infeasible": 9}
            | {"breach": "request_latency", "breach_value": 12345.6},
            "up to 8 requests at once are within the limits; 9 are not, by client latency "
            "(p99 12,346 ms).",
        ),
        (
            {"feasible": 1, "infeasible": 2}
            | {"breach": "request_error_rate", "breach_value": 2.5},
            "up to 1 request at once is within the limits; 2 are not, by failed requests (2.5 %).",
        ),
        (
            {"feasible": 256},
            "up to 256 requests at once are within the limits.",
        ),
        (
            {"feasible": None, "infeasible": 1, "breach": "time_to_first_token"},
            "no load that was tried is within the limits; 1 is not, by first token.",
        ),
        (
            {"what": "knee", "feasible": 8, "infeasible": 11},
            "the knee is at 8 requests at once: more adds latency, not speed.",
        ),
        (
            {"what": "knee", "feasible": None},
            "no knee was found: more requests at once still added speed, or got no answer.",
        ),
    ],
    ids=["boundary", "errors", "no failure", "no pass", "knee", "no knee"],
)
def test_a_search_ends_in_a_sentence(found: dict[str, Any], words: str) -> None:
    assert boundary_words(Boundary(**({"what": "max-concurrency"} | found))) == words
