"""Requests that are made from the shape of a workload."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from packager.core.samples import Message, Sample
from packager.core.workload import WORKLOADS, Workload, estimate_tokens
from packager.errors import ModelRefused, UsageError
from packager.load.spec import RequestSpec, settle
from packager.load.tokenizer import TokenCounter, TokenizerFailed, open_tokenizer
from packager.load.values import LoadRequest
from packager.load.workloads import (
    RequestSource,
    make_requests,
    open_source,
    request_lengths,
)
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


@pytest.fixture(scope="module", params=["examples/tiny-llama", *KINDS])
def counter(request: pytest.FixtureRequest, tmp_path_factory: Any) -> TokenCounter:
    """Return a tokenizer of each kind that models have."""
    if request.param not in KINDS:
        return open_tokenizer(ROOT / request.param)
    directory: Path = tmp_path_factory.mktemp("tokenizer")
    return open_tokenizer(write_tokenizer(request.param, directory))


@pytest.mark.parametrize("counted", ["by the client", "by both", "by the server"])
@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_has_prompts_of_its_lengths(
    name: str, counted: str, counter: TokenCounter
) -> None:
    shape = settle(RequestSpec(workload=name), WORKLOADS[name])
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

    source = open_source(settle(RequestSpec()), count_prompt=count_prompt)
    sent(source, count=100)

    assert len(asked) == 58
    assert all(request.body["max_tokens"] == 1 for request in asked)
    assert not any(request.body["stream"] or "stream_options" in request.body for request in asked)
    assert source.template_tokens == PER_PROMPT + PER_MESSAGE


def test_the_server_s_own_tokens_are_in_the_length_of_a_prompt() -> None:
    counter = open_tokenizer(ROOT / "examples/tiny-llama")
    source = open_source(
        settle(RequestSpec(input_tokens=100)),
        counter=counter,
        count_prompt=served(counter.count),
    )

    (request,) = sent(source, count=1)
    assert source.template_tokens == 15
    assert counter.count(texts(request)[0]) == 85
    assert request.input_tokens == 100


def test_prompts_of_other_loads_and_seeds_are_others_and_lengths_stay() -> None:
    spec = RequestSpec(input_tokens=60, input_stddev=10.0, output_tokens=20, output_stddev=5.0)
    one, other = (
        open_source(settle(RequestSpec(**{**_fields(spec), "seed": seed}))) for seed in (0, 1)
    )
    loads = [sent(one, "concurrency 1"), sent(one, "concurrency 2"), sent(other, "concurrency 1")]
    begins = [" ".join(texts(request)[0].split()[:4]) for load in loads for request in load]

    assert len(set(begins)) == 3 * SENT
    answers = [[request.body["max_tokens"] for request in load] for load in loads]
    assert answers[0] == answers[1] != answers[2]


def _fields(spec: RequestSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in RequestSpec.__slots__}


def test_the_same_seed_makes_the_same_requests_on_every_machine() -> None:
    found = hashlib.sha256()
    for name, workload in WORKLOADS.items():
        shape = settle(RequestSpec(workload=name, seed=3), workload, forces_length=True)
        for request in sent(open_source(shape), count=3):
            found.update(json.dumps([request.endpoint, request.body], sort_keys=True).encode())

    assert found.hexdigest() == "3b6b9ed0f0b941e20b1527ede86d5223e725b04c34ec67db8909b68b27cdee88"


def test_lengths_keep_their_mean_and_deviation() -> None:
    shape = settle(RequestSpec(input_tokens=500, input_stddev=50.0, output_tokens=100))
    lengths = list(itertools.islice(request_lengths(shape), 2000))
    prompts = [prompt for prompt, _ in lengths]
    mean = sum(prompts) / 2000

    assert 497 < mean < 503
    assert 47 < (sum((one - mean) ** 2 for one in prompts) / 2000) ** 0.5 < 53
    assert {answer for _, answer in lengths} == {100}


def test_lengths_never_fall_below_one_or_what_is_shared() -> None:
    spec = RequestSpec(
        input_tokens=20, input_stddev=50.0, output_tokens=5, output_stddev=50.0, prefix_tokens=10
    )
    lengths = list(itertools.islice(request_lengths(settle(spec)), 500))

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
    spec = RequestSpec(input_tokens=20, output_tokens=7, temperature=0.5, extra=("top_p=0.9",))
    (request,) = sent(open_source(settle(spec)), count=1)

    assert request.endpoint == "/v1/chat/completions"
    assert [one["role"] for one in request.body["messages"]] == ["user"]
    assert {name: value for name, value in request.body.items() if name != "messages"} == {
        "max_tokens": 7,
        "temperature": 0.5,
        "stream": True,
        "stream_options": {"include_usage": True},
        "top_p": 0.9,
    }


def test_the_end_of_a_text_is_ignored_where_answers_have_an_exact_length() -> None:
    spec = RequestSpec(output_tokens=7, stream=False)
    (request,) = sent(open_source(settle(spec, forces_length=True)), count=1)

    assert (request.body["ignore_eos"], request.body["min_tokens"]) == (True, 7)
    assert "stream_options" not in request.body


@pytest.mark.parametrize(
    ("kind", "path", "field"),
    [
        ("chat", "/v1/chat/completions", "messages"),
        ("completions", "/v1/completions", "prompt"),
        ("invocations", "/invocations", "messages"),
    ],
)
def test_each_endpoint_has_its_path_and_its_body(kind: Any, path: str, field: str) -> None:
    (request,) = sent(open_source(settle(RequestSpec(endpoint=kind, prefix_tokens=50))), count=1)

    assert request.endpoint == path
    assert ("messages" in request.body, "prompt" in request.body) == (
        field == "messages",
        field == "prompt",
    )


def test_a_conversation_has_its_turns_and_answers_longer_than_questions() -> None:
    shape = settle(RequestSpec(workload="multi_turn_chat"), WORKLOADS["multi_turn_chat"])
    (request,) = sent(open_source(shape), count=1)
    messages = request.body["messages"]

    assert [one["role"] for one in messages] == 3 * ["user", "assistant"] + ["user"]
    lengths = [estimate_tokens(one["content"]) for one in messages]
    assert [round(length / 55) for length in lengths] == [1, 2, 1, 2, 1, 2, 1]


def test_a_short_conversation_has_fewer_turns() -> None:
    (request,) = sent(open_source(settle(RequestSpec(input_tokens=50, turns=9))), count=1)

    assert len(request.body["messages"]) == 3


def test_all_requests_of_all_loads_share_the_system_prompt() -> None:
    shape = settle(RequestSpec(workload="shared_system_prompt"), WORKLOADS["shared_system_prompt"])
    source = open_source(shape)
    requests = [*sent(source, "one"), *sent(source, "two")]

    assert {request.body["messages"][0]["role"] for request in requests} == {"system"}
    (shared,) = {texts(request)[0] for request in requests}
    assert abs(estimate_tokens(shared) - 200) <= 4
    assert len({texts(request)[1][:30] for request in requests}) == 2 * SENT


def test_documents_come_before_the_question_about_them() -> None:
    shape = settle(RequestSpec(workload="rag_document_qa"), WORKLOADS["rag_document_qa"])
    (request,) = sent(open_source(shape), count=1)
    (text,) = texts(request)
    parts = text.split("\n\n")

    heads = [part.splitlines()[0] for part in parts[:-1]]
    assert heads == ["Document 1:", "Document 2:", "Document 3:", "Document 4:"]
    assert parts[-1] == "What follows from this?"
    assert [round(estimate_tokens(part) / 510) for part in parts[:-1]] == [1, 1, 1, 1]


def test_an_agent_describes_tools_calls_none_and_is_not_streamed() -> None:
    shape = settle(RequestSpec(workload="agent_tool_calling"), WORKLOADS["agent_tool_calling"])
    (request,) = sent(open_source(shape), count=1)
    names = [one["function"]["name"] for one in request.body["tools"]]

    assert names == ["search_documents", "read_document", "run_query", "send_message"]
    assert (request.body["tool_choice"], request.body["stream"]) == ("none", False)


def test_as_many_tools_are_described_as_half_a_prompt_has_room_for() -> None:
    source = open_source(settle(RequestSpec(tools=True, input_tokens=250)))

    assert len(source.tools) == 1


CHAT = Sample(
    messages=(
        Message(role="system", content="Be brief."),
        Message(role="user", content="Why?"),
        Message(role="assistant", content="Because of the eight tokens."),
    )
)
PROMPT = Sample(prompt="<user>Why?</user>", completion="Because.")
OPEN = Sample(messages=(Message(role="user", content="And then?"),))


def test_own_requests_are_sent_as_they_were_recorded() -> None:
    shape = settle(RequestSpec(data="own.jsonl"))
    source = open_source(shape, samples=[CHAT, PROMPT, OPEN])
    found = {request.endpoint: request for request in sent(source, count=3)}
    chats = [request for request in sent(source, count=3) if "messages" in request.body]

    assert found["/v1/completions"].body["prompt"] == "<user>Why?</user>"
    assert sorted(len(request.body["messages"]) for request in chats) == [1, 2]
    assert {"role": "system", "content": "Be brief."} in max(
        chats, key=lambda request: len(request.body["messages"])
    ).body["messages"]


def test_answers_to_own_requests_may_be_as_long_as_those_recorded() -> None:
    shape = settle(RequestSpec(data="own.jsonl"))
    requests = sent(open_source(shape, samples=[CHAT, PROMPT, OPEN]), count=3)
    stated = settle(RequestSpec(data="own.jsonl", output_tokens=9))

    assert sorted(request.body["max_tokens"] for request in requests) == [2, 7, 250]
    again = sent(open_source(stated, samples=[CHAT, PROMPT, OPEN]), count=3)
    assert {request.body["max_tokens"] for request in again} == {9}


def test_own_requests_are_not_sent_twice_before_all_were_sent() -> None:
    samples = [Sample(prompt=f"Question {number}?") for number in range(10)]
    source = open_source(settle(RequestSpec(data="own.jsonl")), samples=samples)
    first = sent(source, "one", 6)
    second = list(itertools.islice(make_requests(source, "two", skip=6), 6))
    prompts = [request.body["prompt"] for request in (*first, *second)]

    assert len(set(prompts[:10])) == 10
    assert prompts[10:] == prompts[:2]
    assert prompts[:10] != [sample.prompt for sample in samples]


def test_own_requests_at_sagemaker_s_path_keep_their_bodies() -> None:
    shape = settle(RequestSpec(data="own.jsonl", endpoint="invocations"))
    requests = sent(open_source(shape, samples=[CHAT, PROMPT]), count=2)

    assert {request.endpoint for request in requests} == {"/invocations"}
    assert {name for one in requests for name in one.body} >= {"messages", "prompt"}


def test_a_sample_that_the_tokenizer_cannot_encode_is_sent_and_marked() -> None:
    class Fails:
        def count(self, text: str) -> int:
            raise TokenizerFailed("no")

        def encode(self, text: str) -> list[int]:
            raise TokenizerFailed("no")

    source = open_source(settle(RequestSpec(data="own.jsonl")), counter=Fails(), samples=[PROMPT])
    (request,) = sent(source, count=1)

    assert (request.tokenizer_failed, request.input_tokens) == (True, None)
    assert request.body["max_tokens"] == 250


class FailsOnLongTexts:
    """A tokenizer that counts words, and fails on more than fifty of them."""

    def count(self, text: str) -> int:
        return len(self.encode(text))

    def encode(self, text: str) -> list[int]:
        words = text.split()
        if len(words) > 50:
            raise TokenizerFailed("its library gave up")
        return list(range(len(words)))


def test_a_prompt_that_the_tokenizer_cannot_encode_is_sent_and_marked() -> None:
    source = open_source(settle(RequestSpec(input_tokens=60)), counter=FailsOnLongTexts())
    short = open_source(settle(RequestSpec(input_tokens=40)), counter=FailsOnLongTexts())

    (request,) = sent(source, count=1)
    assert (request.tokenizer_failed, request.input_tokens) == (True, None)
    assert 55 <= len(texts(request)[0].split()) <= 65
    (request,) = sent(short, count=1)
    assert (request.tokenizer_failed, request.input_tokens) == (False, 40)


def test_a_tokenizer_that_cannot_encode_english_is_refused() -> None:
    class Fails(FailsOnLongTexts):
        def encode(self, text: str) -> list[int]:
            raise TokenizerFailed("its library gave up")

    with pytest.raises(ModelRefused, match="cannot encode English sentences: its library gave up"):
        open_source(settle(RequestSpec()), counter=Fails())


@pytest.mark.parametrize(
    ("samples", "endpoint", "said"),
    [
        (
            [Sample(messages=(Message(role="assistant", content="Hm."),))],
            "chat",
            "none of the 1 samples can be asked",
        ),
        ([CHAT, PROMPT], "completions", "1 of 2 samples are conversations"),
    ],
)
def test_data_that_cannot_be_asked_is_refused(
    samples: list[Sample], endpoint: Any, said: str
) -> None:
    with pytest.raises(UsageError) as refused:
        open_source(settle(RequestSpec(data="own.jsonl", endpoint=endpoint)), samples=samples)

    assert refused.value.message.startswith(said)
