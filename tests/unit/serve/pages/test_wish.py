"""The form of a new job: what is wrong is told by field, the rest becomes a document."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from packager.sagemaker.optimization import make_job
from packager.sagemaker.settings import JobSettings
from packager.serve.pages.wish import (
    Wish,
    build_job,
    document_of,
    faults_of,
    read_wish,
    request_of,
)
from tests.support.cases import cases

SETTINGS = JobSettings()
IN_BUCKETS = Wish(
    name="llama-awq",
    model="s3://models/llama/",
    instance="ml.g5.12xlarge",
    quantize="awq",
    output="s3://results/llama/",
)


def here(model: Path, **changes: str) -> Wish:
    return replace(IN_BUCKETS, model=str(model), output="oci:out", **changes)


def test_a_model_in_a_bucket_is_asked_for_as_clients_of_the_api_ask() -> None:
    assert document_of(IN_BUCKETS, SETTINGS) == {
        "OptimizationJobName": "llama-awq",
        "RoleArn": "arn:aws:iam::000000000000:role/packager",
        "ModelSource": {"S3": {"S3Uri": "s3://models/llama/"}},
        "DeploymentInstanceType": "ml.g5.12xlarge",
        "OptimizationConfigs": [
            {"ModelQuantizationConfig": {"OverrideEnvironment": {"OPTION_QUANTIZE": "awq"}}}
        ],
        "OutputConfig": {"S3OutputLocation": "s3://results/llama/"},
        "StoppingCondition": {"MaxRuntimeInSeconds": 36000},
    }


@pytest.mark.parametrize(*cases(__file__, "documents"))
def test_the_api_takes_the_document(changes: dict[str, str]) -> None:
    document = document_of(replace(IN_BUCKETS, **changes), SETTINGS)

    assert document is not None
    assert make_job(document, SETTINGS).kind == "optimization"


@pytest.mark.parametrize(*cases(__file__, "requests"))
def test_what_the_api_cannot_say_is_a_request_of_packager(changes: dict[str, str]) -> None:
    assert document_of(replace(IN_BUCKETS, **changes), SETTINGS) is None


def test_a_directory_means_the_same_wherever_the_job_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)

    request = request_of(here(Path("./model")), SETTINGS)

    assert request["model"] == str(tmp_path / "model")


def test_a_job_is_built_with_what_the_operator_set(tmp_path: Path) -> None:
    settings = JobSettings(
        instance="local", images="docker:demo/llm", base="scratch", options=("--no-cache",)
    )
    job = build_job(here(tmp_path, draft="ngram"), settings)

    assert job.kind == "command"
    assert json.loads(job.files["request.json"]) == {
        "model": str(tmp_path),
        "instance": "local",
        "outputs": ["oci:out", "docker:demo/llm:llama-awq"],
        "quantize": "awq",
        "draft": "ngram",
        "base": "scratch",
    }
    assert [stage.arguments for stage in job.stages] == [
        (
            *("build", "--request", "{job}/request.json", "--record", "{job}/record.json"),
            *("--progress", "json", "--no-cache"),
        )
    ]
    assert job.limits.run_s == 36000


def test_a_head_is_trained_before_the_build(tmp_path: Path) -> None:
    chats = tmp_path / "chats.jsonl"
    chats.write_text("{}")
    job = build_job(here(tmp_path, draft="train", data=str(chats)), SETTINGS)

    train, build = job.stages
    assert train.arguments == (
        *("draft", "train", "--model", str(tmp_path), "--method", "eagle3"),
        *("--data", str(chats), "--output", "{job}/head", "--progress", "json"),
    )
    assert build.arguments[3:5] == ("--draft", "eagle3:{job}/head")


def test_what_is_compiled_is_made_for_files_beside_the_image(tmp_path: Path) -> None:
    settings = JobSettings(images="docker:demo/llm")

    both = request_of(replace(here(tmp_path, compile="on"), output="s3://results/a/"), settings)
    images = request_of(here(tmp_path, compile="on"), settings)

    assert both["weights"] == "mounted"
    assert "weights" not in images


def test_the_operator_says_how_a_head_is_trained(tmp_path: Path) -> None:
    settings = JobSettings(training=("--max-steps", "20"))

    train, _ = build_job(here(tmp_path, draft="train"), settings).stages

    assert train.arguments[-4:] == ("--max-steps", "20", "--progress", "json")


def test_a_form_that_is_right_has_no_faults() -> None:
    assert faults_of(IN_BUCKETS, SETTINGS) == {}


@pytest.mark.parametrize(*cases(__file__, "faults"))
def test_what_is_wrong_is_told_beside_its_field(
    changes: dict[str, str], field: str, words: str
) -> None:
    found = faults_of(replace(IN_BUCKETS, **changes), SETTINGS)

    assert list(found) == [field]
    assert words in found[field]


def test_a_server_with_a_place_for_images_asks_for_no_other() -> None:
    settings = JobSettings(images="docker:demo/llm", instance="local")

    assert faults_of(replace(IN_BUCKETS, output="", instance=""), settings) == {}


def test_fields_that_no_form_has_are_left_out() -> None:
    assert read_wish({"name": " a ", "token": "t", "do": "create"}) == Wish(name="a")
