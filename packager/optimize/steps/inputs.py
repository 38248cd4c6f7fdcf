"""Inputs of steps, described by every technique in the same way."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

from packager.core.image import BaseImage, Inline
from packager.core.model import ModelFile
from packager.core.samples import Samples
from packager.optimize.steps.configs import kept_fields

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
GENERATION = "generation_config.json"


def config_file(config: Mapping[str, object], left_out: frozenset[str]) -> ModelFile:
    """Write config.json with the fields that the key names, so that no other can be read."""
    data = (json.dumps(kept_fields(config, left_out), indent=2) + "\n").encode()
    return ModelFile(
        path=CONFIG,
        role="config",
        content=Inline(data),
        sha256=hashlib.sha256(data).hexdigest(),
    )


def weight_files(files: Iterable[ModelFile]) -> tuple[ModelFile, ...]:
    """Return the weights, with their index of tensors."""
    return tuple(file for file in files if file.role == "weights" or file.path == INDEX)


def tokenizer_files(files: Iterable[ModelFile]) -> tuple[ModelFile, ...]:
    """Return what turns text into tokens: the tokenizer with its chat template."""
    return tuple(file for file in files if file.role == "tokenizer")


def carried_files(files: Iterable[ModelFile]) -> tuple[ModelFile, ...]:
    """Return the files that accompany a model's weights, whatever format those are in."""
    return tuple(
        file for file in files if file.role != "weights" and file.path not in (CONFIG, INDEX)
    )


def samples_file(samples: Samples, path: str = "samples.jsonl") -> ModelFile:
    """Return the selected samples as the file that every worker reads."""
    data = samples.jsonl()
    return ModelFile(
        path=path,
        role="other",
        content=Inline(data),
        sha256=hashlib.sha256(data).hexdigest(),
    )


def environment_of(base: BaseImage | None) -> dict[str, str]:
    """Return the environment variables that the image itself sets."""
    config = (base.config.get("config") or {}) if base else {}
    return dict(line.split("=", 1) for line in config.get("Env") or () if "=" in line)
