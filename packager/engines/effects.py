"""Effects of an engine's options on the memory and the speed that a plan states.

`data/engines/option_effects.toml` classes every option of every version whose table is shipped,
LMI's own keys and fields of NxD Inference's among them.  A finding names each option whose effect a
plan does not count, and each unclassified option.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args

from packager.core.documents import parse_object
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding
from packager.core.model import ModelProfile
from packager.core.share import read_shipped
from packager.core.units import GIB
from packager.engines.lmi.options import VLLM_NAMES, lmi_options
from packager.engines.request_options import spelled
from packager.engines.schema import ENGINES, SIZE, find_schema, read_size

TABLE = ENGINES / "option_effects.toml"
Effect = Literal["owned", "counted", "types", "states", "memory", "speed", "none"]

CACHE = {"vllm": "kv-cache-dtype", "sglang": "kv-cache-dtype", "tgi": "KV_CACHE_DTYPE"}
# Of states: the type of their convolution, and of the rest of them.
STATE_TYPES = {
    "vllm": ("mamba-cache-dtype", "mamba-ssm-cache-dtype"),
    "sglang": ("", "mamba-ssm-dtype"),
}
STEP = ("max-num-batched-tokens", "chunked-prefill-size")
EAGER = ("enforce-eager", "disable-cuda-graph")
BLOCK = ("block-size", "page-size")
PREFIXES = "enable-prefix-caching"
SLOTS = ("max-loras", "max-loras-per-batch")
# What `--max-loras`, `--max-loras-per-batch` and `--max-lora-rank` are by default: vLLM 0.7.3 to
# 0.33.0, config/lora.py; SGLang 0.5.5 to 0.5.23, server_args.py, which reads ranks from adapters.
DEFAULT_SLOTS, DEFAULT_RANK = {"vllm": 1, "sglang": 8}, {"vllm": 16}
SLOWER = ("cpu-offload-gb", *EAGER, "enable-lora")

NAMED = ("vllm", "sglang", "tgi")  # engines whose own names are in tables of versions
# Of vLLM on Neuron devices: the option whose JSON overrides fields of NxD Inference's NeuronConfig.
VLLM_NXDI, NXDI, ADDITIONAL = "vllm-nxdi", "nxdi", "additional-config"
OVERRIDES = "override_neuron_config"

MOST = 2.0**40  # limit of every number here

Texts = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Changes of a memory budget by requested options; 0 and "" keep the planned value."""

    cache_dtype: str = ""  # as the engine calls it
    cache_element_bytes: int = 0
    step_tokens: int = 0  # computed at once at most
    offloaded_bytes: int = 0  # of the weights, on each device
    eager: bool = False  # without CUDA graphs
    block_tokens: int = 0  # of the cache
    prefix_caching: bool | None = None  # None: the engine's own choice
    adapter_slots: int = 0
    adapter_rank: int = 0
    adapter_sharded: bool = False  # both matrices of a pair over the devices
    mixed_element_bytes: int = 0  # of a state's convolution
    recurrent_element_bytes: int = 0  # of the rest of a state


def engine_named(container: ContainerFacts, options: Texts | None) -> dict[str, str]:
    """Return the options of a request by the names of the engine's own parser.

    A switch that is turned off by its negation is `false` under its own name.
    """
    if container.engine not in NAMED:
        return dict(spelled(options))
    found: dict[str, str] = {}
    schema = find_schema(container.engine, container.engine_version)
    for name, value in spelled(options):
        if container.engine == "tgi":
            found[name.upper().replace("-", "_")] = value
            continue
        if container.family == "lmi":
            name = VLLM_NAMES.get(f"option.{name.replace('-', '_')}", name)
        option, negated = schema.find(name), schema.find_inverse(name)
        if option is None and negated is not None:
            found[negated.name] = "false" if value.lower() == "true" else "true"
        else:
            found[option.name if option is not None else name] = value
    return found


def effect_of(container: ContainerFacts, name: str) -> Effect | None:
    """Return the effect of an engine's option on a plan's figures; None if unknown.

    A field of NxD Inference's is named as it stands in the JSON: `override_neuron_config.buckets`.
    """
    outer, _, field = name.partition(".")
    is_field = outer == OVERRIDES and bool(field)
    tables, own = ([_table()[NXDI]], field) if is_field else (tables_of(container), name)
    effects = (effect for table in tables for effect in get_args(Effect) if own in table[effect])
    return next(effects, None)


def owner_of(container: ContainerFacts, name: str) -> str:
    """Return packager's own option for what the plan decides: `--tp-degree`; "" for others."""
    names = engine_named(container, {name: ""})
    owners = (table["owned"].get(own, "") for table in tables_of(container) for own in names)
    return next(filter(None, owners), "")


def owner_of_field(field: str) -> str:
    """Return packager's own option for what the plan decides of NxD Inference's NeuronConfig."""
    owned: Texts = _table()[NXDI]["owned"]
    return owned.get(field, "")


def tables_of(container: ContainerFacts) -> list[Mapping[str, Any]]:
    """Return the tables that class an image's options: its own, then its engine's."""
    names = (container.family, container.variant, container.engine)
    return [_table()[name] for name in dict.fromkeys(names) if name in _table()]


def count_options(engine: str, options: Texts) -> Counted:
    """Return the changes of a memory budget by options under the engine's own names.

    Values that are not numbers are refused by the check of the engine's options.
    """
    cache = options.get(CACHE.get(engine, ""), "")
    slots = rank = 0
    if options.get("enable-lora", "false").lower() == "true":
        slots = _first(options, SLOTS) or DEFAULT_SLOTS.get(engine, 0)
        rank = _first(options, ("max-lora-rank",)) or DEFAULT_RANK.get(engine, 0)
    widths: Mapping[str, int] = _table().get(engine, {}).get("type_bytes", {})
    mixed, recurrent = (
        widths.get(options.get(name, ""), 0) if name else 0
        for name in STATE_TYPES.get(engine, ("", ""))
    )
    return Counted(
        mixed_element_bytes=mixed,
        recurrent_element_bytes=recurrent,
        cache_dtype=cache,
        cache_element_bytes=_table().get(engine, {}).get("cache", {}).get(cache, 0),
        step_tokens=_first(options, STEP),
        offloaded_bytes=int(_number(options.get("cpu-offload-gb", "")) * GIB),
        eager=any(options.get(name, "").lower() == "true" for name in EAGER),
        block_tokens=_first(options, BLOCK),
        prefix_caching={"true": True, "false": False}.get(options.get(PREFIXES, "").lower()),
        adapter_slots=slots if rank else 0,
        adapter_rank=rank,
        adapter_sharded=options.get("fully-sharded-loras", "").lower() == "true",
    )


def check_effects(
    who: str, container: ContainerFacts, options: Texts, profile: ModelProfile
) -> Iterator[Finding]:
    """Find options whose effect the plan's figures do not count.

    `options` are by the engine's own names.  Those that the plan owns, and those that the engine
    does not have, are refused elsewhere.
    """
    known = _known(container) if options else frozenset()
    for name, value in _expanded(container, options):
        effect = effect_of(container, name)
        if effect == "states":
            effect = "memory" if profile.state_bytes else "none"
        if effect == "types":
            states = [group for group in profile.kv_groups if group.kind == "state"]
            effect = "none" if all(group.mixed_elements for group in states) else "memory"
        if effect == "counted":
            effect = _left_over(container.engine, name, value, options)
        if effect == "memory":
            message = f"{name!r} changes memory in a way that is not counted"
            hint = "what fits may differ: look at the engine's log at its first start"
            yield Finding("warning", "option-not-counted", message, hint)
        elif effect == "speed":
            message = f"{name!r} may change speed, which is predicted without it"
            yield Finding("note", "option-not-counted", message, "measure it with `packager bench`")
        elif effect is None and (name in known or name.startswith(f"{OVERRIDES}.")):
            message = f"nobody has looked at what {name!r} of {who} does to memory and speed"
            hint = "look at the engine's log at its first start"
            yield Finding("warning", "option-not-counted", message, hint)


def _expanded(container: ContainerFacts, options: Texts) -> Iterator[tuple[str, str]]:
    """Yield options with their values; of NxD Inference's JSON each field that it overrides."""
    for name, value in options.items():
        if (container.variant, name) != (VLLM_NXDI, ADDITIONAL):
            yield name, value
            continue
        try:
            given = parse_object(value.encode())
        except ValueError:  # refused where the option's type is checked
            continue
        fields = given.pop(OVERRIDES, {})
        yield from ((f"{OVERRIDES}.{field}", "") for field in fields if isinstance(fields, dict))
        if given:
            yield name, value


def _left_over(engine: str, name: str, value: str, options: Texts) -> Effect:
    """Return what of a counted option is not counted."""
    is_off = value.lower() in ("false", "auto", "0")
    if name == CACHE.get(engine):
        return "none" if is_off or value in _table()[engine]["cache"] else "memory"
    if name == "enable-lora" and not is_off and not count_options(engine, options).adapter_rank:
        return "memory"
    return "speed" if name in SLOWER and not is_off else "none"


def _known(container: ContainerFacts) -> frozenset[str]:
    """Return the options that an image takes, as far as they are known."""
    if container.engine not in NAMED:
        return frozenset()
    schema = find_schema(container.engine, container.engine_version)
    if container.family != "lmi":
        return frozenset(schema.options)
    keys = lmi_options(schema, int(container.release or 0)).types
    return frozenset(engine_named(container, dict.fromkeys(keys, "")))


def _first(options: Texts, names: tuple[str, ...]) -> int:
    found = (int(_number(options.get(name, ""))) for name in names)
    return next((number for number in found if number > 0), 0)


def _number(text: str) -> float:
    if SIZE.fullmatch(text):
        text = str(read_size(text))
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return number if 0 < number < MOST else 0.0


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    read = read_shipped(TABLE)
    none: dict[str, Any] = {**dict.fromkeys(get_args(Effect), frozenset()), "owned": {}}
    return {
        engine: none
        | {key: rows if isinstance(rows, dict) else frozenset(rows) for key, rows in table.items()}
        for engine, table in read.items()
    }
