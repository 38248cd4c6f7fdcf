"""Compile caches of engines, as data: see `data/compile_caches.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from packager.core.facts import ContainerFacts
from packager.core.serving import COMPILED_DIR
from packager.core.share import read_shipped
from packager.core.versions import version_key

DATA = Path(__file__).parent / "data" / "compile_caches.toml"

COMPILED_COPY = "/tmp/packager-compiled"  # in the container; as in the launcher
SWITCH = "PACKAGER_COMPILED"  # names the directory that the launcher takes compiled files from


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileCaches:
    """The caches of one engine's versions on one kind of device."""

    family: str  # of containers
    kind: str
    variants: tuple[str, ...]  # of the container family
    since: str  # engine version
    env: Mapping[str, str]
    paths: frozenset[str]  # of those variables, which name directories
    source: str
    date: str
    entrypoint: tuple[str, ...] = ()  # the image's own, where it starts the server by itself
    cmd: tuple[str, ...] = ()  # what it is run with
    options: str = ""  # prefix of the variables that are engine options there
    endpoint: str = "/v1/completions"  # that takes OpenAI's completions
    filed_by_config: bool = False  # below a digest of the whole config.json, token ids too
    verify_env: Mapping[str, str] = field(default_factory=dict)

    def rendered(self) -> dict[str, str]:
        """Return the environment variables of an image with compiled files."""
        led = {
            name: f"{COMPILED_COPY}/{value}" if name in self.paths else value
            for name, value in self.env.items()
        }
        return {**led, SWITCH: COMPILED_DIR}


def find_caches(container: ContainerFacts) -> CompileCaches | None:
    """Return the compile caches of a container's vLLM; None where they cannot be baked."""
    if not container.traits.bakes_compile_caches:
        return None
    version = version_key(container.engine_version)
    for known in _known():
        since = version_key(known.since)
        if (
            (known.family, known.kind) == (container.family, container.kind)
            and container.variant in known.variants
            and version is not None
            and since is not None
            and version >= since
        ):
            return known
    return None


@cache
def _known() -> tuple[CompileCaches, ...]:
    rows = read_shipped(DATA)["caches"]
    return tuple(map(_row, rows))


def _row(row: dict[str, Any]) -> CompileCaches:
    lists = {name: tuple(row.get(name, ())) for name in ("variants", "entrypoint", "cmd")}
    return CompileCaches(**{**row, **lists, "paths": frozenset(row["paths"])})
