"""Models that jobs start from: data in a bucket, or models of CreateModel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from packager.addons.deploy.sagemaker.api_refusals import ValidationRefused
from packager.addons.server.jobs.values import JOB_FOLDER
from packager.core.errors import UsageError
from packager.core.references import BucketReference, HubReference
from packager.core.text import escape
from packager.models.reference import parse_model_reference

Document = Mapping[str, Any]
ModelLookup = Callable[[str], Document | None]  # a model's name → its body of CreateModel


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceModel:
    """The model that a job starts from."""

    reference: str  # as a request writes it
    channels: Mapping[str, str] = field(default_factory=dict)  # further data → its place
    environment: Mapping[str, str] = field(default_factory=dict)
    image: str = ""


def find_source(
    source: Document,
    find_model: ModelLookup,
    find_place: Callable[[str], str | None] = lambda _: None,
) -> SourceModel:
    """Return the model that ModelSource names; raises `ValidationRefused`.

    `find_place` gives the places of data that the server's operator has mapped.
    """
    if len(source) != 1:
        raise ValidationRefused("ModelSource must have exactly one of S3 and SageMakerModel")
    if "S3" in source:
        config = source["S3"]
        if "S3Uri" not in config:
            raise ValidationRefused("ModelSource.S3 has no S3Uri")
        if config.get("ModelAccessConfig", {}).get("AcceptEula") is False:
            raise ValidationRefused(
                "the model's end-user license agreement must be accepted: AcceptEula is false"
            )
        mapped = find_place(config["S3Uri"])
        return SourceModel(
            reference=mapped or bucket_place(config["S3Uri"], "ModelSource.S3.S3Uri")
        )
    name = source["SageMakerModel"].get("ModelName", "")
    found = find_model(name)
    if found is None:
        raise ValidationRefused(
            f'Could not find model "{escape(name)}".',
            hint="make it with CreateModel, or give `packager optimize` its body: --create-model",
        )
    return _registered_model(name, found, find_place)


def _registered_model(
    name: str, body: Document, find_place: Callable[[str], str | None]
) -> SourceModel:
    """Read a body of CreateModel: the model's data, its further channels, its environment."""
    container = body.get("PrimaryContainer")
    if container is None:
        many = body.get("Containers", ())
        if len(many) != 1:
            raise ValidationRefused(f"model {name!r} has {len(many)} containers, not one")
        container = many[0]
    environment = dict(container.get("Environment", {}))
    where = f"the data of model {name!r}"

    def placed(data: Document) -> str:
        place = _data_of(data, where)
        return find_place(place) or place

    if "ModelDataUrl" in container:
        raise ValidationRefused(f"{where} is an archive: give it as ModelDataSource, uncompressed")
    channels = {
        one["ChannelName"]: placed(one) for one in container.get("AdditionalModelDataSources", ())
    }
    if "ModelDataSource" in container:
        reference = placed(container["ModelDataSource"])
    else:
        reference = _hub_id(environment.pop("HF_MODEL_ID", ""), name)
    return SourceModel(
        reference=reference,
        channels=channels,
        environment=environment,
        image=container.get("Image", ""),
    )


def _data_of(source: Document, where: str) -> str:
    data = source.get("S3DataSource", {})
    if data.get("CompressionType", "None") != "None" or data.get("S3DataType") != "S3Prefix":
        raise ValidationRefused(f"{where} must be an S3Prefix with the compression type None")
    if data.get("ModelAccessConfig", {}).get("AcceptEula") is False:
        raise ValidationRefused(f"{where}: AcceptEula is false")
    return bucket_place(data["S3Uri"], where)


def _hub_id(text: str, name: str) -> str:
    try:
        found = parse_model_reference(text)
    except UsageError:
        found = None
    if not isinstance(found, HubReference):
        raise ValidationRefused(f"model {name!r} has no ModelDataSource and names no HF_MODEL_ID")
    return text


def is_argument(text: str) -> bool:
    """Return whether a command can receive the text as an argument."""
    return JOB_FOLDER not in text and text.isprintable()


def bucket_place(text: str, where: str) -> str:
    """Return the text, which must be `s3://BUCKET[/PREFIX]`; raises `ValidationRefused`."""
    try:
        found = parse_model_reference(text)
    except UsageError:
        found = None
    if not isinstance(found, BucketReference) or not is_argument(text):
        raise ValidationRefused(f"{where}: '{escape(text[:200])}' is not s3://BUCKET/PREFIX")
    return text
