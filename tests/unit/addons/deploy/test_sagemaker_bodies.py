"""Bodies of SageMaker's API for six pairs of a family and an instance type."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator
from cfnlint.api import ManualArgs, lint

from packager.addons.deploy.sagemaker.bodies import requests_of
from packager.addons.deploy.sagemaker.deployer import SageMakerDeployer
from packager.addons.deploy.sagemaker.shapes import input_faults
from packager.addons.deploy.sagemaker.spec import SageMakerSpec
from packager.addons.deploy.sagemaker.times import download_s, health_s
from packager.core.deployment import DeployedWeights, Deployment
from tests.support.cases import cases, read_tables
from tests.support.deployments import PAIRS, ROLE, deployment
from tests.support.refusals import raises_code
from tests.unit.addons.deploy.test_contract import wanted

WANTED = SageMakerSpec(role_arn=ROLE)
TYPES = ("ml.g5.xlarge", "ml.g6e.12xlarge")
MOUNTED = DeployedWeights(kind="mounted", uri="s3://models/llama/")
SHAPES = {name: wanted("sagemaker", one) for name, one in read_tables(__file__)["shapes"].items()}


def bodies(made: Deployment, asked: SageMakerSpec = WANTED) -> dict[str, Any]:
    return {request.operation: request.body for request in requests_of(made, asked)}


def variant(made: Deployment, asked: SageMakerSpec = WANTED) -> Any:
    return bodies(made, asked)["CreateEndpointConfig"]["ProductionVariants"][0]


def model_of(service: str) -> ServiceModel:
    return ServiceModel(Loader().load_service_model(service, "service-2"))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("pair", PAIRS)
def test_every_body_is_one_that_aws_models(pair: str, shape: str) -> None:
    for request in requests_of(deployment(pair), SHAPES[shape]):
        if request.service == "sagemaker":
            assert input_faults(request.operation, request.body) == ()
        else:
            form = model_of(request.service).operation_model(request.operation).input_shape
            assert not ParamValidator().validate(request.body, form).has_errors()


@cases("a_template_is_one_that_cfn_lint_takes")
def test_a_template_is_one_that_cfn_lint_takes(pair: str, shape: str) -> None:
    asked = replace(SHAPES[shape], metrics=False)
    (file,) = SageMakerDeployer("cloudformation").render(deployment(pair), asked).files

    assert [str(one) for one in lint(file.text, config=ManualArgs(regions=["eu-west-1"]))] == []


def test_equal_content_has_one_name_and_other_content_another() -> None:
    once, again = bodies(deployment()), bodies(deployment())
    other = bodies(deployment(env={"NAME": "x"}))

    assert json.dumps(once) == json.dumps(again)
    assert once["CreateModel"]["ModelName"] != other["CreateModel"]["ModelName"]
    assert len({one["CreateEndpointConfig"]["EndpointConfigName"] for one in (once, other)}) == 2
    assert once["CreateEndpoint"]["EndpointName"] == other["CreateEndpoint"]["EndpointName"]


def test_each_pool_has_the_image_of_its_instance_type() -> None:
    other = deployment("sglang-g6e", image=deployment().image.replace("model@", "large@"))
    asked = replace(WANTED, pools=(other,))

    requests = requests_of(deployment(), asked)
    models = [one.body for one in requests if one.operation == "CreateModel"]
    found = variant(deployment(), asked)

    assert [one["PrimaryContainer"]["Image"] for one in models] == [deployment().image, other.image]
    assert found["InstancePools"] == [
        {"InstanceType": instance, "ModelNameOverride": one["ModelName"], "Priority": number}
        for number, (one, instance) in enumerate(zip(models, TYPES, strict=True), 1)
    ]
    assert "InstanceType" not in found
    assert found["ContainerStartupHealthCheckTimeoutInSeconds"] == 3600  # of the slower one


def test_times_are_predictions_with_a_margin_inside_the_limits() -> None:
    assert health_s(deployment(load_s=None)) == 1800
    assert health_s(deployment(load_s=1.0, pull_s=None)) == 60
    assert health_s(deployment(load_s=9000.0)) == 3600
    assert download_s(deployment()) is None
    assert download_s(deployment(weights=MOUNTED, model_bytes=None)) == 3600
    assert download_s(deployment(weights=MOUNTED, model_bytes=1)) == 60


def test_no_template_is_rendered_with_a_credential() -> None:
    token = "hf_" + "a1" * 17
    with raises_code("SecretInFile") as refused:
        SageMakerDeployer("cloudformation").render(deployment(env={"HF_TOKEN": token}), WANTED)
    assert token not in f"{refused.value}{refused.value.hint}"


def test_a_draft_in_a_tree_of_its_own_is_not_rendered_as_a_template() -> None:
    weights = replace(MOUNTED, draft_uri="s3://models/draft/")
    with raises_code("NotInTemplate", match="AdditionalModelDataSources"):
        SageMakerDeployer("cloudformation").render(deployment(weights=weights), WANTED)


@cases("variables_and_scaling_have_limits", count=0, size=1, has_batch=True, wanted={})
def test_variables_and_scaling_have_limits(
    count: int, size: int, has_batch: bool, wanted: dict[str, Any], found: tuple[str, str]
) -> None:
    made = deployment(env={f"NAME_{number}": "x" * size for number in range(count)})
    made = made if has_batch else replace(made, max_batch=None)
    said = SageMakerDeployer().check(made, replace(WANTED, **wanted))
    assert found in [(one.severity, one.code) for one in said]


def test_files_are_named_in_the_order_in_which_they_are_sent() -> None:
    rendered = SageMakerDeployer().render(deployment(), SHAPES["component"])

    requests = requests_of(deployment(), SHAPES["component"])
    assert [file.path for file in rendered.files] == read_tables(__file__)["files"][
        "of_a_component"
    ]
    assert [json.loads(file.text) for file in rendered.files] == [one.body for one in requests]


@cases("no_text_of_an_image_makes_cloudformation_read_a_secret")
def test_no_text_of_an_image_makes_cloudformation_read_a_secret(changes: dict[str, Any]) -> None:
    with raises_code("DynamicReference", match="dynamic reference"):
        SageMakerDeployer("cloudformation").render(deployment(**changes), WANTED)
