"""What layers keep of a sequence, by the words of config.json: `data/attention.toml`.

A registry by model type and key.  What is not in it may be any kind of attention, so that it
leaves the memory of the cache open: a figure of the nearest kind would be wrong by a factor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Literal

from packager.core.share import read_shipped
from packager.models.architectures.reading import Config

TABLE = Path(__file__).parent / "data" / "attention.toml"

LayerKind = Literal["full", "sliding", "chunked", "compressed", "state", "both", "none"]

BLOCK_LISTS = ("layers_block_type", "layer_types", "block_types", "attn_layer_types")


def kind_of_word(word: str, types: tuple[str, ...]) -> LayerKind | None:
    """Return what a layer of this word keeps in a model of these types; None when unknown."""
    for row in _table()["word"]:
        if word in row["words"] and _is_of(row, types):
            kind: LayerKind = row["keeps"]
            return kind
    return None


def unknown_keys(config: Config) -> tuple[str, ...]:
    """Return what config.json states of its cache and the registry does not have: `key: value`."""
    return tuple(_unknown(config))


def _unknown(config: Config) -> Iterator[str]:
    for key, value in config.stated().items():
        if not value or not _shapes().fullmatch(key):
            continue
        if not _is_known(key, config.types):
            yield key
        elif key in BLOCK_LISTS and isinstance(value, list):
            words = dict.fromkeys(word for word in value if isinstance(word, str))
            unknown = [word for word in words if kind_of_word(word.lower(), config.types) is None]
            yield from (f"{key}: {word}" for word in unknown)


def _is_known(key: str, types: tuple[str, ...]) -> bool:
    return any(
        _is_of(row, types) and any(fnmatchcase(key, known) for known in row["keys"])
        for row in _table()["field"]
    )


def _is_of(row: Mapping[str, Any], types: tuple[str, ...]) -> bool:
    return "types" not in row or any(one in row["types"] for one in types)


@cache
def _shapes() -> re.Pattern[str]:
    return re.compile("|".join(_table()["shapes"]), re.ASCII)


@cache
def _table() -> Mapping[str, Any]:
    return read_shipped(TABLE)
