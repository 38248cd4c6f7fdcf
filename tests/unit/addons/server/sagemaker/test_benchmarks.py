"""AI benchmark jobs and workload configurations: documents as commands, and back."""

from __future__ import annotations

import json
import random
from datetime import timedelta
from typing import Any

import pytest

from packager.addons.deploy.sagemaker.api_refusals import ValidationRefused
from packager.addons.server.jobs.values import JobStatus
from packager.addons.server.sagemaker.benchmarks import (
    describe_benchmark,
    make_benchmark,
    summarize_benchmark,
    target_of,
)
from packager.addons.server.sagemaker.settings import JobSettings
from packager.addons.server.sagemaker.workloads import WorkloadConfig, read_workload_config
from tests.support.ai_jobs import (
    CREATED,
    SYNTHETIC,
    benchmark_body,
    faults_of,
    stored,
    workload_body,
)
from tests.support.cases import cases_of, read_tables

cases = cases_of(__file__)

ADDRESS = "http://127.0.0.1:49153"
SETTINGS = JobSettings(region="eu-west-1", account="111122223333")


MAPPED = [("sharegpt", "/data/sharegpt.json")]


def a_workload(**parameters: Any) -> WorkloadConfig:
    spec = {**SYNTHETIC, "parameters": {**SYNTHETIC["parameters"], **parameters}}
    return read_workload_config(workload_body(spec))


def a_workload_of_data() -> WorkloadConfig:
    spec = {**SYNTHETIC, "parameters": {"custom_dataset_type": "openai-chat"}}
    return read_workload_config(workload_body(spec, channels=("s3://bucket/data/",)))


@pytest.mark.parametrize("place", ["s3://bucket/{job}/", "s3://bucket/a\0b", "s3://bucket/\ud800"])
def test_data_that_a_command_would_be_given_otherwise_are_refused(place: str) -> None:
    spec = {**SYNTHETIC, "parameters": {"custom_dataset_type": "openai-chat"}}

    with pytest.raises(ValidationRefused, match="is not a place in S3"):
        read_workload_config(workload_body(spec, channels=(place,)))


def test_a_job_is_one_benchmark_of_the_containers_own_port() -> None:
    job = make_benchmark(
        benchmark_body(Tags=[{"Key": "team", "Value": "a b"}]), a_workload(), ADDRESS
    )

    assert (job.kind, job.name, job.tags) == ("benchmark", "bench-1", {"team": "a b"})
    (stage,) = job.stages
    assert stage.name == "bench"
    assert stage.arguments == (
        *("bench", "http://127.0.0.1:49153", "--workload-spec", "{job}/workload.json"),
        *("--endpoint", "invocations", "--output", "s3://bucket/benchmarks/bench-1/"),
        *("--format", "json", "--progress", "json"),
    )
    assert json.loads(job.files["workload.json"]) == SYNTHETIC


def test_a_data_set_is_sent_and_a_path_that_the_workload_states_is_kept() -> None:
    (data,) = make_benchmark(benchmark_body(), a_workload_of_data(), ADDRESS).stages
    (path,) = make_benchmark(benchmark_body(), a_workload(endpoint_type="chat"), ADDRESS).stages

    assert data.arguments[4:6] == ("--data", "s3://bucket/data/")
    assert "--endpoint" not in path.arguments


@cases("targets")
def test_the_target_is_an_endpoint_or_a_component(
    endpoint: dict[str, Any], found: list[str]
) -> None:
    assert list(target_of({"BenchmarkTarget": {"Endpoint": endpoint}})) == found


@cases("refused")
def test_what_cannot_be_measured_is_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationRefused, match=message):
        make_benchmark(benchmark_body(**more), a_workload(), ADDRESS)


@cases("workloads")
def test_a_workload_that_cannot_be_sent_is_refused(
    parameters: dict[str, Any] | None, channels: list[str] | None, message: str
) -> None:
    spec = SYNTHETIC if parameters is None else {**SYNTHETIC, "parameters": parameters}

    with pytest.raises(ValidationRefused, match=message):
        read_workload_config(workload_body(spec, channels=tuple(channels or ())), MAPPED)


def test_a_public_data_set_is_read_where_the_server_has_it_and_mlflow_is_told_and_kept() -> None:
    spec = {
        **SYNTHETIC,
        "parameters": {"public_dataset": "sharegpt", "prompt_input_tokens_mean": 500},
        "tooling": {"version": "0.8.0"},
    }
    mlflow = {"MlflowResourceArn": "arn:aws:sagemaker:us-east-1:111122223333:mlflow-app/a"}
    output = {"S3OutputLocation": "s3://b/p", "MlflowConfig": mlflow}
    workload = read_workload_config(workload_body(spec), MAPPED)

    job = make_benchmark(benchmark_body(OutputConfig=output), workload, ADDRESS)

    assert job.stages[0].arguments[4:6] == ("--data", "/data/sharegpt.json")
    assert b"MlflowConfig is kept: nothing is sent" in job.files["notes.txt"]
    told = describe_benchmark(stored(job, "completed"), SETTINGS)
    assert told["OutputConfig"]["MlflowConfig"] == mlflow
    assert faults_of("DescribeAIBenchmarkJob", told) == ""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"AIWorkloadConfigName": "a"}, "WorkloadSpec.Inline is missing"),
        (workload_body("{"), "AIWorkloadConfigs.WorkloadSpec.Inline: it cannot be read"),
        (workload_body("a: \ud800"), "is not Unicode text"),
    ],
    ids=["none", "text", "half a letter"],
)
def test_a_workload_that_is_no_document_is_refused(body: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationRefused, match=message):
        read_workload_config(body)


@cases("statuses")
def test_statuses_are_the_apis(status: JobStatus, shown: str) -> None:
    job = stored(make_benchmark(benchmark_body(), a_workload(), ADDRESS), status)

    assert describe_benchmark(job, SETTINGS)["AIBenchmarkJobStatus"] == shown


def test_an_answer_names_the_jobs_own_place_and_has_amazons_shape() -> None:
    new = make_benchmark(
        benchmark_body(
            AIWorkloadConfigIdentifier="arn:aws:sagemaker:eu-west-1:111122223333:"
            "ai-workload-config/chat",
            Tags=[{"Key": "team", "Value": "a"}],
        ),
        a_workload(),
        ADDRESS,
    )
    ended = CREATED + timedelta(seconds=90)
    job = stored(new, "failed", started=CREATED, ended=ended, failure="x" * 2000)

    answer = describe_benchmark(job, SETTINGS)

    assert faults_of("DescribeAIBenchmarkJob", answer) == ""
    assert answer.pop("FailureReason") == "x" * 1024
    assert answer == read_tables(__file__)["answer"]
    summary = summarize_benchmark(job, SETTINGS)
    assert faults_of("ListAIBenchmarkJobs", {"AIBenchmarkJobs": [summary]}) == ""
    assert summary["AIWorkloadConfigName"] == "chat"


def test_bodies_of_these_tests_are_amazons() -> None:
    assert faults_of("CreateAIBenchmarkJob", benchmark_body(), way="input") == ""
    assert faults_of("CreateAIWorkloadConfig", workload_body(), way="input") == ""


WORDS = ("", "0", "-1", "1e999", "\x00", "{{", "&a *a", "true", "null", "\U0001f600", "s3://")


@pytest.mark.parametrize("seed", range(30))
def test_any_workload_is_taken_or_refused_by_type(seed: int) -> None:
    chance = random.Random(seed)
    text = json.dumps(SYNTHETIC)
    for _ in range(10):
        place, length = chance.randrange(len(text)), chance.choice((0, 1, 5, 40))
        broken = text[:place] + chance.choice((*WORDS, "a" * 99)) + text[place + length :]
        try:
            found = read_workload_config(workload_body(broken))
        except ValidationRefused as error:
            assert error.message
            assert "\x00" not in error.message
        else:
            assert make_benchmark(benchmark_body(), found, ADDRESS).files["workload.json"]


def test_a_request_template_is_read_from_its_channel_beside_a_data_set() -> None:
    named = "payload_template:/opt/ml/input/data/data-1/x.jinja response_field:text"
    spec = {**SYNTHETIC, "parameters": {"input_file": "a", "extra_inputs": named}}
    places = ("s3://bucket/data/", "s3://bucket/templates/x.jinja")
    (stage,) = make_benchmark(
        benchmark_body(), read_workload_config(workload_body(spec, channels=places)), ADDRESS
    ).stages

    assert stage.arguments[4:8] == (
        *("--data", "s3://bucket/data/"),
        *("--request-template", "s3://bucket/templates/x.jinja"),
    )
