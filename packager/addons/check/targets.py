"""Detection of a server's engine and version: by command, image, keys, or the user."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from packager.addons.check.engine_commands import find_start, start_of
from packager.addons.check.values import ConfigTarget, DescribedServer
from packager.catalog.containers import containers, find_container, version_names
from packager.core.documents import shorten
from packager.core.errors import UsageError
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding
from packager.core.share import read_shipped
from packager.core.versions import version_key
from packager.engines.schema import find_schema, shipped_versions

FAMILIES = ("vllm", "sglang", "tgi", "lmi")
UPSTREAM = "upstream"
NEWEST = "the newest that is known"
VERSION = re.compile(r"v?(\d+\.\d+(?:\.\d+)*(?:\.?(?:post|rc|dev)\d+)*)", re.ASCII)
AWS_TAGS = Path(__file__).parent / "data" / "aws_tags.toml"
AWS = re.compile(r"server-(?:sagemaker-)?cuda-(v\d+(?:\.\d+)*)(?:-.*)?", re.ASCII)
LMI = re.compile(r"lmi(\d+)", re.ASCII)
FILLED_IN = re.compile(r"\$\{[^}]*\}|\$\w+|\{\{.*?\}\}")  # elsewhere
TGI = re.compile(r"(?:^|-tgi)v?(\d+\.\d+\.\d+)", re.ASCII)

# Prefixes of variables that one family's entrypoint makes options of.
PREFIXES: dict[str, tuple[str, str]] = {
    "SM_VLLM_": ("vllm", ""),
    "SM_SGLANG_": ("sglang", ""),
    "OPTION_": ("lmi", ""),
    "SM_ON_": ("neuron", "hf-vllm-neuronx"),
}
# Variables that TGI's launcher alone reads: LMI takes some of the others.
TGI_NAMES = frozenset(
    [
        "MAX_INPUT_TOKENS",
        "MAX_INPUT_LENGTH",
        "MAX_TOTAL_TOKENS",
        "MAX_BATCH_TOTAL_TOKENS",
        "NUM_SHARD",
        "MAX_CONCURRENT_REQUESTS",
        "WAITING_SERVED_RATIO",
        "MAX_WAITING_TOKENS",
        "MAX_STOP_SEQUENCES",
        "MAX_BEST_OF",
        "SHARDED",
        "CUDA_GRAPHS",
        "LORA_ADAPTERS",
    ]
)


def parse_target(text: str) -> ConfigTarget:
    """Parse `--for FAMILY[:VERSION]`."""
    family, _, version = text.partition(":")
    if family not in FAMILIES:
        raise UsageError(
            f"--for {shorten(text, 60)} names no engine that is checked",
            hint=f"use {', '.join(FAMILIES)}, with a version behind a colon: vllm:0.27.1",
        )
    if family == "lmi":
        container = find_container("lmi", "nvidia", version or None)
        return _of_container(container, "--for")
    if version and version_key(version) is None:
        raise UsageError(
            f"--for {shorten(text, 60)} names no version", hint=f"write it as {family}:1.2.3"
        )
    found = version.removeprefix("v") or newest_version(family)
    return ConfigTarget(family=family, version=found, said_by="--for")


def find_target(server: DescribedServer, asked: Sequence[ConfigTarget]) -> ConfigTarget | None:
    """Find what a server runs; the user's family wins over the image's.

    None if the family is unknown, or the image does not serve models.
    """
    family, variant = family_of(server)
    of_image = read_image(server.image)
    if of_image is not None and (not family or family == of_image.family):
        family, variant = of_image.family, of_image.variant
    if server.config and asked and not any(one.family == family for one in asked):
        family = asked[0].family
    if not family and asked and (not server.image or server.command):
        family = asked[0].family
    said = next((one for one in asked if one.family == family), None)
    if said is not None:
        return replace(said, variant=variant or said.variant)
    if of_image is not None and of_image.family == family and of_image.version:
        return of_image
    if not family:
        return None
    start = find_start(server.command)
    if start is not None and version_key(start.version) is not None:
        return _target(family, start.version, variant, "the program's name")
    return replace(newest(family), variant=variant)


def family_of(server: DescribedServer) -> tuple[str, str]:
    """Return the family, and its image, by the words of a server's command."""
    start = start_of(server)
    if start is not None:
        return start.family, UPSTREAM
    if server.properties:
        return "lmi", ""
    names = [setting.name for setting in server.env]
    counts = {prefix: sum(name.startswith(prefix) for name in names) for prefix in PREFIXES}
    most = max(PREFIXES, key=lambda prefix: counts[prefix])
    if counts[most]:
        return PREFIXES[most]
    if TGI_NAMES & set(names):
        return "tgi", ""
    if server.config:
        return _family_of_config(server), UPSTREAM
    return "", ""


def _family_of_config(server: DescribedServer) -> str:
    """Return the engine whose options a `--config` file has most of; vLLM's where alike."""
    schemas = {family: find_schema(family, newest_version(family)) for family in ("vllm", "sglang")}
    known = {
        family: sum(schema.find(setting.name) is not None for setting in server.config)
        for family, schema in schemas.items()
    }
    family = "sglang" if known["sglang"] > known["vllm"] else "vllm"
    return family if 2 * known[family] >= len(server.config) else ""


def read_image(reference: str) -> ConfigTarget | None:
    """Read family, version and variant from an image's reference."""
    path = FILLED_IN.sub("$", reference).partition("@")[0]
    head, colon, tag = path.rpartition(":")
    if not colon or "/" in tag:
        head, tag = path, ""
    repository, tag = head.rpartition("/")[2], "" if "$" in tag else tag
    if not repository or "$" in repository:
        return None
    for container in containers():
        ours = container.repository or container.default_base.partition(":")[0].rpartition("/")[2]
        if tag and container.version == tag and repository == ours.rpartition("/")[2]:
            return _of_container(container, "the image's tag")
    return _by_convention(repository, tag)


def newest(family: str) -> ConfigTarget:
    """Return the newest version that is known of a family."""
    said_by = NEWEST
    if family == "lmi":
        return _of_container(find_container("lmi", "nvidia"), said_by)
    return ConfigTarget(family=family, version=newest_version(family), said_by=said_by)


def newest_version(family: str) -> str:
    """Return the newest version of an engine whose options are known."""
    keys = {one: key for one in shipped_versions(family) if (key := version_key(one)) is not None}
    return max(keys, key=lambda version: keys[version]) if keys else ""


def of_release(release: int) -> ContainerFacts | None:
    """Find the catalog's image of a release of LMI with vLLM."""
    wanted = f"lmi{release}"
    return next((one for one in containers() if wanted in version_names(one)), None)


def unsure(target: ConfigTarget) -> Finding | None:
    """Return a finding that the version is missing or unknown."""
    if target.unknown:
        message = f"{target.unknown} is not known here; it is checked for {target.title}"
        hint = "name the engine's version, with --for"
        return Finding("warning", "options-unproven", message, hint)
    if target.said_by != NEWEST or not target.version:
        return None
    message = f"nothing says which version runs; it is checked for {target.title}"
    option = f"--for {target.family}:{target.release or target.version}"
    return Finding("note", "version-unknown", message, f"name it, such as {option}")


def _of_container(container: ContainerFacts, said_by: str) -> ConfigTarget:
    release = int(container.release) if container.release.isdecimal() else 0
    is_lmi = container.family == "lmi"
    return ConfigTarget(
        family=container.family,
        version=container.engine_version,
        release=release if is_lmi else 0,
        variant=container.variant,
        engine=container.engine,
        said_by=said_by,
    )


def _by_convention(repository: str, tag: str) -> ConfigTarget | None:
    """Read an image that the catalog does not list by how its publisher writes tags."""
    said_by = "the image's tag"
    match_of = VERSION.match(tag)
    version = match_of[1] if match_of else ""
    if repository.startswith(("djl-inference", "djl-serving")):
        release = LMI.search(tag)
        container = of_release(int(release[1])) if release and len(release[1]) < 4 else None
        if container is not None:
            return _of_container(container, said_by)
        unknown = f"LMI {release[1]}" if release else ""
        return replace(newest("lmi"), unknown=unknown)
    is_sagemaker = "sagemaker" in tag or repository.startswith("huggingface-")
    variant = "" if is_sagemaker else UPSTREAM
    family = repository.removeprefix("huggingface-")
    if family in _aws_tags() and (counted := AWS.fullmatch(tag)):
        known = _aws_tags()[family].get(counted[1], "")
        of_ec2 = "" if is_sagemaker else UPSTREAM
        found = _target(family, known, of_ec2, said_by)
        return found if known else replace(found, unknown=f"AWS's {counted[0]} of {family}")
    if repository.startswith("vllm-openai"):
        return _target("vllm", version, UPSTREAM, said_by)
    if repository in {"vllm", "huggingface-vllm"} and "neuron" not in tag:
        return _target("vllm", version, variant, said_by)
    if repository in {"sglang", "huggingface-sglang"}:
        return _target("sglang", version, variant, said_by)
    if "tgi" in repository or repository == "text-generation-inference":
        match = TGI.search(tag)
        of_launcher = UPSTREAM if repository == "text-generation-inference" else ""
        return _target("tgi", match[1] if match else "", of_launcher, said_by)
    return None


@cache
def _aws_tags() -> dict[str, Any]:
    return {name: row for name, row in read_shipped(AWS_TAGS).items() if isinstance(row, dict)}


def _target(family: str, version: str, variant: str, said_by: str) -> ConfigTarget:
    if not version:
        return replace(newest(family), variant=variant)
    return ConfigTarget(family=family, version=version, variant=variant, said_by=said_by)
