"""Requests as they are asked for, completed by the workload."""

from __future__ import annotations

from typing import Any

import pytest

from packager.addons.bench.load.spec import RequestSpec, body_fields, settle
from packager.core.errors import UsageError
from packager.core.workload import QUESTIONS, WORKLOADS, Workload, parse_workload
from tests.support.cases import cases_of, read_tables

cases = cases_of(__file__)


def test_nothing_asked_for_is_the_default_workload_streamed_as_a_chat() -> None:
    shape = settle(RequestSpec())

    assert (shape.input_tokens, shape.output_tokens) == (622, 250)
    assert (shape.endpoint, shape.stream, shape.turns, shape.tools) == ("chat", True, 1, False)


@cases("named")
def test_a_named_workload_has_its_lengths_and_its_form(
    name: str, lengths: tuple[int, int], form: dict[str, object]
) -> None:
    shape = settle(RequestSpec(workload=name), WORKLOADS[name])

    assert (shape.input_tokens, shape.output_tokens) == lengths
    plain: dict[str, object] = read_tables(__file__)["plain"]
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


@cases("texts", spec={})
def test_vectors_and_scores_are_asked_of_texts(
    of: str, spec: dict[str, Any], endpoint: str, tokens: int, count: int
) -> None:
    shape = settle(RequestSpec(workload=of, **spec), parse_workload(of) or QUESTIONS)

    assert (shape.endpoint, shape.input_tokens, shape.texts) == (endpoint, tokens, count)
    assert (shape.output_tokens, shape.stream, shape.exact_output) == (0, False, False)


@cases("texts_refused")
def test_what_texts_do_not_have_is_refused(spec: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        settle(RequestSpec(workload="embed:9", **spec), parse_workload("embed:9") or QUESTIONS)


@cases("lengths")
def test_made_prompts_get_answers_of_the_asked_length_where_the_engine_can(
    spec: dict[str, Any], forces: bool, exact: bool
) -> None:
    assert settle(RequestSpec(**spec), forces_length=forces).exact_output is exact


def test_fields_of_the_body_are_json_or_text() -> None:
    given = ["top_p=0.9", "guided=null", 'stop=["a","b"]', "reasoning_effort=low", "text=a=b"]

    assert body_fields(given) == {
        "top_p": 0.9,
        "guided": None,
        "stop": ["a", "b"],
        "reasoning_effort": "low",
        "text": "a=b",
    }


@cases("fields")
def test_a_field_that_cannot_be_sent_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        body_fields([text])

    assert refused.value.message.startswith(said)


@cases("contradictions")
def test_what_contradicts_itself_is_refused(spec: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        settle(RequestSpec(**spec))

    assert refused.value.message.startswith(said)
