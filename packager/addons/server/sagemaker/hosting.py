"""Models, endpoint configurations and inference components as containers of this machine.

Unsupported members are refused, not ignored: a notebook must not believe that it has a shadow
variant. `docs/serve.md` lists members that are accepted without effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from packager.addons.deploy.sagemaker.api_refusals import ValidationRefused
from packager.addons.server.sagemaker.data_capture import check_capture
from packager.core.references import parse_bucket_place
from packager.core.serving import MOUNTED_MODEL_DIR
from packager.engines.sagemaker import check_limits

ADDITIONAL_DIR = "/opt/ml/additional-model-data-sources"
HEALTH_S = 480  # SageMaker's default
DOWNLOAD_S = 3600
FAILURE_LENGTH = 1024  # characters of a FailureReason

_Document = Mapping[str, Any]

# Members whose effect is impossible here.
_OF_CONTAINERS = ("ModelPackageName", "InferenceSpecificationName", "MultiModelConfig")
_OF_CONFIGS = (
    *("AsyncInferenceConfig", "ExplainerConfig", "ShadowProductionVariants"),
    "CrossRegionTrafficConfig",
)
_OF_VARIANTS = ("ServerlessConfig", "AcceleratorType", "CoreDumpConfig")


@dataclass(frozen=True, slots=True)
class ModelData:
    """Files of a bucket that a container finds in a folder."""

    uri: str  # s3://BUCKET/KEY
    folder: str  # in the container
    kind: Literal["prefix", "object", "archive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """One container that answers /ping and /invocations on port 8080."""

    image: str
    environment: Mapping[str, str]
    data: tuple[ModelData, ...] = ()
    download_s: int = DOWNLOAD_S
    health_s: int = HEALTH_S
    memory_mb: int | None = None  # beyond it the container is killed; None: no limit
    accelerators: int | None = None  # None: all that there are

    def document(self) -> dict[str, Any]:
        """Return the same as JSON has it."""
        return {**asdict(self), "data": [asdict(one) for one in self.data]}

    @classmethod
    def read(cls, document: _Document) -> ServerSpec:
        """Return what `document` wrote."""
        data = tuple(ModelData(**one) for one in document["data"])
        return cls(**{**document, "data": data})


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantSpec:
    """A production variant: its share of the requests, and its container."""

    name: str
    weight: float
    count: int  # requested instances; one container replaces them
    instance_type: str
    server: ServerSpec | None  # None: inference components have their own
    pools: tuple[str, ...] = ()  # instance types, of which `instance_type` is one

    def document(self) -> dict[str, Any]:
        """Return the same as JSON has it."""
        server = self.server.document() if self.server else None
        return {**asdict(self), "server": server, "pools": list(self.pools)}

    @classmethod
    def read(cls, document: _Document) -> VariantSpec:
        """Return what `document` wrote."""
        server = document["server"]
        pools = tuple(document.get("pools", ()))
        read = ServerSpec.read(server) if server else None
        return cls(**{**document, "server": read, "pools": pools})


def check_model(body: _Document) -> None:
    """Refuse a model that cannot run here; raises `ValidationRefused`."""
    container = container_of(body)
    if not container.get("Image"):
        raise ValidationRefused(
            "You must provide an inference image: PrimaryContainer.Image is missing."
        )
    if body.get("PrimaryContainer") and body.get("Containers"):
        raise ValidationRefused("Both PrimaryContainer and Containers were given; give one.")
    if (body.get("InferenceExecutionConfig") or {}).get("Mode") == "Direct":
        raise _unsupported("InferenceExecutionConfig.Mode Direct")
    _refuse_any(container, _OF_CONTAINERS, "PrimaryContainer")
    if container.get("Mode", "SingleModel") != "SingleModel":
        raise _unsupported("PrimaryContainer.Mode MultiModel")
    _check_environment(container.get("Environment") or {})
    data_of(container)


def container_of(body: _Document) -> Mapping[str, Any]:
    """Return the one container of a model; raises `ValidationRefused` for a pipeline."""
    several: Sequence[Mapping[str, Any]] = body.get("Containers") or ()
    if len(several) > 1:
        raise _unsupported("a model of several Containers")
    found: Mapping[str, Any] = several[0] if several else body.get("PrimaryContainer") or {}
    return found


def check_endpoint_config(body: _Document, *, captures: str = "") -> None:
    """Refuse an endpoint configuration that is impossible here.

    `captures` is the only directory of this machine for captures, "" for none.
    """
    _refuse_any(body, _OF_CONFIGS, "")
    check_capture(body.get("DataCaptureConfig"), captures)
    variants = body["ProductionVariants"]
    names = [variant["VariantName"] for variant in variants]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValidationRefused(f"The production variant name {twice} is used more than once.")
    for variant in variants:
        _refuse_any(variant, _OF_VARIANTS, f"ProductionVariants.{variant['VariantName']}")
        if bool(variant.get("InstanceType")) == bool(variant.get("InstancePools")):
            raise ValidationRefused(
                f"Production variant {variant['VariantName']} needs either InstanceType or "
                "InstancePools."
            )
    bare = [variant for variant in variants if not model_names(variant)]
    if bare and len(bare) != len(variants):
        raise ValidationRefused("Either all production variants name a model, or none does.")
    if bare and not body.get("ExecutionRoleArn"):
        raise ValidationRefused("ExecutionRoleArn is needed where variants name no model.")


def check_component(specification: _Document, model: _Document | None) -> ServerSpec:
    """Return the container of an inference component's copies; `model` is the one it names."""
    container = specification.get("Container")
    if (container is None) == (model is None):
        raise ValidationRefused("Specification needs either ModelName or Container.")
    if container is not None:
        if not container.get("Image"):
            raise ValidationRefused("Specification.Container.Image is missing.")
        _check_environment(container.get("Environment") or {})
        url = container.get("ArtifactUrl")
        container = {**container, **({"ModelDataUrl": url} if url else {})}
    else:
        assert model is not None
        container = container_of(model)
    wanted = specification.get("ComputeResourceRequirements") or {}
    devices = wanted.get("NumberOfAcceleratorDevicesRequired")
    if devices is not None and devices != int(devices):
        raise _unsupported("a part of an accelerator")
    return server_of(
        container,
        specification.get("StartupParameters") or {},
        memory_mb=wanted.get("MaxMemoryRequiredInMb"),
        accelerators=int(devices) if devices is not None else 0,
    )


def model_names(variant: _Document) -> set[str]:
    """Return the models that a production variant names, for whichever instance type."""
    pools = variant.get("InstancePools") or ()
    named = (variant.get("ModelName"), *(pool.get("ModelNameOverride") for pool in pools))
    return {name for name in named if name}


def variants_of(
    config: _Document, models: Mapping[str, _Document], is_here: Callable[[str], bool]
) -> tuple[VariantSpec, ...]:
    """Return the variants of an endpoint configuration; `models` has each that they name.

    Of pools the first one counts whose instance type `is_here`, else the first.
    """
    found = []
    for variant in config["ProductionVariants"]:
        pools = sorted(variant.get("InstancePools") or (), key=lambda pool: pool["Priority"])
        here = (pool for pool in pools if is_here(pool["InstanceType"]))
        pool = next(here, pools[0] if pools else variant)
        model = pool.get("ModelNameOverride") or variant.get("ModelName")
        found.append(
            VariantSpec(
                name=variant["VariantName"],
                weight=float(variant.get("InitialVariantWeight", 1.0)),
                count=int(variant.get("InitialInstanceCount", 1)),
                instance_type=pool["InstanceType"],
                server=server_of(container_of(models[model]), variant) if model else None,
                pools=tuple(one["InstanceType"] for one in pools),
            )
        )
    return tuple(found)


def server_of(
    container: _Document,
    times: _Document,
    *,
    memory_mb: int | None = None,
    accelerators: int | None = None,
) -> ServerSpec:
    """Return a model's container; `times` may have the time-outs of its start."""
    return ServerSpec(
        image=container["Image"],
        environment=dict(container.get("Environment") or {}),
        data=data_of(container),
        download_s=int(times.get("ModelDataDownloadTimeoutInSeconds", DOWNLOAD_S)),
        health_s=int(times.get("ContainerStartupHealthCheckTimeoutInSeconds", HEALTH_S)),
        memory_mb=memory_mb,
        accelerators=accelerators,
    )


def data_of(container: _Document) -> tuple[ModelData, ...]:
    """Return a container's model data, and their path in it."""
    found = []
    source = (container.get("ModelDataSource") or {}).get("S3DataSource")
    url = container.get("ModelDataUrl")
    if source and url:
        raise ValidationRefused("Both ModelDataUrl and ModelDataSource were given; give one.")
    if url:
        found.append(ModelData(_bucket_uri(url), MOUNTED_MODEL_DIR, "archive"))
    if source:
        found.append(_data(source, MOUNTED_MODEL_DIR))
    channels = set()
    for additional in container.get("AdditionalModelDataSources") or ():
        channel = additional["ChannelName"]
        if channel in channels or channel in (".", ".."):
            raise ValidationRefused(f"The channel name {channel} cannot be used, or is used twice.")
        channels.add(channel)
        found.append(_data(additional["S3DataSource"], f"{ADDITIONAL_DIR}/{channel}"))
    return tuple(found)


def _data(source: _Document, folder: str) -> ModelData:
    _refuse_any(source, ("HubAccessConfig", "ManifestS3Uri"), "S3DataSource")
    uri = _bucket_uri(source["S3Uri"])
    is_prefix = source["S3DataType"] == "S3Prefix"
    is_packed = source["CompressionType"] == "Gzip"
    if is_packed and is_prefix:
        raise ValidationRefused("CompressionType Gzip needs S3DataType S3Object.")
    return ModelData(uri, folder, "archive" if is_packed else "prefix" if is_prefix else "object")


def _bucket_uri(uri: str) -> str:
    if parse_bucket_place(uri) is None:
        raise _unsupported(f"model data at {uri!r}, which is not s3://BUCKET/KEY,")
    return uri


def _check_environment(environment: Mapping[str, str]) -> None:
    for finding in check_limits(environment):
        if finding.severity == "error":
            raise ValidationRefused(f"Environment: {finding.message}.")


def _refuse_any(body: _Document, names: Sequence[str], where: str) -> None:
    for name in names:
        if body.get(name):
            raise _unsupported(f"{where}.{name}" if where else name)


def _unsupported(what: str) -> ValidationRefused:
    return ValidationRefused(f"{what} is not supported by packager serve.")
