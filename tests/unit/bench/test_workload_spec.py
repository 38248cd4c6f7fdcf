"""Workload specifications of SageMaker's AI benchmark jobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from packager.bench.asked import Asked
from packager.bench.workload_spec import BadWorkloadSpec, WorkloadSpec, read_workload_spec
from packager.errors import NotFound
from packager.load.spec import RequestSpec

ARN = "arn:aws:secretsmanager:us-east-1:123456789012:secret:hub-AbCdEf"
Read = Callable[..., WorkloadSpec]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return what reads a specification with these parameters and other parts."""

    def made(parameters: Any, **parts: Any) -> WorkloadSpec:
        document = {"benchmark": {"type": "aiperf"}, "parameters": parameters, **parts}
        path = tmp_path / "workload.json"
        path.write_text(json.dumps(document, indent=1))
        return read_workload_spec(path)

    return made


def test_what_the_sagemaker_sdk_writes_is_read(read: Read) -> None:
    found = read(
        {
            "tokenizer": "meta-llama/Llama-3.2-1B",
            "concurrency": 4,
            "request_count": 100,
            "prompt_input_tokens_mean": 550,
            "prompt_input_tokens_stddev": 25.0,
            "output_tokens_mean": 150,
            "output_tokens_stddev": 0.0,
            "streaming": True,
        },
        tooling={"api_standard": "openai"},
        secrets={"hf_token": ARN},
    )

    assert found.options == {
        "concurrency": (4,),
        "requests": 100,
        "input_tokens": 550,
        "input_stddev": 25.0,
        "output_tokens": 150,
        "output_stddev": 0.0,
        "stream": True,
    }
    assert found.tokenizer == "meta-llama/Llama-3.2-1B"
    assert found.notes == ("the secret 'hf_token' is not read: nothing here needs it",)


def test_yaml_means_the_same_as_json(tmp_path: Path) -> None:
    path = tmp_path / "workload.yaml"
    path.write_text(
        """\
benchmark: {type: aiperf}
parameters:
  concurrency: [1, 2, 8]
  benchmark_duration: 30
  prompt_input_tokens_mean: 200
  streaming: false
  goodput: "time_to_first_token:500 inter_token_latency:20.5"
  extra_inputs: "ignore_eos:true temperature:0.7 top_p:0.9"
"""
    )

    assert read_workload_spec(path).options == {
        "concurrency": (1, 2, 8),
        "duration_s": 30.0,
        "input_tokens": 200,
        "stream": False,
        "ttft_ms": 500.0,
        "tpot_ms": 20.5,
        "ignore_eos": True,
        "temperature": 0.7,
        "extra": ("top_p=0.9",),
    }


def test_every_parameter_is_an_option_of_the_benchmark(read: Read) -> None:
    found = read(
        {
            "concurrency": "1, 2,4",
            "request_rate": [0.5, 2],
            "arrival_pattern": "constant",
            "request_count": 10,
            "benchmark_duration": 60,
            "warmup_request_count": 0,
            "num_profile_runs": 3,
            "request_timeout_seconds": 30,
            "prompt_output_tokens_mean": 64,
            "prompt_output_tokens_stddev": 8,
            "shared_system_prompt_length": 100,
            "random_seed": 7,
            "endpoint_type": "chat",
            "custom_endpoint": "/invocations",
            "goodput": {"request_latency": 4000},
            "extra_inputs": {"top_k": 5, "min_tokens": 64},
        }
    ).options

    known = {*RequestSpec.__slots__, *Asked.__slots__}
    assert set(found) <= known
    assert found == {
        "concurrency": (1, 2, 4),
        "rate": (0.5, 2.0),
        "arrivals": "constant",
        "requests": 10,
        "duration_s": 60.0,
        "warm_up": 0,
        "rounds": 3,
        "request_timeout_s": 30.0,
        "output_tokens": 64,
        "output_stddev": 8.0,
        "prefix_tokens": 100,
        "seed": 7,
        "endpoint": "invocations",
        "latency_ms": 4000.0,
        "extra": ("top_k=5",),
    }


def test_requests_of_a_data_set_must_be_named_again(read: Read) -> None:
    lengths = {"prompt_input_tokens_mean": 256, "prompt_input_tokens_stddev": 0.0}
    found = read({"custom_dataset_type": "single_turn", "output_tokens_mean": 9, **lengths})

    assert (found.needs_data, found.options) == (True, {"output_tokens": 9})
    assert not read({}).needs_data


@pytest.mark.parametrize(
    ("parameters", "parts", "said"),
    [
        ({"concurency": 4}, {}, "'concurency' is not a parameter of a workload that is done here"),
        ({"gpu_telemetry": "on"}, {}, "'gpu_telemetry' is not a parameter"),
        ({"concurrency": 0}, {}, "concurrency is '0', expected a whole number from 1 to 1024"),
        ({"concurrency": [1, "x"]}, {}, "concurrency is 'x', expected a whole number"),
        ({"concurrency": 1.5}, {}, "concurrency is '1.5', expected a whole number"),
        ({"output_tokens_mean": -1}, {}, "output_tokens_mean is '-1', expected a whole number"),
        ({"prompt_input_tokens_stddev": "nan"}, {}, "prompt_input_tokens_stddev is 'nan'"),
        ({"streaming": "yes"}, {}, "streaming is 'yes', expected true or false"),
        ({"endpoint_type": "embeddings"}, {}, "endpoint_type is 'embeddings', expected one of"),
        ({"arrival_pattern": "gamma"}, {}, "arrival_pattern is 'gamma', expected one of"),
        ({"goodput": "ttft:500"}, {}, "'ttft' is not a metric that requests are good by"),
        ({"goodput": "time_to_first_token"}, {}, "'time_to_first_token' is not NAME:VALUE"),
        (
            {"extra_inputs": "payload_template:/opt/ml/x.jinja"},
            {},
            "payload_template is for endpoints of a form of their own",
        ),
        (
            {"output_tokens_mean": 5, "prompt_output_tokens_mean": 5},
            {},
            "prompt_output_tokens_mean and another parameter both say output_tokens",
        ),
        ({}, {"tooling": {"api_standard": "kserve"}}, "tooling.api_standard is 'kserve'"),
        ({}, {"benchmark": {"type": "locust"}}, "benchmark.type is 'locust', expected 'aiperf'"),
        ({}, {"dataset": {}}, "'dataset' is not a part of a workload that is done here"),
        (
            {},
            {"secrets": {"hf_token": "hf_secret"}},
            "the secret 'hf_token' stands there in plain text",
        ),
        ([], {}, "expected an object, not 'list'"),
    ],
)
def test_what_would_be_measured_otherwise_is_refused_by_name(
    read: Read, parameters: Any, parts: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadWorkloadSpec) as refused:
        read(parameters, **parts)

    assert refused.value.message.partition(": ")[2].startswith(said)
    assert refused.value.message.startswith("line ")
    assert "hf_secret" not in refused.value.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "workload.json: it cannot be read: it is not YAML"),
        ("", "workload.json: it is not one object with benchmark and parameters"),
        ("[1]", "workload.json: it is not one object with benchmark and parameters"),
        ("{parameters: {}}", "workload.json: it has no benchmark"),
        ("{benchmark: {type: aiperf}}", "line 1 of workload.json: it has no parameters"),
        (
            "benchmark: {type: aiperf}\nbenchmark: {type: aiperf}\n",
            "line 2 of workload.json: 'benchmark' is given twice",
        ),
        ("x" * (1024 * 1024 + 1), "workload.json: it has more than 1048576 bytes"),
        ("\udcff", "workload.json: it cannot be read: 'utf-8' codec"),
    ],
    ids=["cut", "empty", "list", "no benchmark", "no parameters", "twice", "large", "bytes"],
)
def test_a_file_that_is_no_specification_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "workload.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(BadWorkloadSpec) as refused:
        read_workload_spec(path)

    assert refused.value.message.startswith(said)


def test_a_misspelt_parameter_has_a_suggestion(read: Read) -> None:
    with pytest.raises(BadWorkloadSpec) as refused:
        read({"concurency": 4})

    assert refused.value.message.startswith("line 6 of workload.json: ")
    assert refused.value.hint == "did you mean 'concurrency'?"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no workload specification at"):
        read_workload_spec(tmp_path / "no.json")
