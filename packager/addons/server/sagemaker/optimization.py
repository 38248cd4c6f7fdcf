"""CreateOptimizationJob's document as commands of packager.

Each member is converted or refused by name; docs/optimize.md lists those that are accepted without
effect.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from artifact_cache.secrets import HIDDEN
from packager.addons.deploy.sagemaker.api_refusals import ValidationRefused
from packager.addons.deploy.sagemaker.shapes import read_input
from packager.addons.server.jobs.values import (
    JOB_FOLDER,
    NOTES_FILE,
    RECORD_FILE,
    JobLimits,
    SecretJob,
    Stage,
)
from packager.addons.server.sagemaker.early_checks import ReadConfig, check_possible
from packager.addons.server.sagemaker.environment import (
    DRAFT_KINDS,
    WITHOUT_FILES,
    Surroundings,
    Wishes,
    draft_reference,
    kept_notes,
    quantization,
    read_environment,
)
from packager.addons.server.sagemaker.named_images import (
    COMPILATION,
    EMPTY_BASE,
    Image,
    compiler_of,
    image_fields,
    image_notes,
    named_image,
)
from packager.addons.server.sagemaker.settings import JobSettings
from packager.addons.server.sagemaker.sources import (
    Document,
    ModelLookup,
    SourceModel,
    bucket_place,
    find_source,
)
from packager.addons.server.sagemaker.variables import TOKENS
from packager.catalog.instances import find_instance
from packager.core.errors import UsageError
from packager.core.references import BucketReference, HubReference
from packager.core.remote.s3_write import KMS_KEY
from packager.core.request import parse_request
from packager.core.text import escape
from packager.models.reference import parse_model_reference
from packager.models.samples.buckets import MANIFEST, is_bucket_data

OPERATION = "CreateOptimizationJob"
REQUEST_FILE, HEAD_FOLDER, MODEL_FILE = "request.json", "head", "model.json"
MODEL_KIND = "model"  # of resources, and in ARNs

QUANTIZATION = "ModelQuantizationConfig"
SHARDING, SPECULATION = "ModelShardingConfig", "ModelSpeculativeDecodingConfig"
DEFAULT_METHOD = "awq"  # of the containers of AWS's jobs, where no method is named
KINDS = tuple(f"{kind}:" for kind in DRAFT_KINDS)


def make_job(
    body: Document,
    settings: JobSettings,
    *,
    find_model: ModelLookup = lambda _: None,
    read_config: ReadConfig = lambda _: None,
) -> SecretJob:
    """Convert a document to a job.

    `find_model` knows the models of CreateModel; `read_config` returns the config.json of a model
    for head training, if it can be read quickly. Raises `ApiRefusal`.
    """
    checked = read_input(OPERATION, body)
    configs = _configs_of(checked)
    _check_combination(configs, checked["DeploymentInstanceType"])
    model = find_source(checked["ModelSource"], find_model, settings.jumpstart.find)
    image = named_image(configs, model)
    wishes = _wishes_of(checked, configs, model, image)
    request = _request_of(checked, configs, model, wishes, settings, image)
    training = SPECULATION in configs
    _check_request(request)
    check_possible(
        request,
        trains_head=training,
        has_own_base=settings.base not in (None, EMPTY_BASE),
        read_config=read_config,
    )
    stages = [_build_stage(checked, settings, is_drafted=training)]
    if training:
        stages.insert(0, _training_stage(configs[SPECULATION], model, settings))
    if settings.measures:
        stages.append(_measuring_stage(checked, configs, model, settings))
    notes = (*kept_notes(wishes), *image_notes(configs, image, request))
    files = {
        REQUEST_FILE: _json(request),
    }
    if notes:
        files[NOTES_FILE] = "".join(f"note: {one}\n" for one in notes).encode()
    if made := _made_model(checked, settings, find_model):
        files[MODEL_FILE] = _json(made)
        stages.append(_register_stage(settings))
    return SecretJob(
        kind="optimization",
        name=checked["OptimizationJobName"],
        document=without_tokens(checked),
        stages=tuple(stages),
        files=files,
        secrets=wishes.secrets,
        limits=_limits_of(checked["StoppingCondition"]),
        tags=_tags_of(checked.get("Tags", ())),
    )


def _json(document: Document) -> bytes:
    return f"{json.dumps(document, indent=2, sort_keys=True)}\n".encode()


def techniques(document: Document) -> tuple[str, ...]:
    """Return the techniques of a job, as the API spells them, such as `Quantization`."""
    names = [name for config in document.get("OptimizationConfigs", ()) for name in config]
    return tuple(name.removeprefix("Model").removesuffix("Config") for name in names)


def _configs_of(body: Document) -> dict[str, Document]:
    found: dict[str, Document] = {}
    for config in body["OptimizationConfigs"]:
        [(name, one)] = config.items()
        if name in found:
            raise ValidationRefused(f"OptimizationConfigs has more than one {name}")
        found[name] = one
    if not found:
        raise ValidationRefused("OptimizationConfigs has no technique: name at least one")
    return found


def _check_combination(configs: Mapping[str, Document], instance: str) -> None:
    """Refuse what AWS refuses together, and on the instance's devices."""
    if SHARDING in configs and len(configs) > 1:
        raise ValidationRefused(
            f"{SHARDING} cannot be combined with another technique: quantize first, then shard "
            "the result in a job of its own"
        )
    if COMPILATION in configs and SPECULATION in configs:
        raise ValidationRefused(f"{COMPILATION} cannot be combined with {SPECULATION}")
    if find_instance(instance).kind == "neuron":
        refused = [name for name in configs if name != COMPILATION]
        if refused:
            raise ValidationRefused(
                f"{refused[0]} is not supported on {instance!r}: models for it are compiled, "
                f"with {COMPILATION} alone"
            )


def _wishes_of(
    body: Document, configs: Mapping[str, Document], model: SourceModel, image: Image | None
) -> Wishes:
    """Merge all environments; those of a technique override the job's."""
    together = {**model.environment, **body.get("OptimizationEnvironment", {})}
    asked: dict[str, str] = {}
    for name, config in configs.items():
        for variable, value in config.get("OverrideEnvironment", {}).items():
            if asked.setdefault(variable, value) != value:
                raise ValidationRefused(f"{variable!r} has another value in {name} than before")
    where = Surroundings(
        devices=find_instance(body["DeploymentInstanceType"]).devices,
        has_lmi=image is not None and image.family == "lmi",
    )
    return read_environment({**together, **asked}, where)


def _request_of(
    body: Document,
    configs: Mapping[str, Document],
    model: SourceModel,
    wishes: Wishes,
    settings: JobSettings,
    image: Image | None,
) -> dict[str, Any]:
    fields = dict(wishes.fields)
    if settings.instance is not None:
        # How weights are split, and the image, are of the instance that the document names.
        fields = {
            name: one for name, one in fields.items() if name not in ("tp_degree", "pp_degree")
        }
    fields |= {
        "model": model.reference,
        "instance": settings.instance or body["DeploymentInstanceType"],
        "region": settings.region,
        **image_fields(configs, wishes, settings, image),
        **settings.request_fields(),
    }
    fields |= _quantize_fields(configs, wishes)
    if COMPILATION in configs:
        fields["compile"] = compiler_of(fields["instance"], wishes, settings, image)
        if settings.images:
            fields["weights"] = "mounted"  # files are compiled for one place of the model
    if SHARDING in configs and "tp_degree" not in wishes.fields:
        raise ValidationRefused(f"{SHARDING} needs OPTION_TENSOR_PARALLEL_DEGREE")
    if wishes.draft_model:
        if SPECULATION in configs:
            raise ValidationRefused(
                f"{SPECULATION} trains a head, and a draft model is set as well"
            )
        draft = draft_reference(wishes.draft_model, model.channels)
        place = draft.partition(":")[2] if draft.startswith(KINDS) else draft
        if place not in settings.jumpstart.drafts.values():  # those are the operator's own
            _check_place(place)
        fields["draft"] = draft
    _check_data(fields.get("calibration", "default"))
    if wishes.engine_options:
        fields["engine_options"] = dict(wishes.engine_options)
    return fields


def _check_place(draft: str) -> None:
    """Refuse a draft in files of this machine: who sends documents does not choose among them."""
    if draft in WITHOUT_FILES:
        return
    try:
        found = parse_model_reference(draft)
    except UsageError:
        found = None
    if not isinstance(found, BucketReference | HubReference):
        raise ValidationRefused(
            f"draft model '{escape(draft[:200])}' is neither s3://BUCKET/PREFIX nor the id of a "
            "model on a hub"
        )


def _check_data(reference: str) -> None:
    is_remote = is_bucket_data(reference) or reference.startswith("hf://datasets/")
    if reference != "default" and not is_remote:
        raise ValidationRefused(
            f"OPTION_CALIB_DATASET '{escape(reference[:200])}' is neither s3://BUCKET/PREFIX nor "
            "hf://datasets/ORG/NAME@REVISION"
        )


def _quantize_fields(configs: Mapping[str, Document], wishes: Wishes) -> dict[str, Any]:
    method = wishes.quantize or (DEFAULT_METHOD if QUANTIZATION in configs else "")
    if SHARDING in configs and (method or wishes.quantize_options):
        raise ValidationRefused(f"{SHARDING} cannot quantize: quantize first, then shard")
    if method and not configs.keys() & {QUANTIZATION, COMPILATION}:
        raise ValidationRefused(f"OPTION_QUANTIZE needs {QUANTIZATION}")
    if method:
        return quantization(wishes, method)
    unused = [*wishes.quantize_options, *(wishes.fields.keys() & {"calibration_samples"})]
    if unused:
        raise ValidationRefused(f"{unused[0]!r} is set, and nothing is quantized")
    return {}


def without_tokens(document: Document) -> Document:
    """Return a document as it is stored and described: the hub's token is hidden in it."""
    found = dict(document)
    if "OptimizationEnvironment" in found:
        found["OptimizationEnvironment"] = _hidden(found["OptimizationEnvironment"])
    configs = [
        {
            name: {
                key: _hidden(value) if key == "OverrideEnvironment" else value
                for key, value in config.items()
            }
            for name, config in one.items()
        }
        for one in document["OptimizationConfigs"]
    ]
    return {**found, "OptimizationConfigs": configs}


def _hidden(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: HIDDEN if name in TOKENS else one for name, one in environment.items()}


def _check_request(request: Mapping[str, Any]) -> None:
    """Refuse values that no build takes, before the job is made."""
    try:
        parse_request(request)
    except UsageError as error:
        raise ValidationRefused(error.message) from error


def _build_stage(body: Document, settings: JobSettings, *, is_drafted: bool) -> Stage:
    output = body["OutputConfig"]
    outputs = [bucket_place(output["S3OutputLocation"], "OutputConfig.S3OutputLocation")]
    if image := image_output(settings.images, body["OptimizationJobName"]):
        outputs.append(image)
    draft = ("--draft", f"eagle3:{JOB_FOLDER}/{HEAD_FOLDER}") if is_drafted else ()
    return Stage(
        name="build",
        arguments=(
            "build",
            "--request",
            f"{JOB_FOLDER}/{REQUEST_FILE}",
            *draft,
            *(word for place in outputs for word in ("--output", place)),
            "--record",
            f"{JOB_FOLDER}/{RECORD_FILE}",
            *settings.options,
        ),
        environment=_encryption(output),
    )


def _encryption(output: Document) -> dict[str, str]:
    """Return the variables of a stage that writes to the job's place."""
    return {KMS_KEY: output["KmsKeyId"]} if output.get("KmsKeyId") else {}


def _made_model(
    body: Document, settings: JobSettings, find_model: ModelLookup
) -> dict[str, Any] | None:
    """Return the body of CreateModel that the result shall be, its image left out; None without."""
    output = body["OutputConfig"]
    if "SageMakerModel" not in output:
        return None
    name = output["SageMakerModel"].get("ModelName", "")
    if not name:
        raise ValidationRefused("OutputConfig.SageMakerModel has no ModelName")
    if find_model(name) is not None:
        arn = settings.arn(MODEL_KIND, name)
        raise ValidationRefused(f'Cannot create already existing model "{arn}".')
    data = {
        "S3Uri": f"{output['S3OutputLocation'].rstrip('/')}/",
        "S3DataType": "S3Prefix",
        "CompressionType": "None",
    }
    # An image of ours has the files inside, but for those of a compiled model.
    is_inside = settings.images and "Compilation" not in techniques(body)
    container = {} if is_inside else {"ModelDataSource": {"S3DataSource": data}}
    return {
        "ModelName": name,
        "ExecutionRoleArn": body["RoleArn"],
        "PrimaryContainer": container,
    }


def _register_stage(settings: JobSettings) -> Stage:
    return Stage(
        name="register",
        arguments=(
            *("jobs", "register-model", "--model", f"{JOB_FOLDER}/{MODEL_FILE}"),
            *("--record", f"{JOB_FOLDER}/{RECORD_FILE}"),
            *("--region", settings.region, "--account", settings.account),
        ),
    )


def image_output(images: str, name: str) -> str:
    """Return the target of a job's image: the operator's, with the job's name as tag."""
    return f"{images}:{name}" if images else ""


def _training_stage(config: Document, model: SourceModel, settings: JobSettings) -> Stage:
    if len(model.channels) > 1:
        raise ValidationRefused(
            f"the model has {len(model.channels)} additional data sources: which one holds the "
            "head to train on is not known"
        )
    start = _base_head(model)
    return Stage(
        name="train",
        arguments=(
            *("draft", "train", "--model", model.reference, "--method", "eagle3"),
            *("--data", _training_data(config.get("TrainingDataSource"))),
            *(("--from", start) if start is not None else ()),
            *("--output", f"{JOB_FOLDER}/{HEAD_FOLDER}"),
            *settings.executor_options(),
            *settings.training,
        ),
    )


def _base_head(model: SourceModel) -> str | None:
    """Return the place of the head that training begins from; None for a new one."""
    return next(iter(model.channels.values()), None)


def _measuring_stage(
    body: Document, configs: Mapping[str, Document], model: SourceModel, settings: JobSettings
) -> Stage:
    """Return the stage that puts the model under load, as it was and as it is."""
    output = body["OutputConfig"]
    words = ["jobs", "measure", "--name", body["OptimizationJobName"]]
    words += [
        "--request",
        f"{JOB_FOLDER}/{REQUEST_FILE}",
        "--record",
        f"{JOB_FOLDER}/{RECORD_FILE}",
    ]
    words += ["--output", bucket_place(output["S3OutputLocation"], "OutputConfig.S3OutputLocation")]
    if SPECULATION in configs:
        words += ["--draft", f"eagle3:{JOB_FOLDER}/{HEAD_FOLDER}"]
        if (start := _base_head(model)) is not None:
            words += ["--base-draft", f"eagle3:{start}"]
    if (longest := _limits_of(body["StoppingCondition"]).run_s) is not None:
        words += ["--within", str(longest)]
    words += ["--data", settings.measured_data] if settings.measured_data else []
    words += ["--gate", settings.gate] if settings.gate else []
    return Stage(name="measure", arguments=tuple(words), environment=_encryption(output))


def _training_data(source: Document | None) -> str:
    if source is None:
        return "default"  # the texts in the wheel
    place = bucket_place(source["S3Uri"], "TrainingDataSource.S3Uri")
    return f"{MANIFEST}{place}" if source["S3DataType"] == "ManifestFile" else place


def _limits_of(condition: Document) -> JobLimits:
    run, wait = condition.get("MaxRuntimeInSeconds"), condition.get("MaxWaitTimeInSeconds")
    if run is not None and wait is not None and wait < run:
        raise ValidationRefused(
            f"MaxWaitTimeInSeconds {wait} must be greater than or equal to "
            f"MaxRuntimeInSeconds {run}"
        )
    return JobLimits(run_s=run, wait_s=condition.get("MaxPendingTimeInSeconds"))


def _tags_of(tags: Sequence[Document]) -> dict[str, str]:
    """Return tags by their keys; of two with one key the later counts, which SDKs do send."""
    reserved = [tag["Key"] for tag in tags if tag["Key"].lower().startswith("aws:")]
    if reserved:
        raise ValidationRefused(f"tag key {escape(reserved[0])!r}: 'aws:' is reserved")
    return {tag["Key"]: tag["Value"] for tag in tags}
