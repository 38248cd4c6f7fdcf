"""What a document of CreateOptimizationJob becomes: the commands, exactly."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from packager.addons.deploy.sagemaker.api_refusals import ValidationRefused
from packager.addons.deploy.sagemaker.shapes import service_model
from packager.addons.server.jobs.rows import asked_text
from packager.addons.server.jobs.values import JobLimits, SecretJob
from packager.addons.server.sagemaker.jumpstart import JumpStart
from packager.addons.server.sagemaker.optimization import make_job, techniques
from packager.addons.server.sagemaker.settings import JobSettings
from packager.catalog.instances import find_instance
from tests.support.cases import cases, shows
from tests.support.sagemaker_bodies import (
    AWQ,
    EAGLE_BUILT_IN_DATA,
    EAGLE_OWN_DATA,
    EAGLE_OWN_HEAD,
    MODELS,
    SDK_TAGS,
    quantization,
)

SETTINGS = JobSettings(images="docker:jobs")
BUILD = "build --request {job}/request.json --output s3://results/out/ --record {job}/record.json"
BODIES = {
    "awq": AWQ,
    "own data": EAGLE_OWN_DATA,
    "own head": EAGLE_OWN_HEAD,
    "built-in data": EAGLE_BUILT_IN_DATA,
}


def _made(body: dict[str, Any], settings: JobSettings = SETTINGS) -> SecretJob:
    return make_job(body, settings, find_model=MODELS.get)


def _request(body: dict[str, Any], settings: JobSettings = SETTINGS) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(_made(body, settings).files["request.json"])
    return read


def _refusal(body: dict[str, Any], settings: JobSettings = SETTINGS) -> str:
    with pytest.raises(ValidationRefused) as caught:
        _made(body, settings)
    return str(caught.value)


def test_a_head_and_quantization_are_stacked() -> None:
    both = [*AWQ["OptimizationConfigs"], *EAGLE_OWN_DATA["OptimizationConfigs"]]
    body = {**AWQ, "OptimizationConfigs": both}

    assert [stage.name for stage in _made(body).stages] == ["train", "build"]
    assert _request(body)["quantize"] == "awq"
    assert techniques(body) == ("Quantization", "SpeculativeDecoding")


@cases("jobs")
def test_a_document_becomes_commands_and_a_request(case: dict[str, Any]) -> None:
    body = {**BODIES[case.get("body", "awq")], **case.get("changed", {})}
    settings = JobSettings(**{"images": "docker:jobs", **case.get("settings", {})})
    models = {**MODELS, **case.get("models", {})}

    job = make_job(body, settings, find_model=models.get)

    documents = {
        name: json.loads(data) for name, data in job.files.items() if name.endswith(".json")
    }
    commands = [" ".join(stage.arguments) for stage in job.stages]
    assert commands == case.get("commands", commands)
    for text in case.get("says", ()):
        assert text in "\n".join(commands)
    for text in case.get("says_not", ()):
        assert text not in "\n".join(commands)
    assert documents["request.json"] == case.get("request_is", documents["request.json"])
    assert shows(documents["request.json"], case.get("request", {})), documents
    assert not {*case.get("lacks", ())} & documents["request.json"].keys()
    assert documents.get("model.json") == case.get("model", documents.get("model.json"))
    assert shows(dict(job.stages[-1].environment), case.get("environment", {}))


def test_a_job_has_the_limits_and_tags_of_its_document() -> None:
    job = _made({**AWQ, "Tags": SDK_TAGS})

    assert (job.kind, job.name) == ("optimization", "modelbuilderjob-3f2a")
    assert job.limits == JobLimits(run_s=36000)
    assert job.tags == {"Key": "OptimizationJobName", "Value": "modelbuilderjob-3f2a"}
    assert job.document == {**AWQ, "Tags": SDK_TAGS}


@cases("variables")
def test_every_variable_becomes_a_field(
    environment: dict[str, str], fields: dict[str, Any]
) -> None:
    same = {"instance": "ml.g5.12xlarge", "model": "s3://models/tiny/", "region": "us-east-1"}

    assert _request(quantization(**environment)) == {**same, **fields}


@cases("wishes")
def test_a_wish_that_cannot_be_followed_is_refused_by_name(
    environment: dict[str, str], told: str
) -> None:
    assert told in _refusal(quantization(**environment))


def test_a_secret_is_not_repeated() -> None:
    assert "hf_abc" not in _refusal(quantization(AWS_SECRET_ACCESS_KEY="hf_abc"))


def test_a_hub_token_is_used_and_neither_stored_nor_described() -> None:
    token = "hf_" + "a1" * 17
    body = {**AWQ, "OptimizationEnvironment": {"HUGGING_FACE_HUB_TOKEN": token}}

    job = _made(body)

    assert job.secrets == {"HF_TOKEN": token}
    assert job.document["OptimizationEnvironment"] == {"HUGGING_FACE_HUB_TOKEN": "***"}
    assert token not in f"{asked_text(job)}{job}"


@cases("documented")
def test_a_document_of_aws_is_taken(case: dict[str, Any]) -> None:
    configs = case["configs"] if "configs" in case else [case["config"]]
    body = {
        **AWQ,
        "DeploymentInstanceType": case.get("instance", "ml.g5.12xlarge"),
        "OptimizationEnvironment": case.get("environment", {}),
        "OptimizationConfigs": configs,
        **case.get("body", {}),
    }
    settings = JobSettings(**case.get("settings", {}))

    job = _made(body, settings)

    assert shows(_request(body, settings), case["request"])
    (build,) = job.stages
    assert " ".join(build.arguments) == BUILD
    assert job.document["OptimizationConfigs"] == case.get("described", configs)
    assert shows(job.document, case.get("body", {}))
    for text in case.get("notes", ()):
        assert text in job.files["notes.txt"].decode()


@cases("refused")
def test_what_the_service_refuses_is_refused(changed: dict[str, Any], told: str) -> None:
    assert told in _refusal({**AWQ, **changed})


@cases("models")
def test_a_registered_model_without_plain_files_is_refused(
    container: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValidationRefused) as caught:
        make_job(EAGLE_OWN_DATA, SETTINGS, find_model=lambda _: {"PrimaryContainer": container})

    assert told in str(caught.value)


def test_the_catalog_knows_every_instance_that_a_job_may_name() -> None:
    names = service_model()["shapes"]["OptimizationJobDeploymentInstanceType"]["enum"]

    assert len(names) >= 54
    assert {find_instance(name).name for name in names} == set(names)


def test_artifacts_of_jumpstart_are_at_the_mapped_place_and_described_as_they_were_named() -> None:
    uri = "s3://jumpstart-cache-prod-us-east-1/packager/meta-tiny/"
    mapped = JumpStart(places={"meta-tiny": "/models/tiny"})
    body = {**AWQ, "ModelSource": {"S3": {"S3Uri": uri}}}

    job = make_job(body, replace(SETTINGS, jumpstart=mapped))

    assert json.loads(job.files["request.json"])["model"] == "/models/tiny"
    assert job.document["ModelSource"]["S3"]["S3Uri"] == uri
    assert mapped.find("s3://other/packager/meta-tiny/") is None


_DATA = {"S3DataType": "S3Prefix", "CompressionType": "None"}


def test_a_draft_of_jumpstart_is_at_the_mapped_place() -> None:
    mapped = JumpStart(
        places={"meta-tiny": "s3://models/tiny/"}, drafts={"meta-tiny": "s3://models/small/"}
    )
    uri = "s3://jumpstart-cache-prod-us-east-1/packager/meta-tiny/"
    of_draft = "s3://sagemaker-sd-models-prod-us-east-1/packager/meta-tiny/draft/"
    draft = {"S3DataSource": {**_DATA, "S3Uri": of_draft}, "ChannelName": "draft_model"}
    container = {
        "ModelDataSource": {"S3DataSource": {**_DATA, "S3Uri": uri}},
        "AdditionalModelDataSources": [draft],
        "Environment": {
            "OPTION_SPECULATIVE_DRAFT_MODEL":
            "/opt/ml/additional-model-data-sources/draft_model/"
        },
    }  # fmt: skip
    model = {"ModelName": "m", "PrimaryContainer": container}
    body = {**AWQ, "ModelSource": {"SageMakerModel": {"ModelName": "m"}}}

    job = make_job(body, replace(SETTINGS, jumpstart=mapped), find_model={"m": model}.get)

    request = json.loads(job.files["request.json"])
    assert (request["model"], request["draft"]) == ("s3://models/tiny/", "s3://models/small/")
