"""Longest sequence that a version of an engine accepts for a model.

Engines read it from config.json, count some kinds of rotary scaling and not others, and change
their mind between versions: `data/engines/lengths.toml`.  Options override what config.json says,
and an environment variable lifts the limit.  Plans and `check` both use this module.

No engine reads a tokenizer's `model_max_length`, except vLLM for pooling models with absolute
positions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, TypeGuard

from packager.core.documents import parse_object
from packager.core.findings import Finding
from packager.core.share import read_shipped
from packager.core.versions import is_within
from packager.engines.rules import Facts
from packager.engines.schema import ENGINES, SIZE, read_size
from packager.models.architectures.numbers import UNLIMITED
from packager.models.architectures.reading import language_path

CONFIG = "config"  # among facts: config.json, as text
TABLE = ENGINES / "lengths.toml"
LONGEST = 2**31 - 1
# Keys of `rope_parameters` that name kinds of layers, not parameters: any other key is one.
PARAMETERS = frozenset({"rope_type", "type", "rope_theta", "factor"})
SCALINGS = ("rope_scaling", "rope_parameters")
COMPLETED = ("llama3", "yarn", "longrope")  # types that transformers 5 fills in
SPELLED = {"su": "longrope", "mrope": "default", "telechat3-yarn": "yarn"}
ON = frozenset({"1", "true", "yes", "y", "on", "t"})

Config = Mapping[str, Any]
Texts = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthLimit:
    """The longest sequence, in tokens of prompt and answer together."""

    tokens: int = 0  # 0: not known, or lifted
    stretched_tokens: int = 0  # that the model's rotary scaling reaches, where it is not counted
    scaling: str = ""  # the type of that scaling: `yarn`
    hint: str = ""  # the option that raises the limit, as `--engine-option` takes it
    refusal: str = ""  # why the engine does not start with any option


@dataclass(frozen=True, slots=True, kw_only=True)
class _Law:
    """How one version derives the length; `lengths.toml` says what each field is."""

    since: str
    source: str
    date: str
    length: str = ""
    keys: tuple[str, ...] = ()
    picks: Literal["least", "first"] = "least"
    replaces: str = ""
    reads: str = "rope_scaling"
    completes: bool = False
    unscaled: tuple[str, ...] = ()
    original: tuple[str, ...] = ()
    stated: bool = False
    exempt: tuple[str, ...] = ()
    merges_late: bool = False
    allows: str = ""
    overrides: str = ""
    scaling: str = ""
    window: str = ""


def length_limit(
    engine: str,
    version: str,
    config: Config,
    *,
    assumed_tokens: int = 0,
    options: Texts | None = None,
    environment: Texts | None = None,
) -> LengthLimit:
    """Return the longest sequence that a version of an engine accepts for a model.

    `config` is config.json, {} if the model is unknown.  `assumed_tokens` is
    what its class assumes where nothing is stated; `options` are by the engine's own names,
    without dashes before them.  An engine that is not in the table takes `assumed_tokens`.
    """
    law, options = _law(engine, version), options or {}
    if law is None:
        return LengthLimit(tokens=assumed_tokens)
    if law.allows and (environment or {}).get(law.allows, "").strip().lower() in ON:
        return LengthLimit()
    given = _overrides(law, options)
    late = {key: value for key, value in given.items() if law.merges_late and _is_map(value)}
    early = {key: value for key, value in given.items() if key not in late}
    path, model_type = language_path(config)
    changed = _at(late, path)
    unscaled = {key: value for key, value in changed.items() if key not in SCALINGS}
    part = {**_at({**config, **early}, path), **unscaled}
    length = _stated(part, law) or (assumed_tokens if assumed_tokens < UNLIMITED else 0)
    raw = changed.get(law.reads) or (changed.get("rope_scaling") if law.completes else None)
    scaling = raw if _is_map(raw) else _read_scaling(part, law, length)
    limit = _scaled(length, scaling, law, model_type)
    window = part.get("sliding_window") if part.get("use_sliding_window", True) else None
    if options.get(law.window) == "true" and type(window) is int:
        limit = replace(limit, tokens=min(limit.tokens or window, window))
    return replace(limit, hint=law.overrides) if limit.tokens else limit


def judge_length(
    who: str,
    engine: str,
    version: str,
    options: Texts,
    facts: Facts,
    *,
    environment: Texts | None = None,
    spelled: str = "",
) -> tuple[Facts, tuple[Finding, ...]]:
    """Check the length that a configuration requests in its options and its environment.

    Returned with the findings are the facts, with the positions that the engine derives; without
    positions where none count.

    `facts` has config.json as text under `CONFIG`, where the model is known.  The rules across
    options report their own findings.  `spelled` is the option of the length as the file writes it.
    """
    law, read = _law(engine, version), facts.get(CONFIG)
    config = json.loads(read) if isinstance(read, str) else {}
    limit = length_limit(
        engine,
        version,
        config,
        assumed_tokens=int(facts.get("max_positions", 0)),
        options=options,
        environment=environment,
    )
    others = {name: value for name, value in facts.items() if name != "max_positions"}
    known = {**others, "max_positions": limit.tokens} if limit.tokens else others
    changes = {law.overrides, law.scaling, law.window} & options.keys() if law else ()
    if law is None or not (changes or limit.refusal):
        return known, ()
    asked = options.get(law.length, "")
    tokens = int(read_size(asked)) if SIZE.fullmatch(asked) else 0
    found = check_limit(who, limit, tokens, repr(spelled or law.length))
    return known, tuple(found)


def check_limit(who: str, limit: LengthLimit, asked: int, spelled: str) -> Iterator[Finding]:
    """Find a length beyond the limit, and scaling that ends the engine at its start.

    `who` is the engine with its version, `spelled` how the length was asked for.
    """
    if limit.refusal:
        hint = "complete it in config.json as it was published with the weights"
        yield Finding("error", "rope-incomplete", f"{who} refuses {limit.refusal}", hint)
    elif limit.tokens and asked > limit.tokens:
        message = f"{spelled} {asked} is more than the model's {limit.tokens} positions"
        hint = f"ask for at most {limit.tokens}"
        if asked <= limit.stretched_tokens and limit.hint:
            message += f": {who} does not count its {limit.scaling} scaling"
            said = json.dumps({"max_position_embeddings": asked}, separators=(",", ":"))
            hint += f", or add `{limit.hint}={said}`, as the scaling reaches that far"
        yield Finding("error", "shape-over-positions", message, hint)


def _law(engine: str, version: str) -> _Law | None:
    rows = [row for row in _table().get(engine, ()) if is_within(version, row["since"])]
    rows = rows or [*_table().get(engine, ())][:1]  # older than all that was read
    said: dict[str, Any] = {}
    for row in rows:
        said |= row
    lists = {key: tuple(value) for key, value in said.items() if isinstance(value, list)}
    return _Law(**{**said, **lists}) if said else None


@cache
def _table() -> Mapping[str, list[dict[str, Any]]]:
    return read_shipped(TABLE)


def _overrides(law: _Law, options: Texts) -> dict[str, Any]:
    """Return what options say in place of config.json; unsound JSON is refused elsewhere."""
    found: dict[str, Any] = {}
    for name, key in ((law.scaling, "rope_scaling"), (law.overrides, "")):
        try:
            read = parse_object(options[name].encode()) if options.get(name) else {}
        except ValueError:
            continue
        found |= {key: read} if key and read else read
    return found


def _at(config: Config, path: tuple[str, ...]) -> Config:
    for key in path:
        inner = config.get(key)
        config = inner if _is_map(inner) else {}
    return config


def _stated(part: Config, law: _Law) -> int:
    """Return the length that config.json states, by the engine's choice of its keys."""
    found = {key: part[key] for key in law.keys if _is_length(part.get(key))}
    if law.replaces in found:
        return int(found[law.replaces])
    values = [*found.values()]
    return (min(values) if law.picks == "least" else values[0]) if values else 0


def _read_scaling(part: Config, law: _Law, length: int) -> Config:
    """Return what config.json says of rotary scaling, as the config class hands it on."""
    scaling = part.get("rope_scaling")
    if (law.completes or law.reads == "rope_parameters") and not _is_map(scaling):
        scaling = part.get("rope_parameters")
    if not _is_map(scaling):
        return {}
    if _is_nested(scaling):
        kinds = {kind: value for kind, value in scaling.items() if _is_map(value)}
        return {kind: _complete(value, part, law, length) for kind, value in kinds.items()}
    return _complete(scaling, part, law, length)


def _complete(scaling: Config, part: Config, law: _Law, length: int) -> Config:
    found = dict(scaling)
    kind = found.setdefault("rope_type", found.get("type", "default"))
    found["rope_type"] = kind = SPELLED.get(str(kind), str(kind))
    original = part.get("original_max_position_embeddings")
    if _is_length(original) and (kind in COMPLETED or law.reads == "rope_parameters"):
        found["original_max_position_embeddings"] = original
    elif law.completes and kind in COMPLETED and length:
        stated = part.get("max_position_embeddings", length)
        found.setdefault("original_max_position_embeddings", stated)
    return found


def _scaled(length: int, scaling: Config, law: _Law, model_type: str) -> LengthLimit:
    """Multiply a length by what an engine counts of the scaling."""
    kinds = [*scaling.values()] if _is_nested(scaling) else [scaling] if scaling else []
    if not kinds or any(family in model_type for family in law.exempt):
        return LengthLimit(tokens=length)
    factor, reached, of_type = 1.0, 0, ""
    for one in kinds:
        kind, stated = one.get("rope_type"), one.get("original_max_position_embeddings")
        if not isinstance(kind, str) and not law.stated:
            return LengthLimit(refusal="rotary scaling that names no rope_type")
        given = one.get("factor")
        stretch = float(given) if isinstance(given, int | float) and given > 0 else 1.0
        reach = int((stated if _is_length(stated) else length) * stretch)
        if kind in law.unscaled or (law.stated and stated is not None):
            if reach > reached:
                reached, of_type = reach, str(kind)
            continue
        if "factor" in one:
            factor = stretch
        if kind in law.original:
            if not _is_length(stated):
                refusal = f"{kind} scaling without original_max_position_embeddings"
                return LengthLimit(refusal=refusal)
            length = int(stated)
    tokens = min(int(length * factor), LONGEST)
    beyond = reached if reached > tokens > 0 else 0
    return LengthLimit(tokens=tokens, stretched_tokens=beyond, scaling=of_type if beyond else "")


def _is_nested(scaling: Config) -> bool:
    """Report whether scaling is stated for each kind of layer separately."""
    maps = any(_is_map(value) for value in scaling.values())
    return maps and scaling.keys().isdisjoint(PARAMETERS)


def _is_map(value: object) -> TypeGuard[Config]:
    return isinstance(value, Mapping)


def _is_length(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 < value <= LONGEST
