"""Requests that are made from the shape of a workload."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from packager.addons.bench.load.spec import RequestShape, RequestSpec, settle
from packager.addons.bench.load.tokenizer import TokenCounter, TokenizerFailed, open_tokenizer
from packager.addons.bench.load.values import LoadRequest
from packager.addons.bench.load.workloads import (
    RequestSource,
    make_requests,
    open_source,
    request_lengths,
)
from packager.core.errors import ModelRefused, UsageError
from packager.core.samples import Message, Sample
from packager.core.workload import WORKLOADS, Workload, estimate_tokens
from tests.support.cases import as_type, cases, read_tables
from tests.support.places import ROOT
from tests.support.tiny_tokenizers import KINDS, write_tokenizer

SENT = 12
PER_MESSAGE, PER_PROMPT = 4, 11  # tokens that the server of these tests adds


def texts(request: LoadRequest) -> list[str]:
    """Return the texts of a request's prompt."""
    body = request.body
    return [body["prompt"]] if "prompt" in body else [one["content"] for one in body["messages"]]


def served(count: Callable[[str], int]) -> Callable[[LoadRequest], int]:
    """Return what counts a prompt as a server with a chat template does."""

    def count_prompt(request: LoadRequest) -> int:
        tools = json.dumps(request.body["tools"]) if "tools" in request.body else ""
        spoken = texts(request)
        return PER_PROMPT + sum(count(one) + PER_MESSAGE for one in spoken) + count(tools)

    return count_prompt


def sent(source: RequestSource, load: object = "a load", count: int = SENT) -> list[LoadRequest]:
    """Return the first requests of a load."""
    return list(itertools.islice(make_requests(source, load), count))


def shape_of(workload: str | None = None, **fields: Any) -> RequestShape:
    if workload is None:
        return settle(RequestSpec(**fields))
    return settle(RequestSpec(workload=workload, **fields), WORKLOADS[workload])


def one(workload: str | None = None, **fields: Any) -> LoadRequest:
    """Return the first request of a workload, or of the one that these fields ask for."""
    (request,) = sent(open_source(shape_of(workload, **fields)), count=1)
    return request


def own(*samples: Sample, count: int, **fields: Any) -> list[LoadRequest]:
    """Return the first requests of one's own samples."""
    return sent(open_source(shape_of(data="own.jsonl", **fields), samples=samples), count=count)


@pytest.fixture(scope="module", params=["examples/tiny-llama", *KINDS])
def counter(request: pytest.FixtureRequest, tmp_path_factory: Any) -> TokenCounter:
    """Return a tokenizer of each kind that models have."""
    if request.param not in KINDS:
        return open_tokenizer(ROOT / request.param)
    directory: Path = tmp_path_factory.mktemp("tokenizer")
    return open_tokenizer(write_tokenizer(request.param, directory))


@pytest.mark.parametrize("counted", ["by the client", "by both", "by the server"])
@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads_have_their_lengths(name: str, counted: str, counter: TokenCounter) -> None:
    shape = shape_of(name)
    count_prompt = served(counter.count)
    source = open_source(
        shape,
        counter=None if counted == "by the server" else counter,
        count_prompt=None if counted == "by the client" else count_prompt,
    )

    few = 2 if shape.input_tokens >= 2048 else 6
    for request, (asked, _) in zip(sent(source, count=few), request_lengths(shape), strict=False):
        if counted == "by the client":
            found = sum(map(counter.count, texts(request))) + source.template_tokens
            assert request.input_tokens == found
        else:
            found = count_prompt(request)
        assert abs(found - asked) <= max(3, 0.02 * asked)


def test_a_server_is_asked_for_its_count_some_60_times_and_not_for_each_request() -> None:
    asked: list[LoadRequest] = []

    def count_prompt(request: LoadRequest) -> int:
        asked.append(request)
        return served(lambda text: len(text.split()))(request)

    source = open_source(shape_of(), count_prompt=count_prompt)
    sent(source, count=100)

    assert len(asked) == 58
    assert all(request.body["max_tokens"] == 1 for request in asked)
    assert not any(request.body["stream"] or "stream_options" in request.body for request in asked)
    assert source.template_tokens == PER_PROMPT + PER_MESSAGE


def test_the_server_s_own_tokens_are_in_the_length_of_a_prompt() -> None:
    counter = open_tokenizer(ROOT / "examples/tiny-llama")
    asked = shape_of(input_tokens=100)
    source = open_source(asked, counter=counter, count_prompt=served(counter.count))

    (request,) = sent(source, count=1)
    assert source.template_tokens == 15
    assert counter.count(texts(request)[0]) == 85
    assert request.input_tokens == 100


def test_prompts_of_other_loads_and_seeds_are_others_and_lengths_stay() -> None:
    lengths = {"input_tokens": 60, "output_tokens": 20}
    spread = {"input_stddev": 10.0, "output_stddev": 5.0}
    here, there = (open_source(shape_of(seed=seed, **lengths, **spread)) for seed in (0, 1))
    loads = [sent(here, "concurrency 1"), sent(here, "concurrency 2"), sent(there, "concurrency 1")]
    begins = [" ".join(texts(request)[0].split()[:4]) for load in loads for request in load]

    assert len(set(begins)) == 3 * SENT
    answers = [[request.body["max_tokens"] for request in load] for load in loads]
    assert answers[0] == answers[1] != answers[2]


def test_the_same_seed_makes_the_same_requests_on_every_machine() -> None:
    found = hashlib.sha256()
    for name, workload in WORKLOADS.items():
        shape = settle(RequestSpec(workload=name, seed=3), workload, forces_length=True)
        for request in sent(open_source(shape), count=3):
            found.update(json.dumps([request.endpoint, request.body], sort_keys=True).encode())

    assert found.hexdigest() == "3b6b9ed0f0b941e20b1527ede86d5223e725b04c34ec67db8909b68b27cdee88"


def test_lengths_keep_their_mean_and_deviation() -> None:
    shape = shape_of(input_tokens=500, input_stddev=50.0, output_tokens=100)
    lengths = list(itertools.islice(request_lengths(shape), 2000))
    prompts = [prompt for prompt, _ in lengths]
    mean = sum(prompts) / 2000

    assert 497 < mean < 503
    assert 47 < (sum((one - mean) ** 2 for one in prompts) / 2000) ** 0.5 < 53
    assert {answer for _, answer in lengths} == {100}


def test_lengths_never_fall_below_one_or_what_is_shared() -> None:
    spread = {"input_stddev": 50.0, "output_stddev": 50.0}
    shape = shape_of(input_tokens=20, output_tokens=5, prefix_tokens=10, **spread)
    lengths = list(itertools.islice(request_lengths(shape), 500))

    assert min(prompt for prompt, _ in lengths) == 11
    assert min(answer for _, answer in lengths) == 1


def test_lengths_of_a_file_all_come_once_before_any_comes_again() -> None:
    given = [(10 * number, number) for number in range(1, 9)]
    shape = settle(RequestSpec(workload="x.jsonl"), Workload(name="x"), lengths=given)
    drawn = list(itertools.islice(request_lengths(shape), 24))

    turns = [drawn[:8], drawn[8:16], drawn[16:]]
    assert [sorted(turn) for turn in turns] == [given, given, given]
    assert len({tuple(turn) for turn in turns}) == 3


def test_a_plain_request_has_what_every_engine_takes() -> None:
    request = one(input_tokens=20, output_tokens=7, temperature=0.5, extra=("top_p=0.9",))

    assert request.endpoint == "/v1/chat/completions"
    assert [message["role"] for message in request.body["messages"]] == ["user"]
    rest = {name: value for name, value in request.body.items() if name != "messages"}
    assert rest == read_tables(__file__)["body"]


def test_the_end_of_a_text_is_ignored_where_answers_have_an_exact_length() -> None:
    spec = RequestSpec(output_tokens=7, stream=False)
    (request,) = sent(open_source(settle(spec, forces_length=True)), count=1)

    assert (request.body["ignore_eos"], request.body["min_tokens"]) == (True, 7)
    assert "stream_options" not in request.body


@cases("endpoints")
def test_each_endpoint_has_its_path_and_its_body(kind: Any, path: str, field: str) -> None:
    request = one(endpoint=kind, prefix_tokens=50)

    assert request.endpoint == path
    assert ("messages" in request.body, "prompt" in request.body) == (
        field == "messages",
        field == "prompt",
    )


def test_a_conversation_has_its_turns_and_answers_longer_than_questions() -> None:
    messages = one("multi_turn_chat").body["messages"]

    assert [one["role"] for one in messages] == 3 * ["user", "assistant"] + ["user"]
    lengths = [estimate_tokens(one["content"]) for one in messages]
    assert [round(length / 55) for length in lengths] == [1, 2, 1, 2, 1, 2, 1]


def test_a_short_conversation_has_fewer_turns() -> None:
    assert len(one(input_tokens=50, turns=9).body["messages"]) == 3


def test_all_requests_of_all_loads_share_the_system_prompt() -> None:
    source = open_source(shape_of("shared_system_prompt"))
    requests = [*sent(source, "one"), *sent(source, "two")]

    assert {request.body["messages"][0]["role"] for request in requests} == {"system"}
    (shared,) = {texts(request)[0] for request in requests}
    assert abs(estimate_tokens(shared) - 200) <= 4
    assert len({texts(request)[1][:30] for request in requests}) == 2 * SENT


def test_documents_come_before_the_question_about_them() -> None:
    (text,) = texts(one("rag_document_qa"))
    parts = text.split("\n\n")

    heads = [part.splitlines()[0] for part in parts[:-1]]
    assert heads == ["Document 1:", "Document 2:", "Document 3:", "Document 4:"]
    assert parts[-1] == "What follows from this?"
    assert [round(estimate_tokens(part) / 510) for part in parts[:-1]] == [1, 1, 1, 1]


def test_an_agent_describes_tools_calls_none_and_is_not_streamed() -> None:
    request = one("agent_tool_calling")
    names = [one["function"]["name"] for one in request.body["tools"]]

    assert names == ["search_documents", "read_document", "run_query", "send_message"]
    assert (request.body["tool_choice"], request.body["stream"]) == ("none", False)


def test_as_many_tools_are_described_as_half_a_prompt_has_room_for() -> None:
    assert len(open_source(shape_of(tools=True, input_tokens=250)).tools) == 1


CHAT = as_type(read_tables(__file__)["chat"], Sample)
PROMPT = Sample(prompt="<user>Why?</user>", completion="Because.")
OPEN = Sample(messages=(Message(role="user", content="And then?"),))


def test_own_requests_are_sent_as_they_were_recorded() -> None:
    requests = own(CHAT, PROMPT, OPEN, count=3)
    chats = [one.body["messages"] for one in requests if "messages" in one.body]
    (text,) = [one for one in requests if one.endpoint == "/v1/completions"]

    assert text.body["prompt"] == "<user>Why?</user>"
    assert sorted(map(len, chats)) == [1, 2]
    assert {"role": "system", "content": "Be brief."} in max(chats, key=len)


def test_answers_to_own_requests_may_be_as_long_as_those_recorded() -> None:
    recorded = own(CHAT, PROMPT, OPEN, count=3)
    stated = own(CHAT, PROMPT, OPEN, count=3, output_tokens=9)

    assert sorted(request.body["max_tokens"] for request in recorded) == [2, 7, 250]
    assert {request.body["max_tokens"] for request in stated} == {9}


def test_own_requests_are_not_sent_twice_before_all_were_sent() -> None:
    samples = [Sample(prompt=f"Question {number}?") for number in range(10)]
    source = open_source(shape_of(data="own.jsonl"), samples=samples)
    first = sent(source, "one", 6)
    second = list(itertools.islice(make_requests(source, "two", skip=6), 6))
    prompts = [request.body["prompt"] for request in (*first, *second)]

    assert len(set(prompts[:10])) == 10
    assert prompts[10:] == prompts[:2]
    assert prompts[:10] != [sample.prompt for sample in samples]


def test_own_requests_at_sagemaker_s_path_keep_their_bodies() -> None:
    requests = own(CHAT, PROMPT, count=2, endpoint="invocations")

    assert {request.endpoint for request in requests} == {"/invocations"}
    assert {name for one in requests for name in one.body} >= {"messages", "prompt"}


class FailsOnLongTexts:
    """A tokenizer that counts words, and fails on more than fifty of them, or on fewer."""

    def __init__(self, most: int = 50) -> None:
        self._most = most

    def count(self, text: str) -> int:
        return len(self.encode(text))

    def encode(self, text: str) -> list[int]:
        words = text.split()
        if len(words) > self._most:
            raise TokenizerFailed("its library gave up")
        return list(range(len(words)))


def test_a_sample_that_the_tokenizer_cannot_encode_is_sent_and_marked() -> None:
    shape = shape_of(data="own.jsonl")
    (request,) = sent(open_source(shape, counter=FailsOnLongTexts(0), samples=[PROMPT]), count=1)

    assert (request.tokenizer_failed, request.input_tokens) == (True, None)
    assert request.body["max_tokens"] == 250


def test_a_prompt_that_the_tokenizer_cannot_encode_is_sent_and_marked() -> None:
    long, short = (
        sent(open_source(shape_of(input_tokens=tokens), counter=FailsOnLongTexts()), count=1)[0]
        for tokens in (60, 40)
    )

    assert (long.tokenizer_failed, long.input_tokens) == (True, None)
    assert 55 <= len(texts(long)[0].split()) <= 65
    assert (short.tokenizer_failed, short.input_tokens) == (False, 40)


def test_a_tokenizer_that_cannot_encode_english_is_refused() -> None:
    with pytest.raises(ModelRefused, match="cannot encode English sentences: its library gave up"):
        open_source(shape_of(), counter=FailsOnLongTexts(0))


def test_data_that_cannot_be_asked_is_refused() -> None:
    answers_alone = Sample(messages=(Message(role="assistant", content="Hm."),))

    with pytest.raises(UsageError, match=r"^none of the 1 samples can be asked"):
        own(answers_alone, count=1)
    with pytest.raises(UsageError, match=r"^1 of 2 samples are conversations"):
        own(CHAT, PROMPT, count=1, endpoint="completions")
