"""Reads a node's resources, in a function that Ray sends there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from packager.optimize.steps.ray.connection import ClusterNode


def on_node(one: ClusterNode) -> dict[str, Any]:
    """Return options that run a task on this very node, and at once: it takes no processor."""
    return {
        "num_cpus": 0,
        "label_selector": {"ray.io/node-id": one.id},
    }


def make_probe() -> Callable[[], tuple[str, int]]:
    """Return a function that Ray sends by value: it runs also where packager is not installed.

    It returns packager's version there, "" for none, and the memory of the node's smallest GPU in
    bytes, 0 where unknown: Ray itself only counts GPUs.
    """

    def probe() -> tuple[str, int]:
        import importlib
        import subprocess

        query = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
        sizes: list[int] = []
        try:
            said = subprocess.run(query, capture_output=True, text=True, timeout=30).stdout
            sizes = [int(line) for line in said.split()]
        except (OSError, ValueError, subprocess.SubprocessError):
            pass
        try:
            found = importlib.import_module("packager").__version__  # of any version
        except ImportError:
            return "", 0
        return found, min(sizes, default=0) * 1024 * 1024

    return probe
