"""LoRA adapters as the planner sees them: pinned files, the pairs of matrices, their scales."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from packager.core.engine_rows import engine_rows
from packager.core.errors import UsageError
from packager.core.model import ModelFile, ModelRef, TensorInfo

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
NAMED = "NAME=REF"

# Names that every server, header, variable and platform takes as they are: SageMaker's AdapterId.
# Option values are split at the marks that names must not have.
NAME = re.compile(r"[a-zA-Z0-9](?:-*[a-zA-Z0-9]){0,62}", re.ASCII)

AdapterForm = Literal["linear", "embedding", "experts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptedModule:
    """A pair of thin matrices, and the module of the base that their product is added to."""

    path: str  # in the base as PEFT names it: `model.layers.0.self_attn.q_proj`
    form: AdapterForm  # `experts`: of a parameter with all experts in one tensor
    rank: int
    inputs: int
    outputs: int
    scale: float  # that PEFT multiplies the product by
    dtype: str  # of the safetensors header: `BF16`
    a: TensorInfo
    b: TensorInfo

    @property
    def leaf(self) -> str:
        """Return the last part of the path: `q_proj`."""
        return self.path.rpartition(".")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """An adapter by its headers and configuration, checked by itself but not against a base."""

    name: str  # as clients send it
    ref: ModelRef
    files: tuple[ModelFile, ...]  # that go into the image
    left_out: Mapping[str, str]  # path → why the file is not packaged
    card: ModelFile | None = None  # that states its licence
    config: Mapping[str, Any]  # of PEFT, as it was written
    rank: int  # that the configuration states for every module without a pattern of its own
    alpha: float
    modules: tuple[AdaptedModule, ...]
    others: tuple[TensorInfo, ...] = ()  # no half of a pair: magnitudes, whole modules, biases
    base: str = ""  # model that the configuration says it was trained on; "" none
    base_revision: str = ""
    flags: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    # fields of the configuration that are set to anything but what leaves LoRA as it was published

    @property
    def max_rank(self) -> int:
        """Return the largest rank of its matrices."""
        return max(module.rank for module in self.modules)

    @property
    def engine_scale(self) -> float:
        """Return the scale that an engine derives of alpha and rank alone."""
        return self.alpha / self.rank

    @property
    def size(self) -> int:
        """Return the bytes of its weights."""
        return sum(file.size for file in self.files if file.path == WEIGHTS)

    @property
    def leaves(self) -> tuple[str, ...]:
        """Return the names of its modules without where they are, sorted."""
        return tuple(sorted({module.leaf for module in self.modules}))


def check_adapter_name(name: str) -> None:
    """Raise `UsageError` for a name that some server, header or platform reads otherwise."""
    is_base = name.lower() in {row.base_alias for row in engine_rows().values()} - {""}
    if len(name) > 63 or NAME.fullmatch(name) is None or is_base:
        why = "some server means the base by it" if is_base else "some server splits it"
        raise UsageError(
            f"{name[:80]!r} cannot be an adapter's name: {why}",
            hint="use letters, digits and single dashes, at most 63, such as `sql-7b`",
            code="AdapterName",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterRewrite:
    """Other files of the same deltas, which an engine reads as PEFT does: see `rewriting`."""

    rank: int  # of every pair: rows and columns of zeros are added
    paths: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    # path → the one that the base's checkpoint has for the same module
    why: tuple[str, ...] = ()  # for people


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedAdapter:
    """An adapter as a plan serves it."""

    name: str
    ref: ModelRef
    directory: str  # in the container
    rank: int  # the largest of its matrices
    leaves: tuple[str, ...]
    size: int  # of its weights, in bytes
    rewrite: AdapterRewrite | None = None  # None: its files are served as they are


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterPlan:
    """The adapters of a server, and what it keeps for them."""

    adapters: tuple[ServedAdapter, ...]
    slots: int  # on the devices at once
    rank: int  # of a slot
    leaves: tuple[str, ...] = ()  # modules that slots are kept for; () all
    device_bytes: int = 0  # of the slots, on each device
    runtime: bool = False  # more are loaded while it serves

    @property
    def waiting(self) -> int:
        """Count the adapters that have no slot when all are asked for."""
        return max(0, len(self.adapters) - self.slots)

    @property
    def host_bytes(self) -> int:
        """Return the bytes of all adapters, which one process of the server keeps."""
        return sum(adapter.size for adapter in self.adapters)

    def moved(self, old: str, new: str) -> AdapterPlan:
        """Return the plan with directories below `new` that were below `old`."""
        adapters = tuple(
            replace(one, directory=f"{new}/{one.directory.removeprefix(f'{old}/')}")
            if one.directory.startswith(f"{old}/")
            else one
            for one in self.adapters
        )
        return replace(self, adapters=adapters)
