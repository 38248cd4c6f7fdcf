"""The form fields of a new job: read, checked, and made into the request for it.

A form that CreateOptimizationJob can express becomes its document; others, such as a model in a
directory, become a request of packager.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from packager.addons.server.jobs.values import JOB_FOLDER, RECORD_FILE, JobLimits, NewJob, Stage
from packager.addons.server.sagemaker.answers import PLACES_OF_FILES
from packager.addons.server.sagemaker.settings import JobSettings
from packager.catalog.instances import find_instance
from packager.catalog.techniques import techniques
from packager.core.errors import PackagerError, UsageError
from packager.core.files.user_files import expand_home
from packager.core.references import BucketReference, DirectoryReference, parse_bucket_place
from packager.core.request import parse_request
from packager.images.target import parse_target
from packager.models.reference import parse_model_reference

DEFAULT_HOURS = "10"
MOST_HOURS = 28 * 24
FILES = "dir:"  # in front of a directory that files go to
REQUEST_FILE, HEAD_FOLDER = "request.json", "head"
DRAFTS = ("none", "auto", "own", "ngram", "train")
_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The fields of the form, as they were written."""

    name: str = ""
    model: str = ""
    instance: str = ""
    quantize: str = ""  # a method; "" leaves the weights as they are
    calibration: str = ""
    compile: str = ""  # "on", or ""
    draft: str = "none"  # one of DRAFTS
    draft_ref: str = ""  # of an own one
    data: str = ""  # that a head is trained with
    output: str = ""
    hours: str = DEFAULT_HOURS


def read_wish(form: Mapping[str, str]) -> Wish:
    """Return the fields of a form; missing ones have their defaults."""
    known = {one.name for one in fields(Wish)}
    return Wish(**{name: text.strip() for name, text in form.items() if name in known})


def placed(wish: Wish, settings: JobSettings) -> Wish:
    """Return the form with a JumpStart id replaced by its mapped place."""
    return replace(wish, model=settings.jumpstart.places.get(wish.model, wish.model))


def faults_of(wish: Wish, settings: JobSettings) -> dict[str, str]:
    """Return the errors by field; empty for a valid form."""
    found: dict[str, str] = {}
    for name, fault in _faults(wish, settings):
        found.setdefault(name, fault)
    return found


def document_of(wish: Wish, settings: JobSettings) -> dict[str, Any] | None:
    """Return the body of CreateOptimizationJob; None where that cannot express the form."""
    configs = dict(_configs(wish))
    model_is_there = isinstance(parse_model_reference(wish.model), BucketReference)
    output = parse_bucket_place(wish.output)
    if not model_is_there or output is None or not configs or wish.draft in ("auto", "ngram"):
        return None
    if wish.draft == "own" and not configs.keys() & {_QUANTIZATION, _COMPILATION}:
        return None
    if wish.draft == "own" and isinstance(
        parse_model_reference(_without_kind(wish.draft_ref)), DirectoryReference
    ):
        return None
    return {
        "OptimizationJobName": wish.name,
        "RoleArn": f"arn:aws:iam::{settings.account}:role/packager",
        "ModelSource": {"S3": {"S3Uri": wish.model}},
        "DeploymentInstanceType": wish.instance,
        "OptimizationConfigs": [{name: config} for name, config in configs.items()],
        "OutputConfig": {"S3OutputLocation": wish.output},
        "StoppingCondition": {"MaxRuntimeInSeconds": _seconds(wish)},
    }


def request_of(wish: Wish, settings: JobSettings) -> dict[str, Any]:
    """Return the request of packager, as its file holds it."""
    request: dict[str, Any] = {
        "model": _absolute(wish.model),
        "instance": settings.instance or wish.instance,
        "outputs": list(_outputs(wish, settings)),
    }
    if wish.quantize:
        request["quantize"] = wish.quantize
    if wish.calibration:
        request["calibration"] = _absolute_data(wish.calibration)
    if wish.compile:
        request["compile"] = "auto"
        if settings.images and wish.output.startswith(PLACES_OF_FILES):
            request["weights"] = "mounted"  # files are compiled for one place of the model
    if wish.draft in ("auto", "ngram"):
        request["draft"] = wish.draft
    elif wish.draft == "own":
        kind, reference = _split_kind(wish.draft_ref)
        request["draft"] = f"{kind}{_absolute(reference)}"
    return request | settings.request_fields()


def build_job(wish: Wish, settings: JobSettings) -> NewJob:
    """Return the job of a request of packager; raises `UsageError` for one that is invalid."""
    request = request_of(wish, settings)
    parse_request(request)
    head: tuple[str, ...] = ()
    stages: list[Stage] = []
    if wish.draft == "train":
        stages.append(_training(wish, settings))
        head = ("--draft", f"eagle3:{JOB_FOLDER}/{HEAD_FOLDER}")
    arguments = (
        *("build", "--request", f"{JOB_FOLDER}/{REQUEST_FILE}", *head),
        *("--record", f"{JOB_FOLDER}/{RECORD_FILE}", "--progress", "json"),
        *settings.options,
    )
    stages.append(Stage("build", arguments))
    document = request | ({"training": {"data": _data(wish)}} if wish.draft == "train" else {})
    return NewJob(
        kind="command",
        name=wish.name,
        document=document,
        stages=tuple(stages),
        files={REQUEST_FILE: f"{json.dumps(request, indent=2)}\n".encode()},
        limits=JobLimits(run_s=_seconds(wish)),
    )


def quantizations() -> list[tuple[str, str]]:
    """List the methods of quantization, each with its label."""
    return [(one.name, f"{one.name}: {one.summary}") for one in techniques() if _quantizes(one)]


def as_fields(wish: Wish) -> dict[str, str]:
    """Return the fields of the form by name."""
    return asdict(wish)


_QUANTIZATION, _COMPILATION = "ModelQuantizationConfig", "ModelCompilationConfig"
_SPECULATION = "ModelSpeculativeDecodingConfig"
_KIND = re.compile(r"(eagle3?|peagle|dflash|medusa|mtp):(?!//)")


def _configs(wish: Wish) -> Iterator[tuple[str, dict[str, Any]]]:
    draft = {"OPTION_SPECULATIVE_DRAFT_MODEL": wish.draft_ref} if wish.draft == "own" else {}
    if wish.quantize:
        asked = {"OPTION_QUANTIZE": wish.quantize} | draft
        if wish.calibration:
            asked["OPTION_CALIB_DATASET"] = wish.calibration
        yield _QUANTIZATION, {"OverrideEnvironment": asked}
        draft = {}
    if wish.compile:
        yield _COMPILATION, {"OverrideEnvironment": draft}
    if wish.draft == "train":
        source = {"S3Uri": wish.data, "S3DataType": "S3Prefix"}
        yield (
            _SPECULATION,
            {"Technique": "EAGLE"} | ({"TrainingDataSource": source} if wish.data else {}),
        )


def _faults(wish: Wish, settings: JobSettings) -> Iterator[tuple[str, str]]:
    if not _NAME.fullmatch(wish.name):
        yield "name", "write 1 to 63 letters, digits and hyphens, none at its ends"
    yield from _model_faults("model", wish.model)
    yield from _instance_faults(wish.instance, settings)
    if wish.quantize not in {"", *(name for name, _ in quantizations())}:
        yield "quantize", "choose a method"
    if wish.draft not in DRAFTS:
        yield "draft", "choose one"
    if wish.draft == "own":
        yield from _model_faults("draft_ref", _without_kind(wish.draft_ref))
    if wish.draft == "train":
        yield from _data_faults("data", wish.data)
    yield from _data_faults("calibration", wish.calibration)
    if wish.calibration and not wish.quantize:
        yield "calibration", "choose a method of quantization, or leave this empty"
    yield from _output_faults(wish.output, settings)
    if not _is_hours(wish.hours):
        yield "hours", f"write a number of hours, above 0 and at most {MOST_HOURS}"


def _model_faults(name: str, text: str) -> Iterator[tuple[str, str]]:
    if not text:
        yield name, "write s3://BUCKET/PREFIX, a directory, or the id of a model on a hub"
        return
    try:
        found = parse_model_reference(text)
    except UsageError as error:
        yield name, _told(error)
        return
    if isinstance(found, DirectoryReference) and not Path(text).is_dir():
        yield name, f"there is no directory {text!r} on this machine"


def _instance_faults(text: str, settings: JobSettings) -> Iterator[tuple[str, str]]:
    if not text and settings.instance:
        return
    if not text:
        yield "instance", "choose an instance type, such as ml.g5.xlarge"
    elif text != "local":
        try:
            find_instance(text)
        except PackagerError as error:
            yield "instance", _told(error)


def _data_faults(name: str, text: str) -> Iterator[tuple[str, str]]:
    is_elsewhere = text.startswith(("s3://", "hf://datasets/"))
    if text not in ("", "default") and not is_elsewhere and not Path(text).exists():
        yield name, f"there is no file {text!r} on this machine; or write s3://BUCKET/PREFIX"


def _output_faults(text: str, settings: JobSettings) -> Iterator[tuple[str, str]]:
    if not text:
        if not settings.images:
            yield "output", "write where the result goes: s3://BUCKET/PREFIX, dir:PATH or an image"
        return
    if (place := parse_bucket_place(text)) is not None:
        if not place.bucket or not place.key:
            yield "output", "write it as s3://BUCKET/PREFIX"
        return
    if text.startswith(FILES):
        return
    try:
        parse_target(text)
    except UsageError as error:
        yield "output", _told(error)


def _told(error: PackagerError) -> str:
    return f"{error}: {error.hint}" if error.hint else str(error)


def _is_hours(text: str) -> bool:
    return re.fullmatch(r"\d{1,3}(\.\d{1,3})?", text, re.ASCII) is not None and (
        1 <= round(float(text) * 3600) <= MOST_HOURS * 3600
    )


def _seconds(wish: Wish) -> int:
    return round(float(wish.hours) * 3600)


def _outputs(wish: Wish, settings: JobSettings) -> Iterator[str]:
    if wish.output:
        yield wish.output
    if settings.images:
        yield f"{settings.images}:{wish.name}"


def _training(wish: Wish, settings: JobSettings) -> Stage:
    arguments = (
        *("draft", "train", "--model", _absolute(wish.model), "--method", "eagle3"),
        *("--data", _data(wish), "--output", f"{JOB_FOLDER}/{HEAD_FOLDER}"),
        *settings.executor_options(),
        *settings.training,
        *("--progress", "json"),
    )
    return Stage("train", arguments)


def _data(wish: Wish) -> str:
    return _absolute_data(wish.data) if wish.data else "default"


def _absolute(reference: str) -> str:
    """Return a reference that means the same in any directory."""
    found = parse_model_reference(reference)
    if isinstance(found, DirectoryReference):
        return str(expand_home(reference).absolute())
    return reference


def _absolute_data(text: str) -> str:
    if text == "default" or text.startswith(("s3://", "hf://")):
        return text
    return str(Path(text).absolute())


def _split_kind(reference: str) -> tuple[str, str]:
    found = _KIND.match(reference)
    return (found[0], reference[found.end() :]) if found else ("", reference)


def _without_kind(reference: str) -> str:
    return _split_kind(reference)[1]


def _quantizes(one: Any) -> bool:
    return bool(one.kind == "quantizer")
