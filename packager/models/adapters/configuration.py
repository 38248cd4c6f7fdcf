"""PEFT's adapter_config.json: ranks, scales, and fields that make an adapter something else.

The file comes from strangers: numbers are bounded, and patterns are matched only where that takes
no more than a moment.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from packager.core.adapters import CONFIG
from packager.core.documents import shorten
from packager.core.errors import ModelRefused
from packager.core.share import read_shipped

TABLE = Path(__file__).parent / "data" / "fields.toml"
LARGEST_RANK = 1 << 16  # beyond any matrix that is served: such a number is an attack or a slip
LARGEST_ALPHA = 1e9
MOST_PATTERNS = 65_536  # PEFT writes one for each module where ranks were allotted
MOST_REGEXES = 64
LONGEST_REGEX = 256
PLAIN = re.compile(r"[\w.-]*", re.ASCII)
# A repetition of a group may take time without end; of a character, in the square of the path.
REPEATED_GROUP = re.compile(r"\)\s*[*+{]")
UNBOUNDED = re.compile(r"(?<!\\)(?:\\\\)*[*+{]")
MOST_UNBOUNDED = 2
LONGEST_PATH = 256  # of a module that such a pattern is matched with

NEUTRAL = (None, False, "", "none", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterFields:
    """What a configuration says of every module, and of single ones."""

    rank: int
    alpha: float
    by_root: bool  # rsLoRA: alpha over the root of the rank
    ranks: Mapping[str, int]
    alphas: Mapping[str, float]
    base: str
    base_revision: str
    flags: Mapping[str, Any]
    parameters: tuple[str, ...] = ()  # that were trained by their names: experts in one tensor

    def rank_of(self, path: str) -> int:
        """Return the rank that a module's matrices have."""
        rank: int = _pattern_value(self.ranks, self._named(path), self.rank)
        return rank

    def scale_of(self, path: str) -> float:
        """Return the scale that PEFT applies to a module: the first pattern that matches counts."""
        rank = self.rank_of(path)
        alpha: float = _pattern_value(self.alphas, self._named(path), self.alpha)
        return alpha / math.sqrt(rank) if self.by_root else alpha / rank

    def _named(self, path: str) -> str:
        """Return the name that patterns are matched with: of experts that of their parameter."""
        above = path.removesuffix(".base_layer")
        if not f".{above}".endswith(".experts"):
            return path
        of_down = any(one.rpartition(".")[2] == "down_proj" for one in self.parameters)
        outer = "down_proj" if of_down or not self.parameters else "gate_up_proj"
        return f"{above}.{'gate_up_proj' if above != path else outer}"


def read_fields(config: Mapping[str, Any]) -> AdapterFields:
    """Check the fields that this room reads; raise `ModelRefused` for values that are none."""
    kind = config.get("peft_type")
    if kind != "LORA":
        named = shorten(str(kind)) if kind is not None else "nothing"
        raise ModelRefused(
            f"{CONFIG!r} states {named} for 'peft_type'; LoRA adapters are packaged",
            hint="merge other kinds into the base: `merge_and_unload().save_pretrained(NEW_DIR)`",
            code="OtherAdapter",
        )
    return AdapterFields(
        rank=_count(config.get("r"), "r"),
        alpha=_number(config.get("lora_alpha", 8), "lora_alpha"),
        by_root=config.get("use_rslora") is True,
        ranks=_patterns(config, "rank_pattern", _count),
        alphas=_patterns(config, "alpha_pattern", _number),
        base=_text(config.get("base_model_name_or_path")),
        base_revision=_text(config.get("revision")),
        flags=_flags(config),
        parameters=tuple(
            one for one in _listed(config.get("target_parameters")) if isinstance(one, str)
        ),
    )


def _flags(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are set and change what is computed; unknown ones are among them."""
    table = _table()
    quiet = {*table["read"], *table["trained"], "init_lora_weights"}
    found = {
        name: value
        for name, value in config.items()
        if name not in quiet and value not in NEUTRAL and value not in ([], {})
    }
    start = config.get("init_lora_weights")
    if isinstance(start, str) and start.lower().startswith(tuple(table["changes_base"])):
        found["init_lora_weights"] = start[:80]
    return found


def known_special() -> tuple[str, ...]:
    """Return the fields that are known to make an adapter something else."""
    return tuple(_table()["special"])


def _patterns(config: Mapping[str, Any], name: str, read: Any) -> dict[str, Any]:
    found = config.get(name) or {}
    if not isinstance(found, Mapping) or len(found) > MOST_PATTERNS:
        raise _broken(f"{name!r} is no map of at most {MOST_PATTERNS} patterns")
    regexes = [pattern for pattern in found if not PLAIN.fullmatch(pattern)]
    if len(regexes) > MOST_REGEXES:
        raise _broken(f"{name!r} has more than {MOST_REGEXES} patterns that are no plain names")
    for pattern in regexes:
        _check_regex(pattern, name)
    return {pattern: read(value, name) for pattern, value in found.items()}


def _check_regex(pattern: str, name: str) -> None:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise _broken(f"{shorten(pattern)} of {name!r} is no pattern: {error}") from None
    is_slow = REPEATED_GROUP.search(pattern) or len(UNBOUNDED.findall(pattern)) > MOST_UNBOUNDED
    if is_slow or len(pattern) > LONGEST_REGEX or "(?" in pattern.replace("(?:", ""):
        raise _broken(f"{shorten(pattern)} of {name!r} may take long to match")


def _pattern_value(patterns: Mapping[str, Any], path: str, otherwise: Any) -> Any:
    """Return the value of the first pattern that matches the path's end, at a dot."""
    if not patterns:
        return otherwise
    plain, regexes = _in_order(tuple(patterns))
    parts = path.split(".")
    ends = (".".join(parts[start:]) for start in range(len(parts)))
    found = [plain[end] for end in ends if end in plain]
    found += [at for at, regex in regexes if regex.match(path)]
    return [*patterns.values()][min(found)] if found else otherwise


@cache
def _in_order(
    patterns: tuple[str, ...],
) -> tuple[Mapping[str, int], tuple[tuple[int, re.Pattern[str]], ...]]:
    """Return plain names, which are many, with their places in the order; other patterns."""
    plain = {one: at for at, one in enumerate(patterns) if PLAIN.fullmatch(one)}
    regexes = tuple(
        (at, re.compile(rf"(?:.*\.)?(?:{one})$"))
        for at, one in enumerate(patterns)
        if one not in plain
    )
    return plain, regexes


def _count(value: object, name: str) -> int:
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not is_whole or not 0 < value <= LARGEST_RANK:  # type: ignore[operator]
        raise _broken(f"{name!r} is {shorten(str(value))}; a rank is 1 to {LARGEST_RANK}")
    return int(value)  # type: ignore[call-overload, no-any-return]


def _number(value: object, name: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not abs(value) <= LARGEST_ALPHA:  # type: ignore[arg-type]
        raise _broken(f"{name!r} is {shorten(str(value))}, which is no scale")
    return float(value)  # type: ignore[arg-type]


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    return value[:4096] if isinstance(value, str) else ""


def _broken(what: str) -> ModelRefused:
    return ModelRefused(
        f"{CONFIG!r} is refused: {what}",
        hint="save the adapter again with PEFT, or correct the field",
        code="AdapterBroken",
    )


@cache
def _table() -> Mapping[str, Any]:
    return read_shipped(TABLE)
