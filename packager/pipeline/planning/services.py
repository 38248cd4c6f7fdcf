"""What a plan is made with beside its facts; chosen by the line, or by a test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from packager.core.catalog import Accelerator, Rule
from packager.core.checkpoint import QuantizedCheckpoint
from packager.core.instance import Instance
from packager.core.ports import Compiler, ContainerFamily, Quantizer


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerServices:
    """The techniques that a request may use, and the catalog's tables."""

    family: ContainerFamily
    quantizer: Quantizer | None = None
    # Of these the request names one, or none.
    compilers: Mapping[str, Compiler] = field(default_factory=lambda: MappingProxyType({}))
    find_sharder: Callable[[str], Compiler | None] = lambda _: None  # for a load format
    rules: tuple[Rule, ...] = ()  # which techniques go together
    # Figures of devices; without them nothing is predicted.
    accelerator_of: Callable[[Instance], Accelerator] | None = None
    # That may be suggested instead; None: no suggestions, not even of another shape.
    instances: tuple[Instance, ...] | None = ()
    smaller: tuple[QuantizedCheckpoint, ...] = ()  # published with fewer bits
