"""Configuration of a serving container: files, environment, command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

MODEL_DIR = "/opt/packager/model"
DRAFT_DIR = "/opt/packager/draft"
ADAPTERS_DIR = "/opt/packager/adapters"
COMPILED_DIR = "/opt/packager/compiled"
SERVING_DIR = "/opt/packager/serving"

# SageMaker's mounts, where weights that are not baked appear.
MOUNTED_MODEL_DIR = "/opt/ml/model"
MOUNTED_DRAFT_DIR = "/opt/ml/additional-model-data-sources/draft_model"
TREE_DRAFT_DIR = "/opt/ml/model/draft"  # of a draft in one tree with its model


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedFile:
    """A text file for the image, already re-parsed and compared with what was meant."""

    path: str  # absolute, in the image
    data: bytes
    executable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingConfig:
    """Complete configuration of one family's container. Empty entrypoint keeps the base's.

    A file of ours takes the place of the model's or the draft's own at the same path.
    With mounted weights, files below `model_dir` or `draft_dir` belong to the mount.
    """

    files: tuple[RenderedFile, ...] = ()
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    port: int = 8080
    model_dir: str = MODEL_DIR  # where the container looks for the model's files
    draft_dir: str = DRAFT_DIR  # where it looks for the draft's
