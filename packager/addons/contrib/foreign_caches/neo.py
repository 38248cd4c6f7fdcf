"""SageMaker Neo's output of a compilation for Neuron.

    <output>/PRE_COMPILED_NEURON_GRAPH_INFER/neuronxcc-<version>/MODULE_…
    <output>/serving.properties       how the model is served, where it is there
    <output>/config.json              the model's

Neo copies just the graphs that its log names, so all of them are the model's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packager.addons.contrib.foreign_caches.neuron import (
    MAX_SMALL_BYTES,
    CompilerCache,
    find_compiler_caches,
)
from packager.core.errors import NotFound

GRAPHS = "PRE_COMPILED_NEURON_GRAPH_INFER"
_DEEPEST = 6  # JumpStart's own cache nests compiler, model and scope above the graphs


@dataclass(frozen=True, slots=True, kw_only=True)
class NeoOutput:
    """One compiled model."""

    place: Path
    caches: tuple[CompilerCache, ...]
    properties: Mapping[str, str]  # empty where none are there
    config: Path | None


def find_neo_outputs(root: Path) -> tuple[NeoOutput, ...]:
    """Find compiled models in or below a directory. No link is followed."""
    if not root.is_dir():
        raise NotFound(f"{str(root)!r} is not a directory", hint="name the output directory of Neo")
    places = [root] if root.name == GRAPHS else list(_find(root, 0))
    if not places:
        raise NotFound(
            f"there is no {GRAPHS} in {str(root)!r}",
            hint="name the directory that Neo wrote its output to",
        )
    return tuple(_read(place) for place in places)


def _find(directory: Path, depth: int) -> list[Path]:
    found = []
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            if not entry.is_dir(follow_symlinks=False):
                continue
            if entry.name == GRAPHS:
                found.append(Path(entry.path))
            elif depth < _DEEPEST:
                found += _find(Path(entry.path), depth + 1)
    return found


def _read(place: Path) -> NeoOutput:
    config = place.parent / "config.json"
    return NeoOutput(
        place=place,
        caches=find_compiler_caches(place),
        properties=_properties(place.parent / "serving.properties"),
        config=config if config.is_file() and not config.is_symlink() else None,
    )


def _properties(path: Path) -> dict[str, str]:
    if not path.is_file() or path.is_symlink() or path.stat().st_size > MAX_SMALL_BYTES:
        return {}
    lines = path.read_text("utf-8", "replace").splitlines()
    pairs = (line.partition("=") for line in lines if not line.lstrip().startswith(("#", "!")))
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}
