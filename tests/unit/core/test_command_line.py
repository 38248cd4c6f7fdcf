"""Requests as command lines: what is pasted asks for the same again."""

from __future__ import annotations

import shlex
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packager.cli.options import make_request, request_options
from packager.core.command_line import command_text, flag_of, named_fields, request_words
from packager.core.request import BuildRequest
from tests.support.case_tables import cases_of

cases = cases_of(__file__)

# A value of each field that has an option of `packager plan`, unlike its default.
VALUES: dict[str, Any] = {
    "family": "vllm",
    "served_name": "org/a-name",
    "tp_degree": 2,
    "pp_degree": 2,
    "dp_degree": 2,
    "ep": False,
    "nodes": 2,
    "max_batch": 8,
    "max_input_tokens": 100,
    "max_total_tokens": 200,
    "max_prefill_tokens": 300,
    "kv_dtype": "fp8",
    "dtype": "float16",
    "gpu_memory_utilization": 0.85,
    "quantize": "awq,group=64",
    "quantize_ignore": ("lm_head", "re:.*gate$", "-x"),
    "calibration": "a file's texts.jsonl",
    "calibration_samples": 3,
    "calibration_tokens": 4,
    "calibration_seed": 5,
    "evaluate": "default",
    "evaluate_samples": 6,
    "evaluate_tokens": 7,
    "evaluate_seed": 8,
    "max_kld": 0.00001,
    "min_top1": 0.95,
    "max_ppl_increase": 0.02,
    "draft": "ngram:3",
    "speculative_tokens": 3,
    "compile": "off",
    "gpus": "auto",
    "threads": 4,
    "goal": "latency",
    "workload": "chat",
    "ttft_limit_ms": 250.5,
    "tpot_limit_ms": 20.0,
    "load_format": "safetensors,threads=8",
    "weights": "mounted",
    "max_layer_size": 4 * 1024**3,
    "layer_order": "weights-first",
    "compression": "auto",
    "layer_format": "erofs",
    "container_version": "0.27.1",
    "tool_call_parser": "hermes",
    "reasoning_parser": "off",
    "engine_options": {"seed": "1", "limit": '{"a": 1}'},
    "region": "us-west-2",
    "executor": "docker",
    "address": "host:10001",
}


def parsed(words: tuple[str, ...]) -> BuildRequest:
    """Parse options as `packager plan` does."""

    @click.command()
    @request_options
    def plan(**given: Any) -> BuildRequest:
        return make_request(given.pop("request_file"), **given)

    found = plan.main(list(words), standalone_mode=False)
    assert isinstance(found, BuildRequest)
    return found


def test_every_field_of_a_request_is_tried() -> None:
    assert {*VALUES, "model", "instance", "base", "outputs"} == {*BuildRequest.model_fields}


@pytest.mark.parametrize("name", VALUES)
def test_a_pasted_command_asks_for_the_same(name: str) -> None:
    asked = BuildRequest(model="m", instance="ml.g5.xlarge", **{name: VALUES[name]})

    assert parsed(request_words(asked)) == asked


def test_what_is_left_open_is_not_written() -> None:
    asked = BuildRequest(model="m", instance="local", weights="baked", outputs=("oci:x",))

    assert request_words(asked) == ("--model", "m", "--instance", "local", "--output", "oci:x")
    assert request_words(asked, leave_out=["outputs", "instance"]) == ("--model", "m")


@given(st.text(min_size=1).filter(lambda text: "\0" not in text))
def test_a_shell_reads_back_what_was_written(name: str) -> None:
    words = request_words(BuildRequest(model=name, instance="local"))

    assert tuple(shlex.split(command_text(words))) == words


def test_options_name_their_fields() -> None:
    given_options = [("--output", "oci:x"), ("--tp-degree", "2"), ("--engine-option", "a=b")]

    assert list(named_fields(given_options)) == [
        ("outputs", "oci:x"),
        ("tp_degree", "2"),
        ("engine_options", "a=b"),
    ]


@cases("flags_are_spelled_as_on_the_command_line")
def test_flags_are_spelled_as_on_the_command_line(name: str, flag: str) -> None:
    assert flag_of(name) == flag
