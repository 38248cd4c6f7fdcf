"""The LMI family: AWS Large Model Inference, which is DJL Serving around vLLM.

The model's directory is the model store, and `serving.properties` at its root
makes it one model; a store of directories alone would be loaded as several
models.  HF_MODEL_ID stays unset: it would add a second model.

Left alone, LMI chooses its mode from config.json's architecture.  We set the
asynchronous mode and its handler, so that a model cannot change how it is served.

The same values are given again as OPTION_* environment.  The server reads the
file first, so they change nothing there; LMI's partition scripts and scripts
that only look at the environment see them.  Both come from one table, so
they cannot differ.  The price: a value is changed by building again, for an
OPTION_* set at deployment loses against the file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from packager.core.artifact import Artifacts
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.serving import MODEL_DIR, RenderedFile, ServingConfig
from packager.families.shared import GPU_MEMORY_UTILIZATION, OFFLINE_ENV, check_input_limit
from packager.rendering.check import check_properties
from packager.rendering.environment import render_template

OPTIONS_FILE = Path(__file__).parent / "data" / "lmi_options.toml"

OptionType = str | list[str]  # `int`, `float`, `bool`, `word`, the one value, or all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class LmiOptions:
    """Keys that a version of LMI reads, and those of them that vLLM's parser gets."""

    container: str
    types: Mapping[str, OptionType]
    pass_through: frozenset[str]


class LmiFamily:
    """Describes images whose server is DJL Serving with vLLM inside, on GPUs."""

    name = "lmi"

    def check(self, plan: Plan) -> Iterator[Finding]:
        """Say what LMI would drop without a word, or refuse when it starts."""
        yield from check_input_limit(plan)
        options = lmi_options()
        if plan.container.version != options.container:
            yield Finding(
                "warning",
                "options-unproven",
                f"the keys of LMI {plan.container.version!r} are not known here; "
                f"those of {options.container!r} are used",
            )
        yield from check_settings(settings(plan), options)

    def render(self, plan: Plan, artifacts: Artifacts) -> ServingConfig:  # noqa: ARG002
        """Give serving.properties and the same values as environment."""
        meant = settings(plan)
        text = render_template("lmi/serving.properties.j2", properties=meant)
        path = f"{MODEL_DIR}/serving.properties"
        check_properties(path, text, meant)
        return ServingConfig(
            files=(RenderedFile(path=path, data=text.encode("ascii")),),
            env={
                **OFFLINE_ENV,
                "DJL_OFFLINE": "true",
                "OPT_OUT_TRACKING": "1",
                "SERVING_MODEL_STORE": MODEL_DIR,
                **_option_env(meant),
            },
        )


def settings(plan: Plan) -> dict[str, str]:
    """Spell the plan in LMI's keys."""
    return {
        "engine": "Python",
        "option.async_mode": "true",
        "option.rolling_batch": "disable",
        "option.entryPoint": "djl_python.lmi_vllm.vllm_async_service",
        "option.tensor_parallel_degree": str(plan.tp_degree),
        "option.max_rolling_batch_size": str(plan.shape.max_batch),
        "option.max_model_len": str(plan.shape.max_total_tokens),
        "option.dtype": plan.dtype,
        "option.gpu_memory_utilization": str(GPU_MEMORY_UTILIZATION),
        "option.served_model_name": plan.served_name,
        "option.trust_remote_code": "false",
    }


def check_settings(meant: Mapping[str, str], options: LmiOptions) -> Iterator[Finding]:
    """Find keys that LMI does not read, and values that it does not take."""
    for key, value in meant.items():
        if key not in options.types:
            message = f"LMI {options.container} drops {key!r} without a word"
            yield Finding("error", "key-dropped", message, "leave it out, or use another family")
        elif not _is_of_type(value, options.types[key]):
            yield Finding("error", "value-refused", f"LMI does not take {value!r} for {key!r}")
        elif key in options.pass_through and _is_misread_as_flag(value, options.types[key]):
            message = f"LMI reads {value!r} for {key!r} as a switch, and vLLM refuses to start"
            yield Finding("error", "value-refused", message, "choose another served name")


@cache
def lmi_options() -> LmiOptions:
    """Read the shipped table of keys."""
    table = tomllib.loads(OPTIONS_FILE.read_text(encoding="utf-8"))
    return LmiOptions(
        container=table["container"],
        types={**table["server"], **table["own"], **table["pass_through"]},
        pass_through=frozenset(table["pass_through"]),
    )


def _option_env(meant: Mapping[str, str]) -> dict[str, str]:
    """Spell `option.` keys as environment, which LMI lowers again; it knows `entryPoint`.

    `engine` stays out: the server would read OPTION_ENGINE as `engine`, the
    partition scripts as `option.engine`.
    """
    prefix = "option."
    return {
        f"OPTION_{key.removeprefix(prefix).upper()}": value
        for key, value in meant.items()
        if key.startswith(prefix)
    }


def _is_of_type(value: str, of_type: OptionType) -> bool:
    if isinstance(of_type, list):
        return value in of_type
    match of_type:
        case "int":
            return value.isascii() and value.isdecimal()
        case "float":
            return _is_float(value)
        case "bool":
            return value in {"true", "false"}
        case "word":
            return bool(value) and not any(char.isspace() for char in value)
    return value == of_type


def _is_float(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _is_misread_as_flag(value: str, of_type: OptionType) -> bool:
    return of_type == "word" and value.lower() in {"true", "false"}
