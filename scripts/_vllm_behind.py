"""What vLLM reads behind its parser: names it looks up later, and classes made of JSON.

Everything is asked of the version that runs: a class is given one field at a time, and what its
own validators say of that field is written down.  What they say of fields together, or of the
model, is not seen here: those are the rows of `data/engines/rules`.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import json
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from _vllm_hints import (
    classes_in,
    fields_of,
    flat,
    flat_metadata,
    hint_of,
    metadata_of,
    named_kinds,
)

NONSENSE = "x~nonsense"
LARGE = 7919  # an integer that no enumeration has
OPTION_CLASSES = {"speculative-config": ("vllm.config", "SpeculativeConfig")}  # read as a dict
# Keys of JSON that vLLM fills in itself before it makes the class of it.
FILLED = {"SpeculativeConfig": ("target_model_config", "target_parallel_config")}
# Options that are fields of a class by another name.
FIELDS = {
    "kv-cache-dtype": ("CacheConfig", "cache_dtype"),
    "attention-backend": ("AttentionConfig", "backend"),
    "mamba-backend": ("MambaConfig", "backend"),
}
# Keys that open a list of names: where another key, or another option, may bring more.
OPENED = {
    "tool-call-parser": "tool-parser-plugin",
    "reasoning-parser": "reasoning-parser-plugin",
    ("KVTransferConfig", "kv_connector"): "kv_connector_module_path",
    ("ECTransferConfig", "ec_connector"): "ec_connector_module_path",
    ("StructuredOutputsConfig", "reasoning_parser"): "reasoning_parser_plugin",
}
NOT_PARTS = ("SpeculativeConfig",)  # whose fields are no options of the same names
METHOD = ("SpeculativeConfig", "method")  # `draft_methods` of the table
# Text to the parser, and nothing but a dictionary to what reads them: VllmConfig, the loaders.
DICTIONARIES = {"additional-config", "model-loader-extra-config"}
LOWERED = ("tokenizer-mode", "load-format")  # by validators of ModelConfig and LoadConfig
NOT_ALWAYS = ("MultiModalConfig", "LoRAConfig")  # made for some models, or with a switch
NOT_READ = ("QuantSpec",)  # its validators need more than the version's own modules
DOTTED = "pkg.module.Class"  # also taken where the engine imports what has a dot


def add(
    options: dict[str, dict[str, Any]], types: Mapping[str, Any], config: Any
) -> dict[str, Any]:
    """Add `values` and `config` to options; return the rows of the classes they name.

    `types` maps options to what the parser calls on their text, `config` is `VllmConfig`.
    """
    rows: dict[str, Any] = {}
    for name, row in options.items():
        if name in OPTION_CLASSES:
            of_class = find(*OPTION_CLASSES[name])
        else:
            of_class = class_of(types.get(name))
        if of_class is not None and can_probe(of_class):
            row["config"] = describe(of_class, rows)
    for name, listed in looked_up().items():
        row = options.get(name, {})
        if listed and row.get("type") == "text" and not row.get("choices"):
            row["values"] = sorted(listed)
            if name in OPENED:
                row["opened_by"] = OPENED[name]
            if name in LOWERED:
                row["folded"] = True
    for name in DICTIONARIES & options.keys():
        options[name]["type"] = "json"
    executor = options.get("distributed-executor-backend", {})
    if executor and not executor.get("choices"):  # `Executor.get_class` imports what has a dot
        executor |= {"values": executors(config), "dotted": True}
    reasoning = getattr(types.get("reasoning-parser"), "__name__", "")
    if reasoning == "parse_reasoning_parser":  # 0.33: `none`, in any case, is the default
        options["reasoning-parser"]["values"] += ["none", "None"]
    for name, row in options.items():
        if row.get("type") in ("text", "int", "float", "size") and not row.get("choices"):
            add_field(row, name, config)
    return rows


def add_field(row: dict[str, Any], name: str, config: Any) -> None:
    """Add to an option what the class that it becomes a field of says of its value."""
    wanted, field = FIELDS.get(name, ("", name.replace("-", "_")))
    for of_class in parts_of(config):
        is_meant = wanted in ("", of_class.__name__)
        if is_meant and field in fields_of(of_class) and can_probe(of_class):
            break
    else:
        return
    probe = Probe(of_class, field)
    if row["type"] == "text":
        if "values" in row or row.get("many") or probe.takes(NONSENSE):
            return
        listed = [one for one in candidates(of_class, field) if probe.takes(one)]
        names = list(dict.fromkeys(str(one) for one in listed))
        if names:
            row["values"] = names
            if takes_any_case(probe, names):
                row |= {"values": fold(names), "folded": True}
            if probe.takes(DOTTED):
                row["dotted"] = True
    elif of_class.__name__ not in NOT_ALWAYS:
        row |= bounds(of_class, field)


def executors(config: Any) -> list[str]:
    parallel = next(one for one in parts_of(config) if one.__name__ == "ParallelConfig")
    return candidates(parallel, "distributed_executor_backend")[1:]


class Probe:
    """One field of a class, asked value by value."""

    def __init__(self, of_class: Any, field: str) -> None:
        self.of_class, self.field = of_class, field

    def takes(self, value: object) -> bool:
        """Check that no error of the class is about the field."""
        return not field_errors(self.of_class, {self.field: value}, self.field)


def field_errors(of_class: Any, given: Mapping[str, object], field: str) -> list[str]:
    import pydantic

    try:
        validate(of_class, given)
    except pydantic.ValidationError as error:
        return [one["type"] for one in error.errors() if field in map(str, one["loc"][:1])]
    except Exception as error:  # of a validator, or of what comes after the fields
        return [] if fails_empty(of_class) else [type(error).__name__]
    return []


def fails_empty(of_class: Any, made: dict[Any, bool] = {}) -> bool:  # noqa: B006
    """Check that a class cannot be made at all here, so that no field is to blame."""
    import pydantic

    if of_class not in made:
        try:
            validate(of_class, {})
            made[of_class] = False
        except pydantic.ValidationError:
            made[of_class] = False
        except Exception:
            made[of_class] = True
    return made[of_class]


def validate(of_class: Any, given: Mapping[str, object]) -> object:
    return adapter(of_class).validate_json(json.dumps(given))


def adapter(of_class: Any, made: dict[Any, Any] = {}) -> Any:  # noqa: B006
    import pydantic

    if of_class not in made:
        made[of_class] = pydantic.TypeAdapter(of_class)
    return made[of_class]


def can_probe(of_class: Any) -> bool:
    try:
        return adapter(of_class) is not None
    except Exception:
        return False


def describe(of_class: Any, rows: dict[str, Any]) -> str:
    """Add the row of a class, and of those that its fields are made of; return its name."""
    import pydantic

    name = str(of_class.__name__)
    if name in rows:
        return name
    rows[name] = {}  # before its fields: a class may name itself
    fields: dict[str, Any] = {}
    for field in fields_of(of_class):
        if field in FILLED.get(name, ()):
            continue
        row = describe_field(of_class, field, rows)
        if row is not None:
            fields[field] = row
    rows[name] = {"lax": True, "fields": fields}
    try:
        validate(of_class, {NONSENSE: 1})
        unknown = False
    except pydantic.ValidationError as error:
        unknown = any(NONSENSE in map(str, one["loc"]) for one in error.errors())
    except Exception:
        unknown = False
    if not unknown:
        rows[name]["dropped"] = True  # another key has no effect
    return name


def describe_field(of_class: Any, field: str, rows: dict[str, Any]) -> Any:
    probe = Probe(of_class, field)
    listed = [one for one in candidates(of_class, field) if probe.takes(one)]
    kinds = kinds_of(probe, listed, hint_of(of_class, field))
    if kinds is None:
        return "any"
    if (of_class.__name__, field) == METHOD:
        return "text?"
    if not kinds and not listed:
        return None if not probe.takes(None) else "null"
    row = choices_row(probe, kinds, listed)
    inner = next((one for one in classes_in(hint_of(of_class, field)) if can_probe(one)), None)
    if inner is not None and "object" in kinds and inner.__name__ not in NOT_READ:
        row["config"] = describe(inner, rows)
    row |= bounds(of_class, field) if {"int", "float"} & set(kinds) else {}
    looked = looked_up().get((of_class.__name__, field))
    if looked:
        row["values"] = sorted(looked)
        if (of_class.__name__, field) in OPENED:
            row["opened_by"] = OPENED[of_class.__name__, field]
    kind = "|".join(kinds)
    if not row:
        return kind + ("?" if probe.takes(None) else "")
    if kind:
        row = {"type": kind} | row
    if probe.takes(None):
        row["optional"] = True
    return row


def kinds_of(probe: Probe, listed: list[Any], hint: Any) -> list[str] | None:
    """Return the kinds of values that a field takes beside the listed ones; None for any."""
    samples: dict[str, object] = {
        "int": 3,
        "float": 1.5,
        "list": [],
        "object": {},
        "text": NONSENSE,
    }
    kinds = [kind for kind, sample in samples.items() if probe.takes(sample)]
    if len(kinds) == len(samples):
        return None
    if "list" in kinds:
        kinds[kinds.index("list")] = list_kind(probe)
    if "int" in kinds and "float" in kinds:
        kinds.remove("int")
    if listed and "int" in kinds and not probe.takes(LARGE):
        kinds.remove("int")
    if probe.takes("yes") and probe.takes(True) and "text" not in kinds:
        return ["bool", *(kind for kind in kinds if kind != "int" or probe.takes(3))]
    if not kinds and not listed:
        return [kind for kind in named_kinds(hint) if kind]  # bounds that no sample is within
    return kinds


def choices_row(probe: Probe, kinds: list[str], listed: list[Any]) -> dict[str, Any]:
    """Return the choices of a field that takes only listed values, or nothing."""
    if not listed or {"text", "int"} & set(kinds):
        return {}
    names = [one for one in listed if isinstance(one, str)]
    if not takes_any_case(probe, names):
        return {"choices": listed}
    return {
        "choices": [one for one in listed if not isinstance(one, str)] + fold(names),
        "folded": True,
    }


def list_kind(probe: Probe) -> str:
    """Return the values that a list may hold."""
    samples = {"int": [LARGE], "text": [NONSENSE], "object": [{}], "list": [[]]}
    inner = [kind for kind, sample in samples.items() if probe.takes(sample)]
    return f"list[{inner[0]}]" if len(inner) == 1 else "list"


def takes_any_case(probe: Probe, names: list[str]) -> bool:
    swapped = [name.swapcase() for name in names if name.swapcase() != name]
    return bool(swapped) and all(map(probe.takes, swapped))


def fold(names: list[str]) -> list[str]:
    """Return one spelling per name, the last one: for enumerations, the member's own."""
    return list({name.lower(): name for name in names}.values())


def bounds(of_class: Any, field: str) -> dict[str, Any]:
    """Return what the field's own constraints say; rows of a union carry them inside."""
    found: dict[str, Any] = {}
    for one in (*metadata_of(of_class, field), *flat_metadata(hint_of(of_class, field))):
        for ours, theirs in (("min", "ge"), ("max", "le"), ("above", "gt"), ("below", "lt")):
            limit = getattr(one, theirs, None)
            if isinstance(limit, int | float):
                found[ours] = limit
    return found


def candidates(of_class: Any, field: str) -> list[Any]:
    """List what a field may be: literals, members of enumerations, what a list of names has."""
    found: list[Any] = ["auto"]
    for one in flat(hint_of(of_class, field)):
        if typing.get_origin(one) is typing.Literal:
            found += [value for value in typing.get_args(one) if value is not None]
        elif inspect.isclass(one) and issubclass(one, enum.Enum):
            for member in one.__members__.values():
                if isinstance(member.value, str | int) and not isinstance(member.value, bool):
                    found.append(member.value)
                found.append(member.name)
    if len(found) == 1:
        return []
    return [one for one in dict.fromkeys(found) if isinstance(one, str | int | float)]


def class_of(of_type: Any) -> Any:
    """Find the class that a parser's type makes of JSON."""
    while of_type is not None:
        if getattr(of_type, "__name__", "") == "parse_dataclass":
            defaults = of_type.__defaults__ or ()
            inner = inspect.getclosurevars(of_type).nonlocals
            return defaults[0] if defaults else inner.get("cls") or inner.get("dataclass_cls")
        if not inspect.isfunction(of_type) or not of_type.__closure__:
            return None
        of_type = inspect.getclosurevars(of_type).nonlocals.get("return_type")
    return None


def parts_of(config: Any) -> Iterator[Any]:
    """Yield the classes that a whole configuration is made of, and it itself."""
    for field in fields_of(config):
        for one in classes_in(hint_of(config, field)):
            if one.__name__ == "ModelConfig":
                yield from (c for f in fields_of(one) for c in classes_in(hint_of(one, f)))
            if one.__name__ not in NOT_PARTS:
                yield one
    yield config


def find(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


def first(*found: Callable[[], Any]) -> list[str]:
    """Return the names of the first list that this version has."""
    for one in found:
        try:
            names = one()
        except (ImportError, AttributeError):
            continue
        if names:
            return [str(name) for name in names]
    return []


def looked_up(kept: dict[str, Any] = {}) -> dict[Any, list[str]]:  # noqa: B006
    """Return the names that vLLM's registries have, by option or by class and field."""
    if kept:
        return kept
    # Before the others: half of it is imported by them, in a circle.
    loaders = first(
        lambda: find("vllm.model_executor.model_loader", "_LOAD_FORMAT_TO_MODEL_LOADER")
    )
    tools = first(
        lambda: find("vllm.tool_parsers", "ToolParserManager").list_registered(),
        lambda: find("vllm.entrypoints.openai.tool_parsers", "ToolParserManager").list_registered(),
        lambda: find("vllm.entrypoints.openai.tool_parsers", "ToolParserManager").tool_parsers,
    )
    reasoning = first(
        lambda: find("vllm.reasoning", "ReasoningParserManager").list_registered(),
        lambda: find("vllm.reasoning", "ReasoningParserManager").reasoning_parsers,
    )
    tokenizers = first(
        lambda: find("vllm.tokenizers.registry", "TokenizerRegistry").tokenizers,
        lambda: find("vllm.tokenizers.registry", "TokenizerRegistry").REGISTRY,  # 0.12
    )
    formats = first(
        lambda: find("vllm.transformers_utils.config", "_CONFIG_FORMAT_TO_CONFIG_PARSER")
    )
    connectors = first(
        lambda: (
            find(
                "vllm.distributed.kv_transfer.kv_connector.factory", "KVConnectorFactory"
            )._registry
        )
    )
    encoders = first(
        lambda: (
            find(
                "vllm.distributed.ec_transfer.ec_connector.factory", "ECConnectorFactory"
            )._registry
        )
    )
    kept |= {
        "tool-call-parser": tools,
        "reasoning-parser": reasoning,
        "load-format": loaders,
        "tokenizer-mode": [*{*tokenizers, "auto", "hf", "slow"}] if tokenizers else [],
        "config-format": [*{*formats, "auto"}] if formats else [],
        ("StructuredOutputsConfig", "reasoning_parser"): reasoning,
        ("KVTransferConfig", "kv_connector"): connectors,
        ("ECTransferConfig", "ec_connector"): encoders,
    }
    return kept
