"""Conversion of an optimization job's environment variables to fields of a request.

Every variable is converted or refused by name: a job that ignores one would complete and serve
another model than requested.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from artifact_cache.secrets import HIDDEN
from packager.addons.deploy.sagemaker.api_refusals import ValidationRefused
from packager.addons.server.sagemaker.documented import known_names, option_source, variable_source
from packager.addons.server.sagemaker.untrusted_options import reaches_out
from packager.addons.server.sagemaker.variables import (
    DRAFT_MODELS,
    ENGINE_PREFIXES,
    HUB_TOKEN,
    METHODS,
    NOT_MADE,
    NUMBERS,
    OF_DEPLOYMENT,
    OF_DEPLOYMENT_NAMES,
    OF_LIBRARIES,
    OPTION,
    Q_FORMATS,
    QUANTIZE_OPTIONS,
    SAME_HERE,
    SECRETS,
    TEXTS,
    TOKENS,
    TRANSLATED,
    WITHOUT_MEANING,
    WORDS,
)
from packager.core.documents import NotStrict, parse_object
from packager.core.plan import SHARDED_STATE
from packager.core.suggestions import nearest
from packager.core.text import escape
from packager.engines.lmi.options import lmi_options
from packager.engines.schema import EngineSchema, Option, check_value, find_schema

NEWEST = "999"  # a version above all: the newest schema that is shipped
NEWEST_LMI = 999
MOST_FAULTS = 20  # in one message; all are counted
CHANNELS = "/opt/ml/additional-model-data-sources/"
NGRAM = "[ngram]"
DRAFT_KINDS = ("eagle", "eagle3", "medusa", "mtp", "dflash")  # `KIND:REF` of a request
WITHOUT_FILES = ("ngram", "ngram_gpu", "suffix")
TRUTHS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(slots=True)
class Wishes:
    """Settings for a build, from the variables read so far."""

    fields: dict[str, Any] = field(default_factory=dict)  # of a `BuildRequest`
    engine_options: dict[str, str] = field(default_factory=dict)
    quantize: str = ""  # the method; "" where none is named
    quantize_options: dict[str, str] = field(default_factory=dict)  # as the variables spell them
    draft_model: str = ""  # as it is written: a path of a channel, a reference
    is_tensorrt: bool = False
    engine: str = ""  # that variables of one engine name: `vllm`, `sglang`
    output_tokens: int | None = None  # of a request, at most
    kept: dict[str, str] = field(default_factory=dict)  # variable → who documents it; no effect
    secrets: dict[str, str] = field(default_factory=dict)  # variables of the job's processes
    asked_by: dict[str, str] = field(default_factory=dict)  # field → variable


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Context on which a variable's meaning depends."""

    devices: int  # of the instance that the job names
    has_lmi: bool  # the image of the job is one of LMI


def read_environment(environment: Mapping[str, str], where: Surroundings) -> Wishes:
    """Read every variable; raises `ValidationRefused` for all that cannot be followed."""
    wishes = Wishes()
    faults = []
    for name, value in environment.items():
        if value == "":  # LMI skips empty ones, too
            continue
        try:
            _read(name, value, wishes, where)
        except ValidationRefused as refused:
            faults.append(refused.message)
    if faults:
        rest = len(faults) - MOST_FAULTS
        more = [f"{rest} more"] if rest > 0 else []
        raise ValidationRefused("; ".join([*faults[:MOST_FAULTS], *more]))
    if wishes.output_tokens is not None and "max_input_tokens" in wishes.fields:
        whole = wishes.fields["max_input_tokens"] + wishes.output_tokens
        wishes.fields.setdefault("max_total_tokens", whole)
    return wishes


def kept_notes(wishes: Wishes) -> list[str]:
    """Return log lines about variables without effect here, once each."""
    by_source: dict[str, list[str]] = {}
    for name, source in wishes.kept.items():
        by_source.setdefault(source, []).append(name)
    return [
        f"{', '.join(names)} ({source}): kept and described, and changes nothing here"
        for source, names in by_source.items()
    ]


def quantization(wishes: Wishes, method: str) -> dict[str, Any]:
    """Return the fields of a request that quantize by a method, with its options."""
    words: list[str] = []
    ignored: list[str] = []
    for option, value in wishes.quantize_options.items():
        if not option.startswith(f"{method}_"):
            raise ValidationRefused(
                f"{_variable(option)!r} is an option of another method than {method!r}"
            )
        if option in ("awq_ignore_layers", "fp8_ignore", "fp8_ignore_patterns"):
            named = [part.strip() for part in value.split(",") if part.strip()]
            # AutoAWQ leaves every module out whose name has the text in it.
            is_part = option == "awq_ignore_layers"
            ignored += [f"re:.*{re.escape(one)}.*" if is_part else one for one in named]
        else:
            words += _quantize_word(option, value)
    found: dict[str, Any] = {"quantize": ",".join((method, *dict.fromkeys(words)))}
    if ignored:
        found["quantize_ignore"] = ignored
    return found


def draft_reference(model: str, channels: Mapping[str, str]) -> str:
    """Return a draft as a request writes it, with its place in a bucket for a channel's path."""
    kind, colon, rest = model.partition(":")
    if colon and kind in DRAFT_KINDS:
        return f"{kind}:{draft_reference(rest, channels)}"
    if model == NGRAM or model in WITHOUT_FILES:
        return "ngram" if model == NGRAM else model
    if not model.startswith(CHANNELS):
        return model
    channel, _, below = model.removeprefix(CHANNELS).strip("/").partition("/")
    if channel not in channels:
        raise ValidationRefused(
            f"{escape(model[:200])!r} is a channel that the model of the job does not have"
        )
    place = channels[channel].rstrip("/")
    return f"{place}/{below}/" if below else f"{place}/"


def _read(name: str, value: str, wishes: Wishes, where: Surroundings) -> None:
    if name in TOKENS:
        if value == HIDDEN:
            raise ValidationRefused(
                f"{_shown(name)} is {HIDDEN!r}, as Describe shows it: give the token itself"
            )
        wishes.secrets[HUB_TOKEN] = value
        return
    if SECRETS & set(name.upper().split("_")):
        raise ValidationRefused(
            f"{_shown(name)} looks like a secret, which no document of a job may hold: "
            "give it to the environment of the server"
        )
    if name in OF_DEPLOYMENT_NAMES or name.startswith(OF_DEPLOYMENT):
        wishes.kept[name] = "of the server that serves the result"
        return
    for prefix, engine in ENGINE_PREFIXES.items():
        if name.startswith(prefix):
            if wishes.engine not in ("", engine):
                raise ValidationRefused(
                    f"{_shown(name)} is for {engine!r}, others are for {wishes.engine!r}"
                )
            wishes.engine = engine
            _read_option(name, name.removeprefix(prefix).lower(), value, wishes, where)
            return
    if name == "ENABLE_CUDA_GRAPHS":
        eager = "false" if _truth(name, value) else "true"
        _read_option(name, "enforce_eager", eager, wishes, where)
    elif name in TRANSLATED:
        _read_option(name, TRANSLATED[name], value, wishes, where)
    elif name.startswith(OPTION):
        _read_option(name, name.removeprefix(OPTION).lower(), value, wishes, where)
    elif source := variable_source(name) or name.startswith(OF_LIBRARIES) * "of its libraries":
        wishes.kept[name] = source
    else:
        raise _unknown(name)


def _read_option(name: str, option: str, value: str, wishes: Wishes, where: Surroundings) -> None:
    if option in NUMBERS:
        _ask(wishes, NUMBERS[option], _number(name, option, value, where), name)
    elif option in WORDS:
        target, words = WORDS[option]
        if value.lower() not in words:
            raise _refused_value(name, value, words)
        _ask(wishes, target, words[value.lower()], name)
    elif option in TEXTS:
        _ask(wishes, TEXTS[option], _text(name, option, value), name)
    elif option in _OF_TECHNIQUES:
        _read_technique(name, option, value, wishes)
    elif option == "rolling_batch" and value == "trtllm":
        wishes.is_tensorrt = True
    elif option == "load_format" and value.lower() == SHARDED_STATE:
        _ask(wishes, "load_format", SHARDED_STATE, name)
    elif option == "enable_expert_parallel":
        _ask(wishes, "ep", _truth(name, value), name)
    elif option == "max_output_len":
        wishes.output_tokens = _number(name, "", value, None)
    elif option == "trust_remote_code":
        if _truth(name, value):
            wishes.kept[name] = "a model's own code is never run here"
    elif option in SAME_HERE:
        if value not in SAME_HERE[option] and value.lower() not in SAME_HERE[option]:
            raise _refused_value(name, value, SAME_HERE[option])
    elif option in WITHOUT_MEANING:
        wishes.kept[name] = option_source(option) or "of AWS's tools"
    else:
        _read_engine_option(name, option, value, wishes, where)


_METHOD_NAMES = ("quantize", "quantization", "q_format")
_OF_TECHNIQUES = {*_METHOD_NAMES, *QUANTIZE_OPTIONS, *DRAFT_MODELS, *NOT_MADE, "speculative_config"}


def _read_technique(name: str, option: str, value: str, wishes: Wishes) -> None:
    """Read what quantizes, or what drafts."""
    if option in _METHOD_NAMES:
        _read_method(name, option, value, wishes)
    elif option in QUANTIZE_OPTIONS:
        wishes.quantize_options[option] = value
    elif option in DRAFT_MODELS:
        wishes.draft_model = value
    elif option == "speculative_config":
        _read_speculation(name, value, wishes)
    elif value.lower() not in ("false", "0", "none"):
        raise ValidationRefused(
            f"{_shown(name)} asks for a quantization that is not made here: give "
            f"OPTION_QUANTIZE {' or '.join(METHODS[:4])}"
        )


def _read_method(name: str, option: str, value: str, wishes: Wishes) -> None:
    method = Q_FORMATS.get(value, "") if option == "q_format" else value.lower()
    if method not in METHODS:
        raise _refused_value(name, value, Q_FORMATS if option == "q_format" else METHODS)
    if wishes.quantize not in ("", method):
        raise ValidationRefused(f"{_shown(name)} asks for {value!r} beside {wishes.quantize!r}")
    wishes.quantize = method


def _read_engine_option(
    name: str, option: str, value: str, wishes: Wishes, where: Surroundings
) -> None:
    """Keep a setting of the engine itself; refuse a name that it lacks, and a wrong value."""
    found = _option_of(option, wishes.engine or "vllm", where)
    if found is None and name.startswith(OPTION) and (source := option_source(option)):
        wishes.kept[name] = source
        return
    if found is None:
        raise _unknown(name)
    for fault in check_value("the engine", found, name, value):
        raise ValidationRefused(fault.message)
    if what := reaches_out(option, value):
        raise ValidationRefused(
            f"{_shown(name)} names {what}, which no document may: give it with the model, below "
            "/opt/ml/model/, or leave it to the model that is made of the result"
        )
    wishes.engine_options[option.replace("_", "-")] = value


def _option_of(option: str, engine: str, where: Surroundings) -> Option | None:
    schema = find_schema(engine, NEWEST)
    if (found := schema.find(option)) is not None:
        return found
    if where.has_lmi:
        return lmi_options(schema, NEWEST_LMI).types.get(f"option.{option}")
    return None


def _vllm() -> EngineSchema:
    return find_schema("vllm", NEWEST)


def _read_speculation(name: str, value: str, wishes: Wishes) -> None:
    """Read `{"method": …, "model": …, "num_speculative_tokens": …}`, as vLLM takes it."""
    try:
        config = parse_object(value.encode())
    except NotStrict as error:
        raise ValidationRefused(f"{_shown(name)} cannot be read: {error}") from error
    method, model = config.pop("method", "draft_model"), config.pop("model", "")
    tokens = config.pop("num_speculative_tokens", None)
    if config:
        raise ValidationRefused(
            f"{_shown(name)} has {_shown(min(map(str, config)))}, which no draft of packager has"
        )
    if tokens is not None:
        _ask(wishes, "speculative_tokens", _number(name, "", json.dumps(tokens), None), name)
    if method in WITHOUT_FILES:
        wishes.draft_model = str(method)
    elif method == "draft_model" and isinstance(model, str) and model:
        wishes.draft_model = model
    elif method in DRAFT_KINDS and isinstance(model, str) and model:
        wishes.draft_model = f"{method}:{model}"
    else:
        raise _refused_value(name, str(method), (*DRAFT_KINDS, *WITHOUT_FILES, "draft_model"))


def _ask(wishes: Wishes, target: str, value: Any, name: str) -> None:
    if wishes.fields.get(target, value) != value:
        raise ValidationRefused(
            f"{_shown(name)} asks for {value!r}, and {_shown(wishes.asked_by[target])} "
            f"for {wishes.fields[target]!r}"
        )
    wishes.fields[target] = value
    wishes.asked_by[target] = name


def _number(name: str, option: str, value: str, where: Surroundings | None) -> int:
    if where is not None and option == "tensor_parallel_degree" and value == "max":
        return where.devices
    if not re.fullmatch(r"[1-9][0-9]{0,9}", value) or int(value) >= 2**31:
        raise _refused_value(name, value, ("a whole number from 1 on",))
    return int(value)


def _text(name: str, option: str, value: str) -> Any:
    if option != "gpu_memory_utilization":
        return value
    if not re.fullmatch(r"0?\.[0-9]{1,6}", value) or not 0 < float(value) < 1:
        raise _refused_value(name, value, ("a share below 1, such as 0.9",))
    return float(value)


def _truth(name: str, value: str) -> bool:
    if value.lower() not in TRUTHS:
        raise _refused_value(name, value, ("true", "false"))
    return TRUTHS[value.lower()]


def _quantize_word(option: str, value: str) -> list[str]:
    """Return an option of a method, as packager spells it."""
    name = _variable(option)
    if option == "awq_zero_point":
        return ["asymmetric" if _truth(name, value) else "symmetric"]
    if option == "awq_block_size":
        return [f"group={_number(name, '', value, None)}"]
    if option == "smoothquant_alpha":
        if not re.fullmatch(r"(0(\.[0-9]{1,6})?|1(\.0{1,6})?)", value):
            raise _refused_value(name, value, ("a number from 0 to 1",))
        return [f"strength={value}"]
    if option == "fp8_kv_cache_quant_targets":
        return ["kv"]
    schemes = {"FP8": "static", "FP8_DYNAMIC": "dynamic", "FP8_BLOCK": "block"}
    if option == "fp8_activation_scheme":
        schemes = {"static": "static", "dynamic": "dynamic"}
    if value not in schemes:
        raise _refused_value(name, value, schemes)
    return [schemes[value]]


def _variable(option: str) -> str:
    return f"{OPTION}{option.upper()}"


def _unknown(name: str) -> ValidationRefused:
    own = map(_variable, ("quantize", *NUMBERS, *QUANTIZE_OPTIONS, *_vllm().fields))
    guess = nearest(name[:100].upper(), (*TRANSLATED, *own, *known_names()))
    meant = f": did you mean {guess!r}?" if guess else ""
    return ValidationRefused(
        f"{_shown(name)} is not a setting that AWS documents or an engine here has{meant}"
    )


def _refused_value(name: str, value: str, taken: Any) -> ValidationRefused:
    return ValidationRefused(
        f"Value {_shown(value)} of {_shown(name)} is not supported: expected "
        f"{' or '.join(map(str, taken))}"
    )


def _shown(text: str) -> str:
    return f"'{escape(text if len(text) <= 100 else text[:100] + '…')}'"
