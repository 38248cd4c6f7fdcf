"""Keys that a release of LMI reads, from its own classes and from the vLLM inside."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any

from packager.core.share import read_shipped
from packager.engines.schema import ENGINES, EngineSchema, Option

OPTIONS_FILE = ENGINES.parent / "lmi_options.toml"
CLASSES = ENGINES / "lmi"  # RELEASE.json, by scripts/engine-options

NEGATES_SINCE = 26  # `false` becomes `--no-…`; before, it is left out
CLOSED_UNTIL = 13  # the class names every key; later ones hand on what vLLM's EngineArgs have

# LMI's own names of what vLLM names otherwise.
VLLM_NAMES = {
    "option.tensor_parallel_degree": "tensor-parallel-size",
    "option.pipeline_parallel_degree": "pipeline-parallel-size",
    "option.max_rolling_batch_size": "max-num-seqs",
    "option.max_rolling_batch_prefill_tokens": "max-num-batched-tokens",
    "option.cpu_offload_gb_per_gpu": "cpu-offload-gb",
    "option.quantize": "quantization",
}

# Read by classes of LMI, and not as vLLM's parser would.
OWN_VALUES = ("option.dtype", "option.task")

# Fields of vLLM's EngineArgs that LMI's classes set by themselves.
NOT_ONES_OWN = frozenset({"option.model"})

OptionType = str | list[str]  # `int`, `float`, `bool`, `word`, the one value, or all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class LmiOptions:
    """Keys that a release of LMI reads, and how."""

    container: str
    types: Mapping[str, Option]
    pass_through: frozenset[str]  # keys that vLLM's parser gets
    refused: Mapping[str, str] = field(default_factory=dict)  # never taken → the key to use
    aliases: Mapping[str, str] = field(default_factory=dict)  # key → the one that it overrides
    stays_on: frozenset[str] = frozenset()  # switches whose `false` is left out
    negates: bool = False  # `false` becomes `--no-…`
    defaults: Mapping[str, str] = field(default_factory=dict)  # that LMI passes on by default
    handlers: Mapping[str, str] = field(default_factory=dict)  # keys that one handler reads → which


@cache
def lmi_table() -> Mapping[str, Mapping[str, OptionType]]:
    """Read the shipped table of LMI's own keys."""
    read: dict[str, dict[str, OptionType]] = read_shipped(OPTIONS_FILE)
    return read


@dataclass(frozen=True, slots=True)
class _SameSchema:
    """Schema compared by identity: it is immutable and has hundreds of options."""

    schema: EngineSchema

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SameSchema) and other.schema is self.schema

    def __hash__(self) -> int:
        return id(self.schema)


def lmi_options(schema: EngineSchema, release: int) -> LmiOptions:
    """Return the options that a release's server and classes read, and those passed to vLLM.

    Cached: a plan reads them several times for each candidate.
    """
    return _lmi_options(_SameSchema(schema), release)


@lru_cache(maxsize=16)
def _lmi_options(same: _SameSchema, release: int) -> LmiOptions:
    schema, table = same.schema, _class_of(release)
    types = {key: _option(key, of_type) for key, of_type in lmi_table()["server"].items()}
    own = {f"option.{name}": row for name, row in table["keys"].items()}
    types |= {key: _own_option(key, row, schema) for key, row in own.items()}
    passed: dict[str, Option] = {}
    refused = {f"option.{name}": f"option.{ours}" for name, ours in table["refused"].items()}
    for name in schema.fields if table["hands_on"] else ():
        key, option = f"option.{name}", schema.find(name)
        if option is not None and key not in own.keys() | refused.keys() | NOT_ONES_OWN:
            passed[key] = option
    return LmiOptions(
        container=str(release),
        types={**passed, **types},
        pass_through=frozenset(passed.keys() - types.keys()),
        refused=refused,
        aliases={key: f"option.{row['alias_of']}" for key, row in own.items() if "alias_of" in row},
        stays_on=frozenset(f"option.{name}" for name in table["stays_on"]),
        negates=release >= NEGATES_SINCE,
        defaults={f"option.{name}": value for name, value in table["defaults"].items()},
        handlers={key: row["handler"] for key, row in own.items() if "handler" in row},
    )


def _own_option(key: str, row: Mapping[str, Any], schema: EngineSchema) -> Option:
    """Return a key of LMI's class; what vLLM looks up of its value is as in vLLM's own option."""
    own = Option(name=key, type=row["type"], choices=tuple(row.get("choices", ())))
    inside = schema.find(VLLM_NAMES.get(key, key.removeprefix("option.")))
    if inside is None or own.type != "text" or key in OWN_VALUES:
        return own
    return replace(own, choices=inside.choices, values=inside.values, files=inside.files)


@cache
def _class_of(release: int) -> Mapping[str, Any]:
    """Read the table of a release's own classes; if missing, that of the newest earlier one."""
    known = sorted(int(path.stem) for path in CLASSES.glob("*.json"))
    nearest_below = max((one for one in known if one <= release), default=known[0])
    path = CLASSES / f"{nearest_below}.json"
    read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return read


def _option(key: str, of_type: OptionType) -> Option:
    if isinstance(of_type, list):
        return Option(name=key, type="word", choices=tuple(of_type))
    if of_type in {"int", "float", "bool", "loose-bool", "word", "text", "json"}:
        return Option(name=key, type=of_type)
    return Option(name=key, type="word", choices=(of_type,))
