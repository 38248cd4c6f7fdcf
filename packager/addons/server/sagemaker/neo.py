"""The contract of AWS's optimization containers (`SM_NEO_*`) as requests of packager, and back.

A job of SageMaker starts its container without arguments: variables name directories, and
`serving.properties` beside the model, with `OPTION_*` variables, says what is asked for.  Read of
djl-serving 0.31.0 to 0.34.0, serving/docker/partition.  Whatever is not done is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from packager.addons.check.properties import read_settings
from packager.addons.deploy.sagemaker.api_refusals import ValidationRefused
from packager.addons.server.sagemaker.environment import (
    Surroundings,
    quantization,
    read_environment,
)
from packager.addons.server.sagemaker.variables import OPTION, QUANTIZE_OPTIONS
from packager.catalog.containers import containers
from packager.core.documents import NotStrict, parse_object
from packager.core.errors import UsageError
from packager.core.text import escape
from packager.engines.trtllm import ENGINE as TENSORRT

CONTEXT = "SM_NEO_EXECUTION_CONTEXT"
INPUT, OUTPUT = "SM_NEO_INPUT_MODEL_DIR", "SM_NEO_COMPILED_MODEL_DIR"
ERROR_FILE = "SM_NEO_COMPILATION_ERROR_FILE"
CACHE, HUB_CACHE = "SM_NEO_CACHE_DIR", "SM_NEO_HF_CACHE_DIR"
OPTIONS, FEATURES = "COMPILER_OPTIONS", "SERVING_FEATURES"
PROPERTIES = "serving.properties"

METHODS = ("awq", "fp8")  # that AWS's containers quantize by
DEFAULT_METHOD = "awq"
SHARDED = "sagemaker_fast_model_loader"
MAX_PROPERTIES_BYTES = 1024 * 1024

Technique = Literal["quantize", "shard", "compile"]

_PREFIX = "option."
_QUANTIZE, _LOAD, _ROLLING = "option.quantize", "option.load_format", "option.rolling_batch"
_TP, _MODEL = "option.tensor_parallel_degree", "option.model_id"
# What belongs to the job and not to the model that comes out of it.
_OF_JOB = frozenset(
    {
        *(_MODEL, _QUANTIZE, _LOAD, "option.save_mp_checkpoint_path", "option.device_map"),
        *("model_dir", "upload_checkpoints_s3url", "properties_dir"),
        *("option.quantization", "option.q_format", "option.calib_size", "option.calib_dataset"),
        *("option.calib_max_seq_length", "option.calib_batch_size"),
        *("option.awq_weight_bit_width", "option.awq_mm_version"),
        *(f"{_PREFIX}{name}" for name in QUANTIZE_OPTIONS),
    }
)
_OF_SERVER = ("option.output_formatter", "option.model_loading_timeout", "option.predict_timeout")


def input_configuration(message: str, *, hint: str = "") -> UsageError:
    """Return an error: the job is configured incorrectly; clients recognize this class name."""
    return UsageError(
        message, hint=hint or "docs/neo.md says what a job can ask for", code="InputConfiguration"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NeoContext:
    """Directories of a job."""

    source: Path
    output: Path
    cache: Path | None
    hub_cache: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NeoWish:
    """The settings of a job."""

    technique: Technique
    properties: Mapping[str, str]  # of file and variables, by the precedence of the technique
    from_file: Mapping[str, str]  # alone: what the model's own settings become of


def read_context(environment: Mapping[str, str]) -> NeoContext:
    """Return the directories that variables name; raise `UsageError` for missing ones."""
    if not environment.get(CONTEXT):
        raise input_configuration(
            f"{CONTEXT} is not set: this is no optimization job",
            hint="`packager build --output dir:DIR` optimizes a model by hand",
        )
    missing = [name for name in (INPUT, OUTPUT, ERROR_FILE) if not environment.get(name)]
    if missing:
        raise input_configuration(f"{', '.join(missing)} must name where the job's files are")
    _refuse_options(environment.get(OPTIONS, ""))
    optional = {name: environment.get(name, "") for name in (CACHE, HUB_CACHE)}
    return NeoContext(
        source=Path(environment[INPUT]),
        output=Path(environment[OUTPUT]),
        cache=Path(optional[CACHE]) if optional[CACHE] else None,
        hub_cache=Path(optional[HUB_CACHE]) if optional[HUB_CACHE] else None,
    )


def read_wish(text: str | None, environment: Mapping[str, str]) -> NeoWish:
    """Read the settings of `serving.properties` and of `OPTION_*` variables.

    A quantization's variables override the file; elsewhere the file overrides variables. `text` is
    None where the model has no file.
    """
    from_file = _properties(text or "")
    from_variables = dict(_variables(environment))
    file_first = {**from_variables, **from_file}
    if file_first.get(_LOAD) == SHARDED:
        _check_sharding(file_first)
        return NeoWish(technique="shard", properties=file_first, from_file=from_file)
    features = environment.get(FEATURES, "").split(",")
    if "trtllm" in features or file_first.get(_ROLLING) == "trtllm":
        return NeoWish(technique="compile", properties=file_first, from_file=from_file)
    variables_first = {**from_file, **from_variables}
    method = variables_first.setdefault(_QUANTIZE, DEFAULT_METHOD).lower()
    if method not in METHODS:
        raise input_configuration(
            f"invalid quantization method {_shown(method)}: expected {' or '.join(METHODS)}",
            hint="`packager build --quantize` has more methods",
        )
    return NeoWish(technique="quantize", properties=variables_first, from_file=from_file)


def request_of(wish: NeoWish, context: NeoContext, instance: str, devices: int) -> dict[str, Any]:
    """Return the fields of the build; raise `UsageError` for what cannot be followed."""
    settings = {name: one for name, one in wish.properties.items() if not _is_aside(name)}
    model = settings.pop(_MODEL, "")
    if model and Path(model) != context.source:
        raise input_configuration(
            f"{_MODEL} {_shown(model)} is another model than the one in {INPUT}",
            hint=f"leave {_MODEL} out: the job's model is what is optimized",
        )
    asked = {_variable(name): value for name, value in settings.items()}
    try:
        wishes = read_environment(asked, Surroundings(devices=devices, has_lmi=True))
        fields = dict(wishes.fields)
        if wish.technique == "quantize":
            fields |= quantization(wishes, wishes.quantize)
    except ValidationRefused as error:
        raise input_configuration(error.message) from error
    if wishes.draft_model:
        raise input_configuration(
            "a draft model is no part of an optimization job",
            hint="`packager build --draft` packages one with the model",
        )
    if wish.technique == "compile":
        image = next(one for one in containers() if one.engine == TENSORRT)
        fields |= {"compile": "tensorrt_llm", "container_version": image.version}
        if wishes.quantize:
            fields |= quantization(wishes, wishes.quantize)
    if wishes.engine_options:
        fields["engine_options"] = dict(wishes.engine_options)
    return {**fields, "model": str(context.source), "instance": instance, "family": "lmi"}


def output_properties(wish: NeoWish, planned: Mapping[str, str], *, given_tp: bool) -> str:
    """Return `serving.properties` of the result.

    The model's own settings stay; the job's are removed. The checkpoint states its quantization:
    naming it would keep engines from their fastest kernels. `planned` are the build's settings,
    used where the file has none.
    """
    kept = {name: one for name, one in wish.properties.items() if name not in _OF_JOB}
    if not given_tp:
        kept.pop(_TP, None)
    entry = kept.get("option.entryPoint", "")
    if entry and not entry.startswith(("http://", "https://")):
        del kept["option.entryPoint"]
    needed = planned if wish.technique == "compile" else {"engine": planned.get("engine", "Python")}
    merged = {**needed, **kept}
    for name, value in merged.items():
        _check_writable(name, value)
    return "".join(f"{name}={value}\n" for name, value in merged.items())


def parse_planned(text: str) -> dict[str, str]:
    """Return the settings of a file that a build wrote."""
    return _properties(text)


def error_document(error: BaseException) -> dict[str, str]:
    """Return the content of the error file: the exception in the format of AWS's containers."""
    message = str(error) or type(error).__name__
    hint = getattr(error, "hint", "")
    kind = "InputConfiguration" if isinstance(error, UsageError) else "OptimizationFatalError"
    return {"error": f"{kind}({escape(message + (f'; {hint}' if hint else ''))!r})"}


def _is_aside(name: str) -> bool:
    """Whether a setting does not affect the build: it is of the server, or of loading."""
    if name in (_LOAD, *_OF_SERVER):
        return True
    return not name.startswith(_PREFIX) and name != "engine"


def _variable(name: str) -> str:
    return f"{OPTION}{name.removeprefix(_PREFIX).upper()}"


def _properties(text: str) -> dict[str, str]:
    """Return the settings of a file; one that its readers take differently is refused."""
    settings, remarks = read_settings(PROPERTIES, text)
    for remark in remarks:
        raise input_configuration(
            f"{PROPERTIES} line {remark.place.line}: {remark.finding.message}",
            hint=remark.finding.hint,
        )
    return {one.name: one.value or "" for one in settings}


def _variables(environment: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """Yield `OPTION_*` variables as the settings that LMI makes of them; it skips empty ones."""
    for name, value in sorted(environment.items()):
        if name.startswith(OPTION) and value:
            word = name.removeprefix(OPTION)
            if word == "ENGINE":
                yield "engine", value
            elif word == "ENTRYPOINT":
                yield "option.entryPoint", value
            else:
                yield f"{_PREFIX}{word.lower() if word.upper() == word else word}", value


def _check_sharding(properties: Mapping[str, str]) -> None:
    if properties.get(_QUANTIZE):
        raise input_configuration(
            f"{_LOAD} {SHARDED!r} and {_QUANTIZE} exclude each other",
            hint="quantize first, and shard the result in another job",
        )
    degree = properties.get(_TP, "")
    if not degree.isdecimal() or int(degree) < 1:
        raise input_configuration(
            f"sharding needs {_TP}, and it is {_shown(degree)}",
            hint=f"set {_TP} to the number of devices that serve one copy",
        )


def _refuse_options(text: str) -> None:
    try:
        options = parse_object(text.encode()) if text.strip() else {}
    except NotStrict as error:
        raise input_configuration(f"{OPTIONS} cannot be read: {error}") from error
    if options:
        raise input_configuration(
            f"{OPTIONS} has {_shown(min(options))}, which no container of AWS reads",
            hint=f"say it in {PROPERTIES} or in an {OPTION}* variable",
        )


def _check_writable(name: str, value: str) -> None:
    """Refuse what Java's reader and LMI's scripts would read differently in the result."""
    if "\\" in value or not value.isprintable() or value != value.strip():
        raise input_configuration(
            f"{name} has a value that readers of {PROPERTIES} take differently: {_shown(value)}"
        )


def _shown(text: str) -> str:
    return f"'{escape(text if len(text) <= 100 else text[:100] + '…')}'"
