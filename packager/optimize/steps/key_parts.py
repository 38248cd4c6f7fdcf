"""Parts of key documents that every technique states in the same way.

The key documents are those of `packager.optimize.keys`; what stands in them is
decided here and in the techniques, never in an executor.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping

from artifact_cache.key import MAX_FILES, manifest_digest
from packager.core.facts import ContainerFacts
from packager.core.image import BaseImage
from packager.core.instance import Instance
from packager.core.model import ModelFile
from packager.core.serving import SERVING_DIR, ServingConfig
from packager.core.tool import ToolFacts
from packager.optimize.keys.parts import Graph, Package, Parallelism, Target, Toolchain
from packager.optimize.steps.configs import kept_fields

LONGEST_FIELD = 2000  # characters of one field; a longer one is stated by its digest
LONGEST_CONFIG = 128 * 1024  # of all fields

TOOL_PACKAGE = "packager-tool"  # the whole environment, identified by its requirements
LAUNCHER = "packager-launcher"
LAUNCHER_MODULES = frozenset(
    {"launch.py", "compiled_cache.py", "sitecustomize.py", "with_compiled.py"}
)
ROUNDING = "packager-rounding"  # in place of a tool: no byte depends on which one rounds
OF_THE_IMAGE = "as in the image"  # stated by its digest


def toolchain_of(tool: ToolFacts, *, image: str | None = None) -> Toolchain:
    """Return the toolchain of a tool, with every package version that affects its results."""
    packages = [
        Package(name=name, version=text, digest=None) for name, text in tool.packages.items()
    ]
    environment = Package(name=TOOL_PACKAGE, version=tool.name, digest=tool.requirements)
    named = {normal(name) for name in tool.packages}
    return Toolchain(
        packages=(environment, *packages),
        environment={
            name: version
            for name, version in sorted(tool.environment.items())
            if normal(name) not in named
        },
        image=image or tool.image or None,
        worker=tool.worker,
    )


def rounding_toolchain(version: str) -> Toolchain:
    """Return what stands for every tool that rounds by this version of arithmetic and layout."""
    return Toolchain(
        packages=(Package(name=ROUNDING, version=version, digest=None),),
        environment={},
        image=None,
        worker=hashlib.sha256(f"{ROUNDING} {version}".encode()).hexdigest(),
    )


def normal(name: str) -> str:
    """Return a distribution's normalized name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def toolchain_in_image(
    tool: ToolFacts,
    base: BaseImage,
    container: ContainerFacts,
    serving: ServingConfig | None = None,
) -> Toolchain:
    """Return the toolchain in an image: tool, image digest, engine, and the image's launcher.

    Workers in the image import the launcher's modules: they decide what the results are and
    whether they are taken when the image starts.
    """
    found = toolchain_of(tool, image=base.digest.removeprefix("sha256:"))
    packages = [
        *found.packages,
        Package(name=container.engine, version=container.engine_version, digest=None),
    ]
    files = serving.files if serving else ()
    modules = {
        name: file.data
        for file in files
        if (name := file.path.removeprefix(f"{SERVING_DIR}/")) in LAUNCHER_MODULES
    }
    if modules:
        whole = hashlib.sha256()
        for name, data in sorted(modules.items()):
            whole.update(f"{name} {len(data)} ".encode() + data)
        packages.append(Package(name=LAUNCHER, version="by digest", digest=whole.hexdigest()))
    return found.model_copy(update={"packages": tuple(sorted(packages, key=lambda one: one.name))})


def files_by_path(files: Iterable[ModelFile]) -> dict[str, str] | None:
    """Return the sha256 of each file; None while one of them is unknown."""
    listed = tuple(files)
    if not all(file.sha256 for file in listed):
        return None
    if len(listed) > MAX_FILES:
        rows = ((file.path, file.size, file.sha256) for file in listed)
        return {f"({len(listed)} files)": manifest_digest(rows)}
    return {file.path: file.sha256 for file in listed}


def digest_of_files(files: Iterable[ModelFile]) -> str | None:
    """Return one digest for all files; None while one of them is unknown."""
    rows = [(file.path, file.size, file.sha256) for file in files]
    return manifest_digest(rows) if all(sha256 for _, _, sha256 in rows) else None


def config_fields(config: Mapping[str, object], left_out: frozenset[str]) -> dict[str, str]:
    """Return the fields of a config as JSON text, without those in `left_out`.

    Text is ASCII, so that it has one Unicode form; what is long is stated by its digest.
    """
    fields: dict[str, str] = {}
    for name, value in kept_fields(config, left_out).items():
        text = json.dumps(value, sort_keys=True)
        fields[_ascii(name)] = text if len(text) <= LONGEST_FIELD else _digest_of_text(text)
    length = sum(len(name) + len(text) for name, text in fields.items())
    if len(fields) > MAX_FILES or length > LONGEST_CONFIG:
        return {f"({len(fields)} fields)": _digest_of_text(json.dumps(fields, sort_keys=True))}
    return fields or {"(0 fields)": "{}"}


def architecture_digest(config: Mapping[str, object], left_out: frozenset[str]) -> str:
    """Return the digest of a config without the fields that do not shape the graph."""
    kept = kept_fields(config, left_out)
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def graph_of(config: Mapping[str, object], left_out: frozenset[str]) -> Graph:
    """Return the key part of the graph, derived from the config alone."""
    return Graph(architecture=config_fields(config, left_out), code=None, plugins=())


def _ascii(name: str) -> str:
    plain = json.dumps(name)
    return name if name and plain[1:-1] == name else plain


def _digest_of_text(text: str) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"sha256:{digest} of {len(text)} characters"


def parallelism_of(
    *, tp: int, pp: int, sharding: str, ep: int = 1, attention_dp: int = 1
) -> Parallelism:
    """Return the key part of a model that all devices of one machine hold together."""
    world = tp * pp * attention_dp
    return Parallelism(
        tp=tp,
        pp=pp,
        ep=ep,
        attention_dp=attention_dp,
        cp=1,
        world=world,
        local_ranks=world,
        start_rank=0,
        ranks=tuple(range(world)),
        sharding=sharding,
    )


def cuda_target(instance: Instance) -> Target:
    """Return the key part of the GPU and its machine; libraries are those of the image."""
    capability = f"{instance.compute_capability or 0.0:.1f}".replace(".", "")
    return Target(
        backend="cuda",
        arch=f"sm_{capability}",
        device=instance.device_name,
        logical_core_size=None,
        cpu=None,
        os="linux",
        machine=instance.machine or "x86_64",
        libc=OF_THE_IMAGE,
    )
