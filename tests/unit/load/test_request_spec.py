"""Requests as they are asked for, completed by the workload."""

from __future__ import annotations

import pytest

from packager.core.workload import WORKLOADS, Workload
from packager.errors import UsageError
from packager.load.spec import RequestSpec, body_fields, settle


def test_nothing_asked_for_is_the_default_workload_streamed_as_a_chat() -> None:
    shape = settle(RequestSpec())

    assert (shape.input_tokens, shape.output_tokens) == (622, 250)
    assert (shape.endpoint, shape.stream, shape.turns, shape.tools) == ("chat", True, 1, False)


@pytest.mark.parametrize(
    ("name", "lengths", "form"),
    [
        ("multi_turn_chat", (550, 150), {"turns": 4}),
        ("rag_document_qa", (2048, 256), {"documents": 4}),
        ("agent_tool_calling", (800, 100), {"tools": True, "stream": False}),
        ("long_context_scaling", (8192, 512), {"documents": 1}),
        ("shared_system_prompt", (300, 150), {"prefix_tokens": 200}),
        ("chat", (550, 150), {}),
        ("summarise", (3000, 200), {"documents": 1}),
        ("write", (200, 1000), {}),
    ],
)
def test_a_named_workload_has_its_lengths_and_its_form(
    name: str, lengths: tuple[int, int], form: dict[str, object]
) -> None:
    shape = settle(RequestSpec(workload=name), WORKLOADS[name])

    assert (shape.input_tokens, shape.output_tokens) == lengths
    plain: dict[str, object] = {
        "turns": 1,
        "documents": 0,
        "tools": False,
        "stream": True,
        "prefix_tokens": 0,
    }
    assert {name: getattr(shape, name) for name in plain} == {**plain, **form}


def test_mixed_traffic_has_the_means_that_the_workload_states() -> None:
    name = "production_traffic_mix"
    lengths = settle(RequestSpec(workload=name), WORKLOADS[name]).lengths

    assert sum(one[0] for one in lengths) / len(lengths) == 1024
    assert sum(one[1] for one in lengths) / len(lengths) == 200
    assert len({one[0] for one in lengths}) == 3


def test_stated_lengths_win_over_the_workload_and_over_a_file() -> None:
    spec = RequestSpec(workload="production_traffic_mix", input_tokens=100, output_tokens=10)
    shape = settle(spec, WORKLOADS["production_traffic_mix"], lengths=[(5, 6)])

    assert (shape.input_tokens, shape.output_tokens, shape.lengths) == (100, 10, ())


def test_lengths_of_a_file_are_drawn_from() -> None:
    workload = Workload(name="3 requests of x.jsonl", input_tokens=20, output_tokens=2)
    shape = settle(RequestSpec(workload="x.jsonl"), workload, lengths=[(10, 1), (30, 3)])

    assert shape.lengths == ((10, 1), (30, 3))


@pytest.mark.parametrize(
    ("spec", "forces", "exact"),
    [
        (RequestSpec(), True, True),
        (RequestSpec(), False, False),
        (RequestSpec(data="own.jsonl"), True, False),
        (RequestSpec(data="own.jsonl", ignore_eos=True), False, True),
        (RequestSpec(ignore_eos=False), True, False),
    ],
)
def test_made_prompts_get_answers_of_the_asked_length_where_the_engine_can(
    spec: RequestSpec, forces: bool, exact: bool
) -> None:
    assert settle(spec, forces_length=forces).exact_output is exact


def test_fields_of_the_body_are_json_or_text() -> None:
    given = ["top_p=0.9", "guided=null", 'stop=["a","b"]', "reasoning_effort=low", "text=a=b"]

    assert body_fields(given) == {
        "top_p": 0.9,
        "guided": None,
        "stop": ["a", "b"],
        "reasoning_effort": "low",
        "text": "a=b",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("top_p", "'top_p' is not a field of a request"),
        ("a b=1", "'a b=1' is not a field of a request"),
        ("=1", "'=1' is not a field of a request"),
        ("stop=[1", "the value of the field 'stop' is not JSON"),
        ("model=x", "the field 'model' of a request has an option of its own, or is packager's"),
        ("max_tokens=5", "the field 'max_tokens' of a request has an option of its own"),
    ],
)
def test_a_field_that_cannot_be_sent_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        body_fields([text])

    assert refused.value.message.startswith(said)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (RequestSpec(endpoint="completions", turns=2), "the endpoint completions takes one text"),
        (
            RequestSpec(endpoint="completions", tools=True),
            "the endpoint completions takes one text",
        ),
        (
            RequestSpec(data="own.jsonl", turns=2),
            "requests of --data are sent as they are, and --turns is for made ones",
        ),
        (
            RequestSpec(data="own.jsonl", input_tokens=9),
            "requests of --data are sent as they are, and --input-tokens is for made ones",
        ),
        (RequestSpec(prefix_tokens=622), "prompts of 622 tokens have no room for 622 tokens"),
        (
            RequestSpec(workload="production_traffic_mix", input_stddev=3.0),
            "lengths are drawn from those of the workload",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(spec: RequestSpec, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        settle(spec)

    assert refused.value.message.startswith(said)
