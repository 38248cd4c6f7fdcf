"""Checkpoints that arrive quantized, against what the engine's version loads.

The list of methods is the engine's own, from its parser (`data/engines/vllm-*.json`);
the rest is in `data/engines/quantization.toml`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from packager.core.facts import ContainerFacts
from packager.core.findings import Finding, Severity
from packager.core.plan import Plan
from packager.core.prequantized import CheckpointRequirements
from packager.core.share import read_shipped
from packager.core.versions import LOWEST, is_within, version_key
from packager.engines.plain_modules import renaming_classes
from packager.engines.schema import ENGINES, find_schema, shipped_versions
from packager.engines.supported_models import served_class

ALLOW = "allow-deprecated-quantization"
BY_KIND = "targets-by-kind"  # read from the names of targets
MOST_NAMED = 3  # containers in a hint
# What to ask for instead of a feature of a checkpoint that a step will write.
OTHERWISE = {
    "expert-zero-points": "use `--quantize awq,symmetric` or gptq, which have none",
    "mixed-precision": "give all parts schemes of one format",
    "cache-scales": "leave `kv` out",
    "cache-scales-alone": "leave `kv` out",
}


def check_arrived(who: str, plan: Plan) -> Iterator[Finding]:
    """Find parts of a quantized checkpoint that the engine's version cannot load.

    `who` is the engine's name in messages.  Engines without a table are not checked.
    """
    arrived, engine = plan.arrived, plan.container.engine
    if arrived is None or engine not in _table():
        return
    if not _has_method(engine, plan.container.engine_version, arrived):
        yield _lacks_method(who, plan, arrived)
        return
    yield from _check_deprecated(who, plan, arrived)
    yield from _check_features(who, plan, arrived)
    yield from _check_targets(who, plan, arrived)
    yield from _check_ours(who, plan)
    yield from _check_reader(who, plan, arrived)
    yield from _check_head(who, plan, arrived)


def _lacks_method(who: str, plan: Plan, arrived: CheckpointRequirements) -> Finding:
    container = plan.container
    having = [
        version
        for version in _versions(container.engine, plan.containers)
        if _has_method(container.engine, version, arrived)
    ]
    known = _when(container.engine_version, having, "has it")
    message = (
        f"{who} {container.engine_version} does not load checkpoints quantized with "
        f"{arrived.loader[:40]!r}; {known}"
    )
    # Older than every list there is: methods that were dropped since may be in it.
    severity: Severity = "warning" if _is_before_lists(container) else "error"
    hint = _containers_hint(plan, arrived, "take the unquantized checkpoint, or another format")
    return Finding(severity, "engine-lacks-quantization", message, hint)


def _check_deprecated(who: str, plan: Plan, arrived: CheckpointRequirements) -> Iterator[Finding]:
    version = plan.container.engine_version
    if not _is_deprecated(plan.container.engine, version, arrived) or _is_allowed(plan):
        return
    message = (
        f"{who} {version} refuses checkpoints quantized with {arrived.loader!r}, which is "
        f"deprecated there, unless {ALLOW} is set"
    )
    hint = _containers_hint(plan, arrived, f"add --engine-option {ALLOW}=true")
    yield Finding("error", "quantization-deprecated", message, hint)


def _check_features(who: str, plan: Plan, arrived: CheckpointRequirements) -> Iterator[Finding]:
    container = plan.container
    for name in _lacking(container.engine, container.engine_version, arrived):
        row = next(row for row in _rows(container.engine, "feature") if row["name"] == name)
        versions = [
            version
            for version in _versions(container.engine, plan.containers)
            if name not in _lacking(container.engine, version, arrived)
        ]
        known = _when(container.engine_version, versions, "does")
        message = f"{who} {container.engine_version} does not load {row['what']}; {known}"
        otherwise = OTHERWISE.get(name, "") if _is_ours(plan) else ""
        hint = _containers_hint(plan, arrived, otherwise or "take a checkpoint in another format")
        yield Finding("error", "engine-lacks-quantization", message, hint)


def _check_targets(who: str, plan: Plan, arrived: CheckpointRequirements) -> Iterator[Finding]:
    """Refuse schemes for kinds of modules where the class renames them as if they were paths."""
    version, served = plan.container.engine_version, served_class(plan)
    renaming = renaming_classes(plan.container.engine, version)
    if BY_KIND not in arrived.features or served not in renaming:
        return
    message = (
        f"{who} {version} runs {plan.profile.architecture} as {served}, which takes the names of "
        "kinds of modules in quantization_config, such as 'Linear', for paths, and finds no scheme"
    )
    hint = "use --family vllm, or leave the weights as they are"
    yield Finding("error", "engine-lacks-quantization", message, hint)


def _check_ours(who: str, plan: Plan) -> Iterator[Finding]:
    """Refuse to quantize what the engine's class does not load in the form that we write."""
    version, profile = plan.container.engine_version, plan.profile
    for row in _rows(plan.container.engine, "ours"):
        meant = profile.architecture in row["architectures"] and (
            profile.experts or not row.get("experts")
        )
        if _is_ours(plan) and meant and _covers(row, version):
            message = f"{who} {version} does not load what packager quantizes of "
            hint = "use --family vllm, or leave the weights as they are"
            message += f"{profile.architecture}: {row['why']}"
            yield Finding("error", "engine-lacks-quantization", message, hint)


def _is_ours(plan: Plan) -> bool:
    return plan.quantization is not None and not plan.quantization.existing


def _check_reader(who: str, plan: Plan, arrived: CheckpointRequirements) -> Iterator[Finding]:
    """Refuse keys that the engine's own reader of compressed-tensors forbids."""
    reader = _reader(plan.container.engine, plan.container.engine_version)
    refused = sorted(arrived.keys & set(reader.get("refuses", ())))
    if not refused or arrived.method != "compressed-tensors":
        return
    wrote = f"compressed-tensors {arrived.writer[:20]}" if arrived.writer else "a newer version"
    message = (
        f"{who} {plan.container.engine_version} reads with compressed-tensors "
        f"{reader['version']}, which refuses {', '.join(map(repr, refused))} in "
        f"quantization_config, written by {wrote}"
    )
    hint = _containers_hint(
        plan, arrived, "remove the keys from config.json where their value is null"
    )
    yield Finding("error", "quantization-writer-newer", message, hint)


def _check_head(who: str, plan: Plan, arrived: CheckpointRequirements) -> Iterator[Finding]:
    ours = _is_ours(plan)
    if not arrived.head or not (ours or _rows(plan.container.engine, "head")):
        return
    version = plan.container.engine_version
    if not _loads_head(plan.container.engine, version, arrived):
        message = (
            f"lm_head is quantized ({arrived.head[:80]!r}), and {who} {version} does not load "
            f"a quantized head of {arrived.method!r} checkpoints"
        )
    elif not arrived.head_declared:
        message = (
            f"lm_head is quantized ({arrived.head[:80]!r}), and quantization_config does not say "
            f"so: {who} would load a plain one"
        )
    else:
        return
    otherwise = "leave lm_head out" if ours else "take a checkpoint whose lm_head is not quantized"
    hint = _containers_hint(plan, arrived, otherwise)
    yield Finding("error", "quantized-head", message, hint)


def _when(version: str, having: list[str], does: str) -> str:
    """Describe since when, or until when, the engine had what `version` lacks. Newest first."""
    key = version_key(version)
    older = [one for one in having if key and (other := version_key(one)) and other < key]
    if older:
        return f"the last version that {does} is {older[0]}"
    return f"the first version that {does} is {having[-1]}" if having else f"no version {does}"


def _containers_hint(plan: Plan, arrived: CheckpointRequirements, otherwise: str) -> str:
    """Propose containers of the family that load the checkpoint without a complaint."""
    names = dict.fromkeys(
        container.release or container.engine_version
        for container in plan.containers
        if _is_alternative(container, plan.container) and _loads(container, arrived)
    )
    if not names:
        return otherwise
    return f"use --container-version {' or '.join([*names][:MOST_NAMED])}; or {otherwise}"


def _is_alternative(container: ContainerFacts, chosen: ContainerFacts) -> bool:
    def place(one: ContainerFacts) -> tuple[str, str, str]:
        return one.family, one.kind, one.engine

    return place(container) == place(chosen) and container != chosen


def _loads(container: ContainerFacts, arrived: CheckpointRequirements) -> bool:
    engine, version = container.engine, container.engine_version
    reader = _reader(engine, version)
    return (
        _has_method(engine, version, arrived)
        and not _is_deprecated(engine, version, arrived)
        and not _lacking(engine, version, arrived)
        and not arrived.keys & set(reader.get("refuses", ()))
        and (not arrived.head or _loads_head(engine, version, arrived))
        and (not arrived.head or arrived.head_declared)
    )


def _has_method(engine: str, version: str, arrived: CheckpointRequirements) -> bool:
    names = {arrived.loader, *_table()[engine]["aliases"].get(arrived.loader, ())}
    rows = _rows(engine, "method")
    if rows:
        return any(names & set(row["names"]) and _covers(row, version) for row in rows)
    return bool(names & set(_choices(engine, version)))


@cache
def _choices(engine: str, version: str) -> tuple[str, ...]:
    return find_schema(engine, version).options["quantization"].choices


def _is_deprecated(engine: str, version: str, arrived: CheckpointRequirements) -> bool:
    return any(
        arrived.loader in row["methods"] and _covers(row, version)
        for row in _rows(engine, "deprecated")
    )


def _is_allowed(plan: Plan) -> bool:
    """Whether the user set the engine's switch, in any of its spellings."""
    return any(
        name.removeprefix("--").removeprefix("option.").lower().replace("_", "-") == ALLOW
        and value.lower() == "true"
        for name, value in plan.engine_options
    )


def _lacking(engine: str, version: str, arrived: CheckpointRequirements) -> tuple[str, ...]:
    rows = {row["name"]: row for row in _rows(engine, "feature")}
    return tuple(
        name for name in arrived.features if name in rows and not _covers(rows[name], version)
    )


def _loads_head(engine: str, version: str, arrived: CheckpointRequirements) -> bool:
    return any(
        arrived.loader in row["methods"] and _covers(row, version) for row in _rows(engine, "head")
    )


def _reader(engine: str, version: str) -> Mapping[str, Any]:
    return next((row for row in _rows(engine, "reader") if _covers(row, version)), {})


def _covers(row: Mapping[str, Any], version: str) -> bool:
    """Whether a version is in a row's range; one that cannot be read is taken as the newest."""
    if row.get("since") == "never":
        return False
    return is_within(version, row.get("since", ""), row.get("before", ""))


def _versions(engine: str, containers: tuple[ContainerFacts, ...]) -> list[str]:
    """List the versions that are known, newest first."""
    known = {*shipped_versions(engine)}
    known |= {one.engine_version for one in containers if one.engine == engine}
    readable = [version for version in known if version_key(version) is not None]
    return sorted(readable, key=lambda version: version_key(version) or LOWEST, reverse=True)


def _is_before_lists(container: ContainerFacts) -> bool:
    keys = [key for one in shipped_versions(container.engine) if (key := version_key(one))]
    key = version_key(container.engine_version)
    return bool(keys) and key is not None and key < min(keys)


def _rows(engine: str, kind: str) -> tuple[Mapping[str, Any], ...]:
    return tuple(_table()[engine].get(kind, ()))


@cache
def _table() -> Mapping[str, Any]:
    return read_shipped(ENGINES / "quantization.toml")
