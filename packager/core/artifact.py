"""Finished files, ready to become layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from packager.core.model import ModelFile
from packager.core.recipe import StepOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifacts:
    """Files to serve after the recipe ran, each relative to its own root."""

    model: tuple[ModelFile, ...]
    draft: tuple[ModelFile, ...] = ()
    adapters: Mapping[str, tuple[ModelFile, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )  # by the directory in the container
    compiled: tuple[ModelFile, ...] = ()  # made ahead of time for one engine and device
    ran: tuple[str, ...] = ()  # names of steps that were run
    reused: tuple[str, ...] = ()  # names of steps whose result was in the cache
    outcomes: Mapping[str, StepOutcome] = field(default_factory=lambda: MappingProxyType({}))
