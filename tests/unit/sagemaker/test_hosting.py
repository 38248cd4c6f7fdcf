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


@pytest.mark.parametrize(
    ("container", "data"),
    [
        ({"ModelDataUrl": "s3://b/m.tar.gz"}, ("s3://b/m.tar.gz", "/opt/ml/model", "archive")),
        (
            {"ModelDataSource": {"S3DataSource": source("s3://b/m.tgz", "S3Object", "Gzip")}},
            ("s3://b/m.tgz", "/opt/ml/model", "archive"),
        ),
        (
            {"ModelDataSource": {"S3DataSource": source("s3://b/m.bin", "S3Object")}},
            ("s3://b/m.bin", "/opt/ml/model", "object"),
        ),
        (
            {
                "AdditionalModelDataSources": [
                    {"ChannelName": "draft_model", "S3DataSource": source("s3://b/draft/")}
                ]
            },
            (
                "s3://b/draft/",
                "/opt/ml/additional-model-data-sources/draft_model",
                "prefix",
            ),
        ),
    ],
    ids=["url", "archive", "object", "channel"],
)
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


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"ModelName": "m"}, "PrimaryContainer.Image is missing"),
        (model(Mode="MultiModel"), "PrimaryContainer.Mode MultiModel is not supported"),
        (model(ModelPackageName="p"), "PrimaryContainer.ModelPackageName is not supported"),
        (
            {"ModelName": "m", "Containers": [{"Image": "a"}, {"Image": "b"}]},
            "a model of several Containers is not supported",
        ),
        (model(ModelDataUrl="https://s3.example/m.tar.gz"), "which is not s3://BUCKET/KEY"),
        (
            model(ModelDataUrl="s3://b/m", ModelDataSource={"S3DataSource": source("s3://b/m/")}),
            "Both ModelDataUrl and ModelDataSource",
        ),
        (
            model(ModelDataSource={"S3DataSource": source("s3://b/m/", "S3Prefix", "Gzip")}),
            "Gzip needs S3DataType S3Object",
        ),
        (
            model(
                AdditionalModelDataSources=[
                    {"ChannelName": "..", "S3DataSource": source("s3://b/m/")}
                ]
            ),
            "The channel name .. cannot be used",
        ),
        (model(Environment={"A": "x" * 1025}), "SageMaker takes 1024"),
        (model(Environment={f"A{n}": "x" * 1000 for n in range(40)}), "SageMaker takes 32768"),
    ],
)
def test_a_model_that_cannot_run_here_is_refused(body: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationRefused, match=said.replace("(", r"\(")):
        check_model(body)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (config(variant(), ShadowProductionVariants=[variant("b")]), "ShadowProductionVariants"),
        (config(variant(), AsyncInferenceConfig={"OutputConfig": {}}), "AsyncInferenceConfig"),
        (
            config(variant(), DataCaptureConfig={"EnableCapture": True}),
            "DataCaptureConfig.EnableCapture",
        ),
        (
            config(variant(ServerlessConfig={"MemorySizeInMB": 1024})),
            "ProductionVariants.AllTraffic.ServerlessConfig",
        ),
        (config(variant("a"), variant("a")), "a is used more than once"),
        (config({"VariantName": "a", "ModelName": "m"}), "InstanceType is missing"),
        (
            config(variant(), {"VariantName": "b", "InstanceType": "ml.g5.xlarge"}),
            "Either all production variants name a model, or none does",
        ),
        (config({"VariantName": "b", "InstanceType": "ml.g5.xlarge"}), "ExecutionRoleArn"),
    ],
)
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


@pytest.mark.parametrize(
    ("specification", "own", "said"),
    [
        ({}, None, "either ModelName or Container"),
        ({"Container": {"Image": IMAGE}}, model(), "either ModelName or Container"),
        ({"BaseInferenceComponentName": "b"}, model(), "BaseInferenceComponentName"),
        (
            {"ComputeResourceRequirements": {"NumberOfAcceleratorDevicesRequired": 1.5}},
            model(),
            "a part of an accelerator",
        ),
    ],
)
def test_a_component_that_cannot_run_here_is_refused(
    specification: dict[str, Any], own: dict[str, Any] | None, said: str
) -> None:
    with pytest.raises(ValidationRefused, match=said):
        check_component(specification, own)
