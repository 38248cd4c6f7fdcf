"""Parts of key documents that every technique states in the same way.

The key documents are those of `artifact_cache.key`; what stands in them is
decided here and in the techniques, never in an executor.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

from artifact_cache.key import Package, Toolchain, manifest_digest
from packager.core.model import ModelFile
from packager.core.tool import ToolFacts

# Fields of config.json that do not shape the graph.
NO_SHAPE = frozenset({"_name_or_path", "transformers_version", "torch_dtype", "dtype"})

TOOL_PACKAGE = "packager-tool"  # stands for the whole environment, by its requirements


def toolchain_of(tool: ToolFacts, *, image: str | None = None) -> Toolchain:
    """Name the tool with every version that reaches its results."""
    packages = [
        Package(name=name, version=text, digest=None) for name, text in tool.packages.items()
    ]
    environment = Package(name=TOOL_PACKAGE, version=tool.name, digest=tool.requirements)
    return Toolchain(packages=(environment, *packages), image=image, worker=tool.worker)


def digest_of_files(files: Iterable[ModelFile]) -> str | None:
    """Give one digest for files; None while somebody still has to read one of them."""
    rows = [(file.path, file.size, file.sha256) for file in files]
    return manifest_digest(rows) if all(sha256 for _, _, sha256 in rows) else None


def architecture_digest(config: Mapping[str, object], left_out: frozenset[str]) -> str:
    """Give the digest of a config without the fields that do not shape the graph."""
    kept = {name: value for name, value in config.items() if name not in left_out}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
