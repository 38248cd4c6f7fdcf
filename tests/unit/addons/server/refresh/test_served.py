"""Figures of a server's metrics, and when a head is taken back by them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from packager.addons.server.refresh.served import ServedFigures, WatchRules, figures_of, judge
from tests.support.cases import cases_of

cases = cases_of(__file__)

METRICS = """
# HELP vllm:spec_decode_num_drafts_total x
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 60.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 40.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 80.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 50.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 30.0
vllm:time_to_first_token_seconds_bucket{le="0.1"} 90.0
vllm:time_to_first_token_seconds_bucket{le="0.3"} 100.0
vllm:time_to_first_token_seconds_bucket{le="+Inf"} 100.0
vllm:inter_token_latency_seconds_bucket{le="0.01"} 0.0
vllm:inter_token_latency_seconds_bucket{le="+Inf"} 10.0
http_requests_total{handler="/v1/chat/completions",method="POST",status="2xx"} 95.0
http_requests_total{handler="/v1/chat/completions",method="POST",status="5xx"} 5.0
http_requests_total{handler="/ping",method="GET",status="5xx"} 50.0
"""
GOOD = ServedFigures(
    requests=400, errors=1, drafts=4000, accepted=4000, spread=1.0, first_p95_s=0.1, each_p95_s=0.02
)
RULES = WatchRules()


def test_figures_are_read_over_all_engines() -> None:
    found = figures_of(METRICS)

    assert found is not None
    assert (found.requests, found.errors, found.drafts, found.accepted) == (100, 5, 100, 80)
    assert found.length == pytest.approx(1.8)
    assert found.spread == pytest.approx((0.5 + 3 * 0.3 - 0.8**2) ** 0.5)
    assert found.first_p95_s == pytest.approx(0.2)
    assert found.each_p95_s == pytest.approx(0.01)


@pytest.mark.parametrize("text", ["", "<html>", "sglang:spec_accept_length 2\n", "vllm:x{ 1\n"])
def test_other_texts_have_no_figures(text: str) -> None:
    assert figures_of(text) is None


@cases("verdicts")
def test_a_head_stays_unless_it_is_worse(
    new: dict[str, Any], seconds: float, verdict: str, restarts: int, answers: bool
) -> None:
    found = replace(GOOD, **new)

    told = judge(GOOD, found, RULES, seconds=seconds, restarts=restarts, answers=answers)

    assert told[0] == verdict
    assert bool(told[1]) == (verdict == "worse" or seconds >= RULES.longest_s)


def test_without_figures_only_restarts_and_silence_decide() -> None:
    def told(seconds: float, **more: Any) -> str:
        asked: dict[str, Any] = {"restarts": 0, "answers": True, **more}
        return judge(None, None, RULES, seconds=seconds, **asked)[0]

    assert told(700) == "goes on"
    assert told(3700) == "well"
    assert told(10, restarts=1) == told(700, answers=False) == "worse"
