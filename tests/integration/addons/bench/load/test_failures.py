"""Every way in which an answer can fail, from a server that fails in it."""

from __future__ import annotations

import pytest

from packager.addons.bench.load.run import run_load
from packager.addons.bench.load.values import Level, LoadPlan, LoadRequest, LoadResult
from tests.support.cases import cases
from tests.support.llm_double import Behaviour, LlmDouble, Mode

PLAN = LoadPlan(level=Level(concurrency=1), requests=1, request_timeout_s=60.0)


def asked(
    mode: Mode, *, streamed: bool = True, plan: LoadPlan = PLAN, **behaviour: float
) -> LoadResult:
    body = {"messages": [{"role": "user", "content": "a b c"}], "max_tokens": 8, "stream": streamed}
    request = LoadRequest(endpoint="/v1/chat/completions", body=body)
    with LlmDouble(Behaviour(**behaviour)) as double:  # type: ignore[arg-type]
        (result,) = run_load(f"{double.url}/{mode}", "m", [request], plan).results
    return result


def test_a_whole_answer_has_its_text_its_chunks_and_its_counts() -> None:
    result = asked("ok")

    assert (result.failure, result.reason, result.status) == (None, "", 200)
    assert result.text == "w0 w1 w2 w3 w4 w5 w6 w7 "
    assert (result.input_tokens, result.output_tokens, len(result.chunks)) == (3, 8, 8)
    assert result.is_answered
    assert not result.is_empty


def test_an_answer_that_is_not_streamed_has_no_chunks() -> None:
    result = asked("ok", streamed=False)

    assert (result.text[:6], result.output_tokens, result.chunks) == ("w0 w1 ", 8, ())
    assert result.first_byte_s is not None


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
def test_an_empty_answer_is_an_answer(streamed: bool) -> None:
    result = asked("empty", streamed=streamed)

    assert result.is_answered
    assert result.is_empty
    assert (result.output_tokens, result.chunks) == (0, ())


@cases("failures")
def test_each_failure_has_a_kind(mode: Mode, failure: str, status: int | None, reason: str) -> None:
    result = asked(mode)

    assert (result.failure, result.status) == (failure, status)
    assert result.reason.startswith(reason)


@pytest.mark.parametrize("mode", ["cut", "ends", "not-json", "other-form", "error"])
def test_what_came_before_a_failure_is_kept(mode: Mode) -> None:
    result = asked(mode)

    assert result.text == "w0 w1 w2 w3 "
    assert len(result.chunks) == 4


@cases("whole_failures")
def test_a_whole_answer_fails_in_the_same_words(mode: Mode, failure: str) -> None:
    assert asked(mode, streamed=False).failure == failure


@pytest.mark.parametrize("mode", ["drip", "silent"])
def test_an_answer_that_takes_for_ever_ends_at_the_deadline(mode: Mode) -> None:
    """Each byte of the drip comes in time; all of them do not."""
    plan = LoadPlan(level=Level(concurrency=1), requests=1, request_timeout_s=0.3)

    result = asked(mode, plan=plan, drip_s=0.05)

    assert (result.failure, result.reason) == ("deadline", "it was not finished within 0.3 s")
    assert result.ended_s - result.sent_s >= 0.29


def test_first_bytes_that_come_late_are_an_answer() -> None:
    result = asked("slow-first", slow_s=0.2)

    assert result.is_answered
    assert result.chunks[0].at_s - result.sent_s >= 0.19


def test_a_server_that_is_not_there_is_lost() -> None:
    with LlmDouble() as gone:
        pass
    request = LoadRequest(endpoint="/v1/completions", body={"prompt": "a", "stream": True})
    plan = LoadPlan(level=Level(concurrency=2), requests=20)

    run = run_load(gone.url, "m", [request] * 20, plan)

    assert run.lost == "the connection failed (Connection refused)"
    assert len(run.results) < 6
    assert {one.failure for one in run.results} <= {"connection", "cancelled"}
