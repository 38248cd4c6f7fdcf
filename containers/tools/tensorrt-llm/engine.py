"""An engine's directory: what must be in it, and what its config.json must say.

config.json         version, pretrained_config, build_config
rank{N}.engine      one a rank, with its part of the weights inside
packager.json       what config.json does not say: GPU, TensorRT, CUDA, sizes and digests
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CONFIG = "config.json"
MANIFEST = "packager.json"
SCHEMA = 1

# An engine holds its rank's weights as they are in the checkpoint, give or take padding.
LEAST_SHARE = 0.5


class WrongEngine(RuntimeError):
    """The directory is not the engine that was asked for."""


def check_engine(
    directory: Path, expected: Mapping[str, Any], weight_bytes: Mapping[int, int]
) -> None:
    """Raise unless the directory is the engine of the plan, whole."""
    config = read_config(directory)
    wrong = [
        f"{name} is {found!r}, not {wanted!r}"
        for name, wanted in expected.items()
        if (found := value_of(config, name)) != wanted
    ]
    if wrong:
        raise WrongEngine(f"the engine is not the one that was asked for: {'; '.join(wrong)}")
    world = expected["pretrained_config.mapping.world_size"]
    found = {path.name for path in directory.glob("rank*.engine")}
    wanted_files = {f"rank{rank}.engine" for rank in range(world)}
    if found != wanted_files:
        raise WrongEngine(f"the engine has {sorted(found)}, not {sorted(wanted_files)}")
    for rank in range(world):
        size = (directory / f"rank{rank}.engine").stat().st_size
        least = int(weight_bytes.get(rank, 0) * LEAST_SHARE)
        if size == 0 or size < least:
            raise WrongEngine(
                f"rank{rank}.engine is cut off: {size} bytes, and its weights alone are "
                f"{weight_bytes.get(rank, 0)}"
            )


def check_manifest(directory: Path, here: Mapping[str, Any]) -> None:
    """Raise unless every file is as it was written, and for a machine like `here`."""
    manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
    for name, wanted in manifest["for"].items():
        if here.get(name) != wanted:
            raise WrongEngine(f"the engine is for {name} {wanted}, this machine has {here[name]}")
    for name, told in manifest["files"].items():
        path = directory / name
        if not path.is_file() or path.stat().st_size != told["size"]:
            raise WrongEngine(f"{name} is missing or cut off")
        if digest_of(path) != told["sha256"]:
            raise WrongEngine(f"{name} is not what was built")


def write_manifest(
    directory: Path, here: Mapping[str, Any], versions: Mapping[str, str]
) -> dict[str, Any]:
    """Say for which machine the engine is, and what each of its files holds."""
    files = {
        path.relative_to(directory).as_posix(): {
            "size": path.stat().st_size,
            "sha256": digest_of(path),
        }
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }
    manifest = {
        "schema": SCHEMA,
        "compiler": "tensorrt_llm",
        "for": dict(here),
        "versions": dict(versions),
        "files": files,
    }
    text = json.dumps(manifest, indent=1, sort_keys=True) + "\n"
    (directory / MANIFEST).write_text(text, encoding="utf-8")
    return manifest


def read_config(directory: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads((directory / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WrongEngine(f"the engine has no readable {CONFIG}: {error}") from error
    if not isinstance(config, dict) or "build_config" not in config:
        raise WrongEngine(f"{CONFIG} has no build_config: this is no engine")
    return config


def value_of(config: Mapping[str, Any], dotted: str) -> Any:
    """Give the value at `a.b.c`; None where it is not there, as an absent setting is."""
    value: Any = config
    for name in dotted.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
