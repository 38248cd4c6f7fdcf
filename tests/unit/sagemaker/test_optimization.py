"""What a document of CreateOptimizationJob becomes: the commands, exactly."""

from __future__ import annotations

import json
from typing import Any

import pytest

from packager.catalog.instances import find_instance
from packager.jobs.values import Limits, NewJob
from packager.sagemaker.optimization import make_job, techniques
from packager.sagemaker.refusals import ValidationRefused
from packager.sagemaker.settings import JobSettings
from packager.sagemaker.shapes import service_model
from tests.support.cases import cases
from tests.support.sagemaker_bodies import (
    AWQ,
    DJL,
    EAGLE_BUILT_IN_DATA,
    EAGLE_OWN_DATA,
    EAGLE_OWN_HEAD,
    MODEL_WITH_HEAD,
    MODELS,
    SDK_TAGS,
    compilation,
    quantization,
    sharding,
)

SETTINGS = JobSettings(images="docker:jobs")
LOCAL = JobSettings(images="docker:jobs", instance="local", base="embedded:vllm-cpu")


def _made(body: dict[str, Any], settings: JobSettings = SETTINGS) -> NewJob:
    return make_job(body, settings, find_model=MODELS.get)


def _request(body: dict[str, Any], settings: JobSettings = SETTINGS) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(_made(body, settings).files["request.json"])
    return read


def _commands(body: dict[str, Any], settings: JobSettings = SETTINGS) -> list[str]:
    return [" ".join(stage.arguments) for stage in _made(body, settings).stages]


def _refusal(body: dict[str, Any], settings: JobSettings = SETTINGS) -> str:
    with pytest.raises(ValidationRefused) as caught:
        _made(body, settings)
    return str(caught.value)


def test_the_body_of_the_sdk_builds_a_quantized_image_and_its_files() -> None:
    job = _made({**AWQ, "Tags": SDK_TAGS})

    assert (job.kind, job.name) == ("optimization", "modelbuilderjob-3f2a")
    assert [" ".join(stage.arguments) for stage in job.stages] == [
        "build --request {job}/request.json --output s3://results/out/ "
        "--output docker:jobs:modelbuilderjob-3f2a --record {job}/record.json"
    ]
    assert json.loads(job.files["request.json"]) == {
        "instance": "ml.g5.12xlarge",
        "model": "s3://models/tiny/",
        "quantize": "awq",
        "region": "us-east-1",
    }
    assert job.limits == Limits(run_s=36000)
    assert job.tags == {"Key": "OptimizationJobName", "Value": "modelbuilderjob-3f2a"}
    assert job.document == {**AWQ, "Tags": SDK_TAGS}


def test_a_head_is_trained_on_the_users_data_and_built_in() -> None:
    assert _commands(EAGLE_OWN_DATA) == [
        "draft train --model s3://models/qwen3-32b/ --method eagle3 --data s3://datasets/chats/ "
        "--output {job}/head",
        "build --request {job}/request.json --draft eagle3:{job}/head "
        "--output s3://results/eagle/ --output docker:jobs:eagle-own-data "
        "--record {job}/record.json",
    ]
    assert _request(EAGLE_OWN_DATA) == {
        "instance": "ml.p5.48xlarge",
        "model": "s3://models/qwen3-32b/",
        "region": "us-east-1",
        "family": "lmi",
        "container_version": "0.36.0-lmi28.0.0-cu130",
    }


def test_a_head_of_the_users_own_is_trained_on() -> None:
    assert _commands(EAGLE_OWN_HEAD)[0] == (
        "draft train --model s3://models/qwen3-32b/ --method eagle3 --data s3://datasets/chats/ "
        "--from s3://models/qwen3-eagle/ --output {job}/head"
    )


def test_without_data_a_head_is_trained_on_the_texts_that_packager_brings() -> None:
    assert _commands(EAGLE_BUILT_IN_DATA)[0] == (
        "draft train --model s3://models/qwen3-32b/ --method eagle3 --data default "
        "--output {job}/head"
    )


def test_data_that_a_manifest_lists_is_marked() -> None:
    source = {"S3Uri": "s3://datasets/chats.manifest", "S3DataType": "ManifestFile"}
    config = {
        "ModelSpeculativeDecodingConfig": {"Technique": "EAGLE", "TrainingDataSource": source}
    }

    assert (
        "--data manifest:s3://datasets/chats.manifest "
        in _commands({**EAGLE_OWN_DATA, "OptimizationConfigs": [config]})[0]
    )


def test_a_head_and_quantization_are_stacked() -> None:
    both = [*AWQ["OptimizationConfigs"], *EAGLE_OWN_DATA["OptimizationConfigs"]]
    body = {**AWQ, "OptimizationConfigs": both}

    assert [stage.name for stage in _made(body).stages] == ["train", "build"]
    assert _request(body)["quantize"] == "awq"
    assert techniques(body) == ("Quantization", "SpeculativeDecoding")


@pytest.mark.parametrize(*cases(__file__, "variables"))
def test_every_variable_becomes_a_field(
    environment: dict[str, str], fields: dict[str, Any]
) -> None:
    same = {"instance": "ml.g5.12xlarge", "model": "s3://models/tiny/", "region": "us-east-1"}

    assert _request(quantization(**environment)) == {**same, **fields}


@pytest.mark.parametrize(*cases(__file__, "wishes"))
def test_a_wish_that_cannot_be_followed_is_refused_by_name(
    environment: dict[str, str], told: str
) -> None:
    assert told in _refusal(quantization(**environment))


def test_a_secret_is_not_repeated() -> None:
    assert "hf_abc" not in _refusal(quantization(HF_TOKEN="hf_abc"))


@pytest.mark.parametrize(*cases(__file__, "compilers"))
def test_models_are_compiled_for_the_devices_of_the_instance(
    instance: str, variables: dict[str, str], compiler: str
) -> None:
    assert _request(compilation(instance, **variables))["compile"] == compiler


def test_an_image_of_lmi_decides_on_family_and_version() -> None:
    image = f"{DJL.replace('us-west-2', 'eu-west-1')}:0.33.0-lmi15.0.0-cu128"
    config = {"ModelQuantizationConfig": {"Image": image}}
    found = _request({**AWQ, "OptimizationConfigs": [config]})

    assert (found["family"], found["container_version"]) == ("lmi", "0.33.0-lmi15.0.0-cu128")


def test_an_image_of_tensorrt_llm_compiles_with_it() -> None:
    config = {"ModelCompilationConfig": {"Image": f"{DJL}:0.33.0-tensorrtllm0.21.0-cu128"}}

    assert _request({**AWQ, "OptimizationConfigs": [config]})["compile"] == "tensorrt_llm"


def test_sharding_fixes_how_the_weights_are_split() -> None:
    assert _request(sharding(OPTION_TENSOR_PARALLEL_DEGREE="4"))["tp_degree"] == 4


def test_sharding_into_an_open_format_splits_the_weights_ahead_of_time() -> None:
    asked = sharding(OPTION_TENSOR_PARALLEL_DEGREE="4", OPTION_LOAD_FORMAT="sharded_state")

    assert _request(asked)["load_format"] == "sharded_state"
    assert "load_format" not in _request(sharding(OPTION_TENSOR_PARALLEL_DEGREE="4"))


@pytest.mark.parametrize(*cases(__file__, "refused"))
def test_what_the_service_refuses_is_refused(changed: dict[str, Any], told: str) -> None:
    assert told in _refusal({**AWQ, **changed})


def test_where_the_operator_builds_for_another_machine_degrees_and_images_are_left_out() -> None:
    config = {
        "ModelQuantizationConfig": {
            "Image": f"{DJL}:0.36.0-lmi28.0.0-cu130",
            "OverrideEnvironment": {"OPTION_TENSOR_PARALLEL_DEGREE": "4"},
        }
    }

    assert _request({**AWQ, "OptimizationConfigs": [config]}, LOCAL) == {
        "base": "embedded:vllm-cpu",
        "instance": "local",
        "model": "s3://models/tiny/",
        "quantize": "awq",
        "region": "us-east-1",
    }


def test_an_empty_base_leaves_the_image_that_is_named() -> None:
    config = {"ModelQuantizationConfig": {"Image": f"{DJL}:0.36.0-lmi28.0.0-cu130"}}
    body = {**AWQ, "OptimizationConfigs": [config]}

    empty = _request(body, JobSettings(base="scratch"))
    own = _request(body, JobSettings(base="docker:own:1"))

    assert (empty["family"], empty["container_version"]) == ("lmi", "0.36.0-lmi28.0.0-cu130")
    assert not {"family", "container_version"} & own.keys()


def test_what_is_compiled_is_made_for_files_beside_the_image() -> None:
    """One build writes both, and files are compiled for one place of the model."""
    assert _request(compilation(), SETTINGS)["weights"] == "mounted"
    assert "weights" not in _request(compilation(), JobSettings())
    assert "weights" not in _request(AWQ, SETTINGS)


def test_the_operator_says_where_steps_run() -> None:
    ray = JobSettings(executor="ray", address="10.0.0.1:6379", training=("--max-steps", "6"))
    request, commands = _request(EAGLE_OWN_DATA, ray), _commands(EAGLE_OWN_DATA, ray)

    assert (request["executor"], request["address"]) == ("ray", "10.0.0.1:6379")
    assert commands[0].endswith("--executor ray --address 10.0.0.1:6379 --max-steps 6")
    assert "docker:" not in commands[1]


@pytest.mark.parametrize(*cases(__file__, "images"))
def test_images_are_tagged_with_the_name_of_the_job(images: str, output: str) -> None:
    assert output in _made(AWQ, JobSettings(images=images)).stages[0].arguments


def test_what_a_registered_model_sets_counts_less_than_what_the_job_sets() -> None:
    container = {
        **MODEL_WITH_HEAD["PrimaryContainer"],
        "Environment": {"OPTION_MAX_MODEL_LEN": "1024", "OPTION_DTYPE": "bf16"},
    }
    model = {**MODEL_WITH_HEAD, "PrimaryContainer": container}
    body = {
        **EAGLE_OWN_HEAD,
        "OptimizationEnvironment": {"OPTION_MAX_MODEL_LEN": "2048"},
    }
    job = make_job(body, SETTINGS, find_model={"qwen3-32b-eagle": model}.get)
    request = json.loads(job.files["request.json"])

    assert (request["max_total_tokens"], request["dtype"]) == (2048, "bfloat16")


@pytest.mark.parametrize(*cases(__file__, "models"))
def test_a_registered_model_without_plain_files_is_refused(
    container: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValidationRefused) as caught:
        make_job(EAGLE_OWN_DATA, SETTINGS, find_model=lambda _: {"PrimaryContainer": container})

    assert told in str(caught.value)


def test_a_registered_model_may_be_one_of_a_hub() -> None:
    container = {"Environment": {"HF_MODEL_ID": "org/model"}}
    job = make_job(EAGLE_OWN_DATA, SETTINGS, find_model=lambda _: {"PrimaryContainer": container})

    assert json.loads(job.files["request.json"])["model"] == "org/model"


def test_the_catalog_knows_every_instance_that_a_job_may_name() -> None:
    names = service_model()["shapes"]["OptimizationJobDeploymentInstanceType"]["enum"]

    assert len(names) >= 54
    assert {find_instance(name).name for name in names} == set(names)


def test_a_result_becomes_a_model_of_its_own() -> None:
    output = {**AWQ["OutputConfig"], "SageMakerModel": {"ModelName": "made"}}
    job = _made({**AWQ, "OutputConfig": output}, JobSettings(region="eu-west-1"))

    assert " ".join(job.stages[-1].arguments) == (
        "jobs register-model --model {job}/model.json --record {job}/record.json "
        "--region eu-west-1 --account 000000000000"
    )
    assert json.loads(job.files["model.json"]) == {
        "ModelName": "made",
        "ExecutionRoleArn": AWQ["RoleArn"],
        "PrimaryContainer": {
            "ModelDataSource": {
                "S3DataSource": {
                    "S3Uri": "s3://results/out/",
                    "S3DataType": "S3Prefix",
                    "CompressionType": "None",
                }
            }
        },
    }


def test_an_image_of_ours_has_the_files_inside() -> None:
    output = {**AWQ["OutputConfig"], "SageMakerModel": {"ModelName": "made"}}
    job = _made({**AWQ, "OutputConfig": output})

    assert json.loads(job.files["model.json"])["PrimaryContainer"] == {}


@pytest.mark.parametrize(*cases(__file__, "names"))
def test_a_result_needs_a_name_that_no_model_has(made: dict[str, str], told: str) -> None:
    output = {**AWQ["OutputConfig"], "SageMakerModel": made}

    assert told in _refusal({**AWQ, "OutputConfig": output})


def test_a_compiled_model_is_made_of_its_image_and_its_files() -> None:
    output = {**AWQ["OutputConfig"], "SageMakerModel": {"ModelName": "made"}}

    compiled = _made({**compilation(), "OutputConfig": output}, SETTINGS)
    quantized = _made({**AWQ, "OutputConfig": output}, SETTINGS)

    container = json.loads(compiled.files["model.json"])["PrimaryContainer"]
    assert container["ModelDataSource"]["S3DataSource"]["S3Uri"] == "s3://results/out/"
    assert json.loads(quantized.files["model.json"])["PrimaryContainer"] == {}


def test_what_a_technique_sets_wins_over_what_the_job_sets() -> None:
    body = {
        **quantization(OPTION_MAX_MODEL_LEN="2048"),
        "OptimizationEnvironment": {"OPTION_MAX_MODEL_LEN": "1024", "OPTION_DTYPE": "fp16"},
    }

    assert _request(body)["max_total_tokens"] == 2048
    assert _request(body)["dtype"] == "float16"


def test_the_files_are_encrypted_with_the_key_that_is_named() -> None:
    output = {**AWQ["OutputConfig"], "KmsKeyId": "alias/own"}
    [stage] = _made({**AWQ, "OutputConfig": output}).stages

    assert stage.environment == {"PACKAGER_S3_KMS_KEY": "alias/own"}
