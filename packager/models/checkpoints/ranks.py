"""Weights that were split before they are loaded: one set of files for each rank.

vLLM's names (`sharded_state_loader.py`, 0.10.2 to 0.33.0).  A rank reads only its own files, and
every tensor unchanged: the files state neither the number of ranks nor that one is missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from packager.core.model import ModelFile

INDEX = "model.safetensors.index.json"

_NAME = re.compile(r"model-rank-(0|[1-9]\d{0,3})-part-(0|[1-9]\d{0,3})\.safetensors", re.ASCII)
_HEADER_BYTES = 8  # the least that a safetensors file holds


def rank_faults(files: Iterable[ModelFile], ranks: int) -> list[str]:
    """Return what is wrong with files that shall serve `ranks` ranks; none when they do."""
    parts: dict[int, list[int]] = {rank: [] for rank in range(ranks)}
    faults = []
    for file in files:
        named = _NAME.fullmatch(file.path)
        if named is None:
            faults.append(f"{file.path[:80]!r} is no file of a rank")
        elif int(named[1]) not in parts:
            faults.append(f"{file.path!r} is of a rank beyond the {ranks} planned")
        elif file.size <= _HEADER_BYTES:
            faults.append(f"{file.path!r} is empty")
        else:
            parts[int(named[1])].append(int(named[2]))
    for rank, found in parts.items():
        if sorted(found) != list(range(len(found))) or not found:
            missing = next(part for part in range(len(found) + 1) if part not in found)
            faults.append(f"rank {rank} of {ranks} lacks part {missing}")
    return faults


def with_ranks(model: Iterable[ModelFile], ranks: Iterable[ModelFile]) -> tuple[ModelFile, ...]:
    """Return a model with its ranks' files in place of its weights, which are not stored twice."""
    others = (file for file in model if file.role != "weights" and file.path != INDEX)
    split = (replace(file, role="weights") for file in ranks)
    return tuple(sorted((*others, *split), key=lambda file: file.path))
