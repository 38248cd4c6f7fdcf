"""Parts of key documents that every technique states in the same way.

The key documents are those of `artifact_cache.key`; what stands in them is
decided here and in the techniques, never in an executor.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

from artifact_cache.key import (
    Graph,
    Package,
    Parallelism,
    Target,
    Toolchain,
    manifest_digest,
)
from packager.core.facts import ContainerFacts
from packager.core.image import BaseImage
from packager.core.instance import Instance
from packager.core.model import ModelFile
from packager.core.tool import ToolFacts

# Fields of config.json that do not shape the graph.
NO_SHAPE = frozenset({"_name_or_path", "transformers_version", "torch_dtype", "dtype"})

TOOL_PACKAGE = "packager-tool"  # stands for the whole environment, by its requirements
OF_THE_IMAGE = "as in the image"  # stated by its digest


def toolchain_of(tool: ToolFacts, *, image: str | None = None) -> Toolchain:
    """Name the tool with every version that reaches its results."""
    packages = [
        Package(name=name, version=text, digest=None) for name, text in tool.packages.items()
    ]
    environment = Package(name=TOOL_PACKAGE, version=tool.name, digest=tool.requirements)
    return Toolchain(packages=(environment, *packages), image=image, worker=tool.worker)


def toolchain_in_image(tool: ToolFacts, base: BaseImage, container: ContainerFacts) -> Toolchain:
    """Name the tool, the image it runs in, and for people the engine in it."""
    found = toolchain_of(tool, image=base.digest.removeprefix("sha256:"))
    engine = Package(name=container.engine, version=container.engine_version, digest=None)
    return found.model_copy(update={"packages": (*found.packages, engine)})


def digest_of_files(files: Iterable[ModelFile]) -> str | None:
    """Give one digest for files; None while somebody still has to read one of them."""
    rows = [(file.path, file.size, file.sha256) for file in files]
    return manifest_digest(rows) if all(sha256 for _, _, sha256 in rows) else None


def architecture_digest(config: Mapping[str, object], left_out: frozenset[str]) -> str:
    """Give the digest of a config without the fields that do not shape the graph."""
    kept = {name: value for name, value in config.items() if name not in left_out}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def graph_of(config: Mapping[str, object], left_out: frozenset[str] = NO_SHAPE) -> Graph:
    """State a graph that follows from the config alone."""
    return Graph(architecture=architecture_digest(config, left_out), code=None, plugins=())


def parallelism_of(*, tp: int, pp: int, sharding: str) -> Parallelism:
    """State a model that all devices of one machine hold together."""
    world = tp * pp
    return Parallelism(
        tp=tp,
        pp=pp,
        ep=1,
        attention_dp=1,
        cp=1,
        world=world,
        local_ranks=world,
        start_rank=0,
        ranks=tuple(range(world)),
        sharding=sharding,
    )


def cuda_target(instance: Instance) -> Target:
    """State the GPU and the machine around it; libraries are those of the image."""
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
