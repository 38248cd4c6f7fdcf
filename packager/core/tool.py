"""A tool as the key of its results knows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

Build = Literal["cpu", "cuda"]  # of torch, in a tool's environment


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFacts:
    """Identity of a tool: all that decides its results, apart from its parameters.

    `packages` are the versions that its environment has, local part included,
    and where there is no environment yet those that its `tool.toml` declares.
    """

    name: str
    worker: str  # sha256 of its Python files and of the helper that all workers share
    requirements: str  # sha256 of what is installed, in order
    packages: Mapping[str, str]  # that reach the result: {"torch": "2.13.0+cpu"}
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    # every package in it, and its Python without bug fixes: those installed, or by its locks
    image: str = ""  # digest of the image that it is installed into; "" on this machine itself
    installed: bool = False
    build: Build = "cpu"


def build_for(gpus: int) -> Build:
    """Return the build of torch that a step on so many GPUs needs."""
    return "cuda" if gpus else "cpu"
