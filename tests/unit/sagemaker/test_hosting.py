"""Models and endpoint configurations as containers, and what is refused of them."""

from __future__ import annotations

from typing import Any

import pytest

from packager.sagemaker.hosting import (
    ModelData,
    ServerSpec,
    VariantSpec,
    check_component,
    check_endpoint_config,
    check_model,
    data_of,
    variants_of,
)
from packager.sagemaker.refusals import ValidationRefused
from tests.support.cases import cases

IMAGE = "registry.example/tiny-llama@sha256:" + "0" * 64


def model(**container: Any) -> dict[str, Any]:
    return {"ModelName": "m", "PrimaryContainer": {"Image": IMAGE, **container}}


def source(uri: str, kind: str = "S3Prefix", packing: str = "None") -> dict[str, Any]:
    return {"S3Uri": uri, "S3DataType": kind, "CompressionType": packing}


def config(*variants: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"EndpointConfigName": "c", "ProductionVariants": list(variants), **more}


def variant(name: str = "AllTraffic", **more: Any) -> dict[str, Any]:
    return {"VariantName": name, "ModelName": "m", "InstanceType": "ml.g5.xlarge", **more}


def test_a_variant_is_the_container_of_its_model() -> None:
    body = model(
        Environment={"OPTION_TENSOR_PARALLEL_DEGREE": "1"},
        ModelDataSource={"S3DataSource": source("s3://models/tiny/")},
    )
    asked = config(
        variant(
            InitialVariantWeight=0.25,
            InitialInstanceCount=2,
            ContainerStartupHealthCheckTimeoutInSeconds=900,
            ModelDataDownloadTimeoutInSeconds=120,
        )
    )

    assert variants_of(asked, {"m": body}) == (
        VariantSpec(
            name="AllTraffic",
            weight=0.25,
            count=2,
            instance_type="ml.g5.xlarge",
            server=ServerSpec(
                image=IMAGE,
                environment={"OPTION_TENSOR_PARALLEL_DEGREE": "1"},
                data=(ModelData("s3://models/tiny/", "/opt/ml/model", "prefix"),),
                download_s=120,
                health_s=900,
            ),
        ),
    )


def test_a_model_in_a_list_of_one_is_the_same() -> None:
    body = {"ModelName": "m", "Containers": [{"Image": IMAGE}]}

    (found,) = variants_of(config(variant()), {"m": body})

    assert found.server == ServerSpec(image=IMAGE, environment={}, download_s=3600, health_s=480)


@pytest.mark.parametrize(*cases(__file__, "data"))
def test_model_data_have_their_folder(container: dict[str, Any], data: tuple[Any, ...]) -> None:
    assert data_of({"Image": IMAGE, **container}) == (ModelData(*data),)


def test_a_variant_survives_being_written_down() -> None:
    server = ServerSpec(
        image=IMAGE,
        environment={"A": "1"},
        data=(ModelData("s3://b/k", "/opt/ml/model", "archive"),),
        memory_mb=512,
        accelerators=2,
    )
    with_model = VariantSpec(name="a", weight=0.5, count=1, instance_type="ml.x", server=server)
    without = VariantSpec(name="b", weight=1.0, count=1, instance_type="ml.x", server=None)

    assert VariantSpec.read(with_model.document()) == with_model
    assert VariantSpec.read(without.document()) == without


@pytest.mark.parametrize(*cases(__file__, "models"))
def test_a_model_that_cannot_run_here_is_refused(body: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationRefused, match=said):
        check_model(body)


@pytest.mark.parametrize(
    ("environment", "most"),
    [({"A": "x" * 1025}, 1024), ({f"A{n}": "x" * 1000 for n in range(40)}, 32768)],
    ids=["one", "all"],
)
def test_variables_that_are_too_long_are_refused(environment: dict[str, str], most: int) -> None:
    with pytest.raises(ValidationRefused, match=f"SageMaker takes {most}"):
        check_model(model(Environment=environment))


@pytest.mark.parametrize(*cases(__file__, "configurations"))
def test_a_configuration_that_cannot_be_done_is_refused(body: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationRefused, match=said):
        check_endpoint_config(body)


def test_data_capture_that_is_off_is_accepted() -> None:
    check_endpoint_config(config(variant(), DataCaptureConfig={"EnableCapture": False}))


def test_a_component_has_limits_and_no_accelerator_that_it_does_not_ask_for() -> None:
    spec = check_component(
        {
            "Container": {"Image": IMAGE, "ArtifactUrl": "s3://b/m.tar.gz"},
            "StartupParameters": {"ContainerStartupHealthCheckTimeoutInSeconds": 60},
            "ComputeResourceRequirements": {
                "MinMemoryRequiredInMb": 128,
                "MaxMemoryRequiredInMb": 256,
            },
        },
        None,
    )

    assert spec == ServerSpec(
        image=IMAGE,
        environment={},
        data=(ModelData("s3://b/m.tar.gz", "/opt/ml/model", "archive"),),
        health_s=60,
        memory_mb=256,
        accelerators=0,
    )


def test_a_component_of_a_model_has_the_models_container() -> None:
    wanted = {"MinMemoryRequiredInMb": 128, "NumberOfAcceleratorDevicesRequired": 2.0}

    spec = check_component({"ComputeResourceRequirements": wanted}, model(Environment={"A": "1"}))

    assert (spec.environment, spec.accelerators) == ({"A": "1"}, 2)


@pytest.mark.parametrize(*cases(__file__, "components"))
def test_a_component_that_cannot_run_here_is_refused(
    specification: dict[str, Any], own: dict[str, Any] | None, said: str
) -> None:
    with pytest.raises(ValidationRefused, match=said):
        check_component(specification, own)
