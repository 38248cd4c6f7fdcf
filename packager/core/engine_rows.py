"""Rows of `data/engines.toml`: what is known of a serving engine by its name alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from packager.core.share import read_shipped

DATA = Path(__file__).parent / "data" / "engines.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRow:
    """One engine; the defaults are those of an engine without a row."""

    shown: str = ""  # as people write it; "" where it is written as it is called
    metrics: str = ""  # how the names of all its metrics begin
    forces_length: bool = False  # answers can be made as long as requested
    second_opinion: str = ""  # aiconfigurator's name for it; "" where it predicts none
    stands_in: bool = False  # its speeds are taken for engines that nobody measured
    ranks_compared: bool = False  # predictions for ranks that share experts were compared
    package: str = ""  # on Python's index; "" where it is none
    base_alias: str = ""  # the name of an adapter that its server takes for the base
    takes_middleware: bool = False  # its server takes one as an option


UNKNOWN = EngineRow()


@cache
def engine_rows() -> Mapping[str, EngineRow]:
    """Return the rows by the engine's name, in the order in which they are shown."""
    return {name: EngineRow(**row) for name, row in read_shipped(DATA).items()}


def engine_row(engine: str) -> EngineRow:
    """Return the row of an engine; the defaults without one."""
    return engine_rows().get(engine, UNKNOWN)


def engine_name(engine: str) -> str:
    """Return the name of an engine as people write it: `vLLM` of `vllm`."""
    return engine_row(engine).shown or engine
