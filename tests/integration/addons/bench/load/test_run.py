"""A load from its first request to its last: what is sent when, and what ends it."""

from __future__ import annotations

import asyncio
import gc
import itertools
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest

from packager.addons.bench.load import client as client_module
from packager.addons.bench.load import run as run_module
from packager.addons.bench.load.run import _is_frozen_by_others, run_load
from packager.addons.bench.load.tokenizer import TokenizerFailed
from packager.addons.bench.load.values import Level, LoadPlan, LoadRequest, LoadResult, LoadRun
from packager.core.probes import probe_request
from packager.core.samples import Message, Sample
from tests.support.cases import cases
from tests.support.doubles.speculating import SpeculatingServer
from tests.support.llm_double import Behaviour, LlmDouble, Record

WORDS = "one two three four five six seven"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters of the doubles stand still at once."""
    monkeypatch.setattr(run_module, "_SETTLE_S", 0.0)


def prompts(count: int, *, tokens: int = 4) -> list[LoadRequest]:
    return [
        LoadRequest(
            endpoint="/v1/completions",
            body={"prompt": f"{number} {WORDS}", "max_tokens": tokens, "stream": True},
            input_tokens=8,
        )
        for number in range(count)
    ]


def plan(concurrency: int = 1, **more: float | None) -> LoadPlan:
    return LoadPlan(level=Level(concurrency=concurrency), **more)  # type: ignore[arg-type]


def loaded(
    requests: Iterable[LoadRequest], load: LoadPlan, behaviour: Behaviour | None = None, **more: Any
) -> tuple[LoadRun, list[Record]]:
    """Run a load against a double that behaves so; return what became of it, on both sides."""
    modes = more.pop("modes", ())
    with LlmDouble(behaviour, modes=modes) as double:
        return run_load(double.url, "m", requests, load, **more), double.records()


def test_what_was_there_before_a_load_is_not_searched_for_garbage_meanwhile() -> None:
    gc.unfreeze()  # what was collected of the tests, which stays frozen
    _is_frozen_by_others.cache_clear()
    before = len(gc.get_objects())
    collected: list[int] = []

    def collect(_: LoadResult) -> None:
        collected.append(len(gc.get_objects()))

    loaded(prompts(1), plan(requests=1), on_result=collect)

    assert collected[0] < before / 2
    assert len(gc.get_objects()) > before / 2
    assert gc.get_freeze_count() == 0


def test_each_request_is_sent_once_and_its_result_stands_in_order() -> None:
    done, records = loaded(prompts(12), plan(4, requests=12))

    assert [result.number for result in done.results] == list(range(12))
    assert sorted(record.body["prompt"] for record in records) == sorted(
        request.body["prompt"] for request in prompts(12)
    )
    assert {record.body["model"] for record in records} == {"m"}
    assert all(result.sent_s <= result.chunks[0].at_s <= result.ended_s for result in done.results)
    assert (done.cancelled, done.lost) == (False, "")


def test_no_more_requests_run_than_the_level_says() -> None:
    _, records = loaded(prompts(12), plan(3, requests=12), Behaviour(ttft_s=0.01))

    assert max(record.running for record in records) <= 3


def test_times_of_chunks_are_not_before_the_server_sent_them() -> None:
    done, (record,) = loaded(prompts(1), plan(requests=1), Behaviour(ttft_s=0.02, itl_s=0.01))
    (result,) = done.results

    seen = [chunk.at_s - result.sent_s for chunk in result.chunks]
    sent = [at - record.came_s for at in record.sent_s]
    assert all(ours >= theirs for ours, theirs in zip(seen, sent, strict=True))


def test_a_request_is_sent_when_it_is_written_and_not_when_its_turn_came() -> None:
    """Opening connections is not the server's time. The clock goes a second when it is asked."""
    seconds = itertools.count()
    noted: list[float] = []

    async def send() -> LoadResult:
        def now() -> float:
            noted.append(float(next(seconds)))
            return noted[-1]

        async with client_module.LoadClient(double.url) as client:
            return await client.send(prompts(1)[0], 0, now)

    with LlmDouble() as double:
        result = asyncio.run(send())

    assert result.sent_s == 2.0  # 0: its turn, 1: made into a body, 2: written
    assert result.first_byte_s == 3.0


def test_several_chunks_of_one_write_have_one_time() -> None:
    done, _ = loaded(prompts(1, tokens=7), plan(requests=1), Behaviour(chunks_per_write=3))

    times = [chunk.at_s for chunk in done.results[0].chunks]
    assert len(times) == 7
    assert times[1] == times[2] == times[3]


def test_requests_that_warm_up_are_sent_first_and_count_nowhere() -> None:
    done, records = loaded(prompts(5), plan(warm_up=2, requests=3))

    assert [record.body["prompt"][0] for record in records] == ["0", "1", "2", "3", "4"]
    assert [result.number for result in done.results] == [0, 1, 2]
    assert "request_success_total" in done.metrics_before
    assert 'success_total{engine="0",model_name="double"} 2.0' in done.metrics_before
    assert 'success_total{engine="0",model_name="double"} 5.0' in done.metrics_after


def test_a_load_by_rate_sends_all_whatever_the_server_does() -> None:
    level = Level(rate=1000.0, arrivals="constant")

    done, _ = loaded(prompts(20), LoadPlan(level=level, requests=20))

    assert [result.failure for result in done.results] == [None] * 20
    assert done.results[-1].sent_s >= 0.019


def test_a_load_by_rate_may_be_capped() -> None:
    capped = LoadPlan(level=Level(rate=1000.0, concurrency=2), requests=10)

    _, records = loaded(prompts(10), capped, Behaviour(ttft_s=0.02))

    assert max(record.running for record in records) == 2


def test_a_request_beyond_the_cap_is_not_begun() -> None:
    """Nothing is answered: two are sent, and all others wait for their turn."""
    level = Level(rate=1000.0, concurrency=2)
    load = LoadPlan(level=level, duration_s=2.0, grace_s=0.0)  # else it would never end

    done, _ = loaded(iter(prompts(50)), load, Behaviour(mode="silent"))

    assert len(done.results) == 2


def test_sending_ends_with_the_duration_and_what_still_runs_with_its_grace() -> None:
    """The server never answers; nothing but the clock ends the load."""
    load = plan(2, duration_s=2.0, grace_s=0.1)

    done, _ = loaded(iter(prompts(9)), load, Behaviour(mode="silent"))

    assert [result.failure for result in done.results] == ["cancelled", "cancelled"]
    assert not done.cancelled
    assert done.results[0].ended_s >= 2.09


def test_requests_that_run_when_the_duration_has_passed_may_end() -> None:
    load = plan(1, duration_s=2.0, grace_s=60.0)

    done, _ = loaded(iter(prompts(9)), load, Behaviour(ttft_s=2.5))

    assert [result.failure for result in done.results] == [None]


def test_a_load_that_is_stopped_keeps_what_came() -> None:
    stop = threading.Event()
    came: list[int] = []

    def note(result: LoadResult) -> None:
        came.append(result.number)
        if len(came) == 2:
            stop.set()

    done, _ = loaded(endless(), plan(1), on_result=note, stop=stop)

    assert done.cancelled
    assert done.results[1].is_answered
    assert done.results[-1].failure in (None, "cancelled")


def test_a_load_of_many_chunks_is_never_made_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []

    def kept(run: LoadRun) -> str:
        texts.append(run.started)
        return "LoadRun"

    monkeypatch.setattr(LoadRun, "__repr__", kept)
    loaded(prompts(2), plan(1))

    assert texts == []


def test_an_interrupt_ends_a_load_and_keeps_what_came() -> None:
    def interrupt(result: LoadResult) -> None:
        if result.number == 1:
            signal.raise_signal(signal.SIGINT)

    done, _ = loaded(endless(), plan(1), on_result=interrupt)

    assert done.cancelled
    assert [result.failure for result in done.results[:2]] == [None, None]


def test_what_is_done_with_a_result_may_fail() -> None:
    def full(result: LoadResult) -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        loaded(endless(), plan(4), on_result=full)


def test_a_server_that_breaks_connections_is_lost_after_three_in_a_row() -> None:
    with SpeculatingServer(breaks_after=4) as server:
        done = run_load(server.url, "m", prompts(50), plan(requests=50))

    assert [result.failure for result in done.results] == [None] * 4 + ["connection"] * 3
    assert done.lost == "the connection failed (ServerDisconnectedError)"


def test_failures_that_are_not_in_a_row_end_nothing() -> None:
    done, _ = loaded(prompts(9), plan(requests=9), modes=("ok", "refuse", "refuse"))

    assert [result.failure for result in done.results] == [None, "connection", "connection"] * 3
    assert done.lost == ""


def test_a_connection_is_used_again() -> None:
    """Else a request would be held up by opening one."""
    with SpeculatingServer() as server:
        run_load(server.url, "m", prompts(6), plan(requests=6))

    assert len(server.clients) == 1


def test_the_count_of_tokens_is_asked_for_and_their_numbers_only_on_demand() -> None:
    with SpeculatingServer() as server:
        (first,) = run_load(server.url, "m", prompts(1), plan(requests=1)).results
        (second,) = run_load(server.url, "m", prompts(1), plan(requests=1), token_ids=True).results

    one, two = server.asked
    assert one["stream_options"] == two["stream_options"] == {"include_usage": True}
    assert "return_token_ids" not in one
    assert (first.token_ids, second.token_ids) == ((), (1, 3, 3, 5))
    assert (first.output_tokens, second.output_tokens) == (4, 4)
    assert second.prompt_token_ids == (1001, 1003, 1003, 1005, 1004, 1004, 1003, 1005)


def test_a_conversation_tells_its_prompts_tokens_beside_the_answer() -> None:
    talk = probe_request(Sample(messages=(Message(role="user", content="a bc"),)), 6)
    request = LoadRequest(endpoint=talk.endpoint, body=talk.body)
    with SpeculatingServer(step=3) as server:
        (result,) = run_load(server.url, "m", [request], plan(requests=1), token_ids=True).results

    assert (result.prompt_token_ids, result.text) == ((1001, 1002), "a bc ")
    assert len(result.chunks) == 2  # the one with the role is none


@cases("refusals")
def test_refused_fields_are_not_sent_again(refused: tuple[str, ...], asked: list[set[str]]) -> None:
    extras = {"return_token_ids", "stream_options"}
    behaviour = Behaviour(refuses=refused)

    done, records = loaded(prompts(3), plan(requests=3), behaviour, token_ids=True)

    assert all(result.is_answered for result in done.results)
    assert [extras & set(record.body) for record in records[-3:]] == asked * 3


def test_a_refusal_that_is_not_about_it_is_a_failure_and_changes_nothing() -> None:
    requests = [*prompts(1), *prompts(1), *prompts(1)]
    requests[1] = LoadRequest(endpoint="/v1/completions", body={"prompt": "no", "stream": True})
    with SpeculatingServer(refused="no") as server:
        done = run_load(server.url, "m", requests, plan(requests=3), token_ids=True)

    assert [result.failure for result in done.results] == [None, "status", None]
    assert done.results[1].reason == '/v1/completions answered 400: {"error": "too long"}'
    assert len(server.asked) == 3
    assert server.asked[2]["return_token_ids"]


def test_user_password_and_headers_reach_the_server_and_no_result() -> None:
    with SpeculatingServer(refused="one") as server:
        address = server.url.replace("http://", "http://ada:s3%3Acret@") + "/v1/?key=hidden"
        done = run_load(address, "m", prompts(1), plan(requests=1), headers={"X-Key": "k"})

    assert server.headers[0]["authorization"] == "Basic YWRhOnMzOmNyZXQ="
    assert server.headers[0]["x-key"] == "k"
    assert "s3" not in repr(done)


class Counter:
    """Counts words; cannot count an answer that has an eighth one."""

    def count(self, text: str) -> int:
        if "w7" in text:
            raise TokenizerFailed("too long")
        return len(text.split())

    def encode(self, text: str) -> Sequence[int]:
        raise AssertionError(text)


def test_answers_are_counted_by_a_tokenizer_too() -> None:
    requests = [*prompts(1, tokens=4), *prompts(1, tokens=8)]
    behaviour = Behaviour(usage_off_by=3)

    done, _ = loaded(requests, plan(requests=2), behaviour, tokenizer=Counter())

    first, second = done.results

    assert (first.output_tokens, first.own_output_tokens, first.own_input_tokens) == (7, 4, 8)
    assert not first.tokenizer_failed
    assert (second.own_output_tokens, second.tokenizer_failed) == (None, True)


def endless() -> Iterator[LoadRequest]:
    """Yield requests for ever; nobody sends them all."""
    while True:
        yield from prompts(1)
