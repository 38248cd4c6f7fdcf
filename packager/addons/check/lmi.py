"""LMI: a serving.properties, the variables beside it, and which of them the server takes.

The server reads the file first: a variable adds what the file does not say.  Its entrypoint
translates some of TGI's names where LMI's own are not set (`lmi_legacy.ENVIRONMENT`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from packager.addons.check.locating import located
from packager.addons.check.plain import holds_secret
from packager.addons.check.values import ConfigTarget, DescribedServer, Remark, Setting
from packager.core.documents import shorten
from packager.core.findings import Finding
from packager.engines.lengths import judge_length
from packager.engines.lmi.check import check_settings, vllm_settings
from packager.engines.lmi.legacy import ENVIRONMENT, LEGACY_KEYS
from packager.engines.lmi.options import lmi_options
from packager.engines.lmi.render import JSON_DRAFT_SINCE
from packager.engines.lmi.trtllm import check_keys as check_trtllm_keys
from packager.engines.request_options import speculation_of
from packager.engines.rules import Facts
from packager.engines.schema import EngineSchema, check_version, find_schema
from packager.engines.trtllm import ENGINE as TENSORRT
from packager.engines.vllm.check import check_draft_config
from packager.engines.vllm.options import DRAFT_FIELD

PREFIX = "OPTION_"
LOWERED = re.compile(r"[A-Z_\d]+", re.ASCII)
COPIES = re.compile(r"max|-?\d+", re.ASCII)  # of `tensor_parallel_degree`: `max` is resolved
DRAFT = "option.speculative_config"
DEGREE = "option.tensor_parallel_degree"

# SageMaker's own variables: of these three the file loses against them.
# Source: djl-serving d21927c4, ConfigManager and ModelInfo; read 2026-11-20.
WINNING = {
    "SAGEMAKER_STARTUP_TIMEOUT": "option.model_loading_timeout",
    "SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS": "option.predict_timeout",
    "SAGEMAKER_NUM_MODEL_WORKERS": "maxWorkers",
}


def check_lmi(server: DescribedServer, target: ConfigTarget, facts: Facts) -> Iterator[Remark]:
    """Find what this release of LMI drops, refuses or reads otherwise."""
    yield from _overridden(server, {setting.name: setting for setting in server.properties})
    used = lmi_settings(server)
    values = {
        name: setting.value
        for name, setting in used.items()
        if setting.value is not None and not holds_secret(name, setting.value)
    }
    if COPIES.fullmatch(values.get(DEGREE, "")) and not values[DEGREE].isdecimal():
        del values[DEGREE]  # the server makes a number of it
    names = {name: setting.place for name, setting in used.items()}
    if target.engine == TENSORRT:
        yield from located(check_trtllm_keys(values), names, server.place)
        return
    schema = find_schema("vllm", target.version)
    found = [*_findings(values, target, schema, facts, server.variables)]
    yield from _with_migration(located(found, names, server.place), used, target)


def lmi_settings(server: DescribedServer) -> Mapping[str, Setting]:
    """Return what the server ends up with by LMI's keys: the file's, then what variables add."""
    return {
        **_of_environment(server.env),
        **{setting.name: setting for setting in server.properties},
    }


def option_of(variable: str) -> str:
    """Return the key that a variable sets; "" for one that LMI makes no option of."""
    if variable == "OPTION_ENTRYPOINT":
        return "option.entryPoint"
    if variable == "OPTION_ENGINE":
        return "engine"
    if variable.startswith(PREFIX):
        name = variable.removeprefix(PREFIX)
        return f"option.{name.lower() if LOWERED.fullmatch(name) else name}"
    return ENVIRONMENT.get(variable, "")


def _findings(
    values: Mapping[str, str],
    target: ConfigTarget,
    schema: EngineSchema,
    facts: Facts,
    environment: Mapping[str, str],
) -> Iterator[Finding]:
    options = lmi_options(schema, target.release)
    if options.pass_through:
        yield from check_version("vLLM", target.version, schema)
    inside = vllm_settings(values, options)
    known, of_length = judge_length(
        f"vLLM {target.version}",
        "vllm",
        target.version,
        {name: value for name, (_, value) in inside.items()},
        facts,
        environment=environment,
        spelled=inside.get("max-model-len", ("", ""))[0],
    )
    yield from of_length
    yield from check_settings(values, options, known, vllm_version=target.version)
    config = speculation_of({DRAFT_FIELD: values[DRAFT]}) if DRAFT in values else None
    if config is not None and target.release >= JSON_DRAFT_SINCE:
        yield from check_draft_config("vLLM", config, schema)


def _of_environment(env: Sequence[Setting]) -> dict[str, Setting]:
    """Return by LMI's keys what variables set; LMI's own names win over translated ones."""
    own = {option_of(one.name): one for one in env if one.name.startswith(PREFIX)}
    found = {name: one for name, one in own.items() if one.value != ""}  # empty ones are skipped
    for setting in env:
        name = ENVIRONMENT.get(setting.name)
        if name is not None and setting.value != "":
            found.setdefault(name, setting)
    return found


def _overridden(server: DescribedServer, in_file: Mapping[str, Setting]) -> Iterator[Remark]:
    for setting in server.env:
        key = option_of(setting.name)
        if key in in_file and setting.value != in_file[key].value:
            where = in_file[key].place
            message = (
                f"{setting.name!r} has no effect: {key!r} in {where.file} line {where.line} wins"
            )
            hint = "change the file, or take the key out of it"
            yield Remark(setting.place, Finding("warning", "setting-overridden", message, hint))
        key = WINNING.get(setting.name, "")
        if key in in_file:
            message = f"{key!r} has no effect: the variable {setting.name} wins over the file"
            found = Finding("warning", "setting-overridden", message, "set one of the two")
            yield Remark(in_file[key].place, found)


def _with_migration(
    remarks: Iterator[Remark], used: Mapping[str, Setting], target: ConfigTarget
) -> Iterator[Remark]:
    """Add a pointer to `packager migrate` where a key is one of an older LMI."""
    by_place = {setting.place: name for name, setting in used.items()}
    for remark in remarks:
        key = by_place.get(remark.place, "")
        if remark.finding.code == "key-dropped" and key in LEGACY_KEYS:
            file = shorten(remark.place.file, 100).strip("'")
            hint = f"`packager migrate {file} --to {target.release}` writes it in today's keys"
            yield replace(remark, finding=replace(remark.finding, hint=hint))
        else:
            yield remark
