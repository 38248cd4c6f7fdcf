"""Options of an engine's version, with types and choices, read from shipped data.

`data/engines/vllm-*.json` and `sglang-*.json` come from each engine's own argument parser by
`scripts/engine-options`; facts that no parser states are in `facts.toml`.  Files are read at first
use.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from packager.core.documents import parse_json
from packager.core.findings import Finding
from packager.core.share import read_shipped
from packager.core.suggestions import guess
from packager.core.versions import LOWEST, newest_until, version_key
from packager.engines.values import (
    MOST_NAMED,
    UNBOUNDED,
    Bounds,
    EngineConfig,
    check_config,
    check_known,
    is_listed,
    read_bounds,
    read_configs,
    read_list,
    written_as,
)

ENGINES = Path(__file__).parent / "data" / "engines"
BINARY_SIZE = re.compile(r"-?\d+|\d+(\.\d+)?[kMGT]|\d+[KMGT]i", re.ASCII)
UNSIGNED = {"uint16": 2**16, "uint32": 2**32, "uint64": 2**64}
# As pydantic reads text.
LOOSE_BOOLS = frozenset({"true", "false", "1", "0", "yes", "no", "on", "off", "t", "f", "y", "n"})
COUNTS = re.compile(r"\s*\w+\s*=\s*\d+\s*(,\s*\w+\s*=\s*\d+\s*)*", re.ASCII)
UNITS: Mapping[str, int] = {
    unit: base ** (power + 1)
    for base, units in ((1000, "kmgt"), (1024, "KMGT"))
    for power, unit in enumerate(units)
}
SIZE = re.compile(r"\d+|\d+(\.\d+)?[kmgt]|\d+[KMGT]", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of an engine. A `flag` takes no value; a `switch` has a negation as well."""

    name: str  # without dashes: `max-model-len`
    type: str  # `flag`, `switch`, `int`, `float`, `size`, `binary-size`, `json`, `word`, `text`,
    # `bool`, `loose-bool`, `counts`, or an unsigned number of so many bits: `uint16`, `uint32`,
    # `uint64`
    choices: tuple[str, ...] = ()
    many: bool = False  # one or more values
    separator: str = ""  # between the values of one text
    default: str = ""  # what a number is where it is not set; "": not known
    aliases: tuple[str, ...] = ()  # other long names
    inverses: tuple[str, ...] = ()  # of a switch: names that turn it off
    values: tuple[str, ...] = ()  # what the engine looks up when it starts; its parser does not
    opened_by: str = ""  # the option that adds to `values`: a plug-in
    files: bool = False  # or the path of a file, beside `values`
    config: EngineConfig | None = None  # of `json`: the class that the engine turns it into
    bounds: Bounds = UNBOUNDED  # of a number
    folded: bool = False  # `values` may be spelled in any case
    dotted: bool = False  # beside `values`, the import path of a class


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSchema:
    """The options of one version of an engine."""

    engine: str
    version: str
    options: Mapping[str, Option]
    fields: frozenset[str] = frozenset()  # of EngineArgs: those that LMI passes on
    draft_methods: frozenset[str] = frozenset()
    draft_keys: frozenset[str] = frozenset()
    # Of an image for SageMaker, whose script starts the engine: the engine's variable → the one
    # that the script exports it from; and what the script gives on the command line.
    exports: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)
    # Of a launcher: the engine and version that get every other option, and which it gives itself.
    hands_to: tuple[str, str] = ("", "")
    decides: frozenset[str] = frozenset()
    source: str = ""
    proven: bool = True  # read from this very version

    def is_for(self, version: str) -> bool:
        """Check that the options are those of this version or of an older one."""
        wanted, known = version_key(version), version_key(self.version)
        return wanted is not None and known is not None and known <= wanted

    def find(self, name: str) -> Option | None:
        """Find an option by any of its long names, with dashes or underscores."""
        wanted = name.lower().replace("_", "-")
        if wanted in self.options:
            return self.options[wanted]
        return next((o for o in self.options.values() if wanted in o.aliases), None)

    def find_inverse(self, name: str) -> Option | None:
        """Find the switch that an option turns off: `enable-lora` of `disable-lora`."""
        wanted = name.lower().replace("_", "-")
        return next((o for o in self.options.values() if wanted in o.inverses), None)


@lru_cache(maxsize=256)  # called hundreds of times by a ranking; users add versions
def find_schema(engine: str, version: str) -> EngineSchema:
    """Return the schema of a version, or of the nearest one there is, marked as unproven.

    Nearest is the newest below, so that a nightly of 0.33.1 has what 0.33.0 has; where none
    is below, the oldest.  What cannot be read as a version is taken as the newest.
    """
    wanted = version_key(version)
    shipped = _shipped(engine)
    if version in shipped:
        return _apply_facts(load_schema(shipped[version]), engine, version)
    chosen = newest_until(shipped, version)
    is_same = wanted is not None and version_key(chosen) == wanted  # but for a `v`, a local part
    found = replace(load_schema(shipped[chosen]), proven=is_same)
    return _apply_facts(found, engine, version)


def shipped_schemas(engine: str) -> tuple[EngineSchema, ...]:
    """Return the schemas of every version that is shipped."""
    return tuple(load_schema(path) for path in _shipped(engine).values())


@cache
def load_schema(path: Path) -> EngineSchema:
    """Read one shipped schema."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    rest = document.get("passes_on", {})
    lists: dict[str, list[Any]] = document.get("lists", {})
    configs = read_configs(document.get("configs", {}), lists)
    return EngineSchema(
        engine=document["engine"],
        version=document["version"],
        options={
            name: Option(
                name=name,
                type=row["type"],
                choices=read_list(row.get("choices", ()), lists),
                many=row.get("many", False),
                separator=row.get("separator", ""),
                default=row.get("default", ""),
                aliases=tuple(row.get("aliases", ())),
                inverses=tuple(row.get("inverses", ())),
                values=read_list(row.get("values", ()), lists),
                opened_by=row.get("opened_by", ""),
                files=row.get("files", False),
                config=configs[row["config"]] if "config" in row else None,
                bounds=read_bounds(row),
                folded=row.get("folded", False),
                dotted=row.get("dotted", False),
            )
            for name, row in document["options"].items()
        },
        fields=frozenset(document["fields"]),
        draft_methods=frozenset(document["draft_methods"]),
        draft_keys=frozenset(document["draft_keys"]),
        exports=document.get("entrypoint", {}).get("exports", {}),
        arguments=document.get("entrypoint", {}).get("arguments", {}),
        hands_to=(rest["engine"], rest["version"]) if rest else ("", ""),
        decides=frozenset(rest.get("except", ())),
        source=document["source"],
    )


@cache
def facts() -> Mapping[str, Any]:
    """Read what is known of engines without their parser."""
    return read_shipped(ENGINES / "facts.toml")


def facts_schema(name: str) -> EngineSchema:
    """Return a handwritten schema: `tgi`, `lmi-neuronx`, …"""
    table = facts()[name]
    options: dict[str, Option] = {}
    for key, row in table["options"].items():
        if isinstance(row, list):
            options[key] = Option(name=key, type="word", choices=tuple(row))
        else:
            options[key] = Option(name=key, type=row)
    return EngineSchema(
        engine=name,
        version=table["version"],
        options=options,
        draft_methods=frozenset(table.get("draft_methods", ())),
        source=table["source"],
        proven=False,
    )


def check_version(who: str, version: str, schema: EngineSchema) -> Iterator[Finding]:
    """Warn that another version's options stand in for those of this one.

    Options come and go with minor versions; a patch release is only noted.
    """
    if schema.proven:
        return
    wanted, used = version_key(version), version_key(schema.version)
    same_minor = wanted and used and wanted.release[:2] == used.release[:2]
    if wanted is None:
        which = f"{version[:40]!r} cannot be read as a version of {who}"
        used_words = f"the options of {schema.version}, the newest that is known, are used"
    else:
        kind = ", a build before its release," if wanted.is_devrelease else ""
        which = f"the options of {who} {version}{kind} are not known here"
        used_words = f"those of {schema.version} are used"
    yield Finding(
        "note" if same_minor else "warning",
        "options-unproven",
        f"{which}; {used_words}",
        "choose a container version whose options are, with --container-version",
    )


def check_value(
    who: str, option: Option, spelled: str, value: str, given: Collection[str] = ()
) -> Iterator[Finding]:
    """Find a value that the engine does not take. `spelled` is the key as it is rendered.

    `given` names the options that are set, without dashes: a plug-in among them may add values.
    """
    if option.separator and option.separator in value:
        one = replace(option, separator="")
        for part in value.split(option.separator):
            yield from check_value(who, one, spelled, part, given)
    elif len(words := value_tokens(option, value)) > 1 or words != (value,):
        one = replace(option, many=False)
        for word in words:
            yield from check_value(who, one, spelled, word, given)
    elif option.choices and value not in option.choices:
        hint = guess(value, option.choices, f"it takes {', '.join(option.choices[:MOST_NAMED])}")
        yield Finding("error", "value-refused", f"{who} refuses {value!r} for {spelled!r}", hint)
    elif not is_of_type(value, option.type):
        message = f"{who} refuses {value!r} for {spelled!r}, which is of type {option.type}"
        yield Finding("error", "value-refused", message, written_as(option.type))
    elif option.values and option.opened_by not in given:
        if not _is_path(option, value) and not is_listed(
            value, option.values, folded=option.folded
        ):
            yield from check_known(who, spelled, value, option.values)
    elif wanted := _refusal(option, value):
        message = f"{who} refuses {value!r} for {spelled!r}, which must be {wanted}"
        yield Finding("error", "value-refused", message, f"give one that is {wanted}")
    elif option.config is not None:
        yield from check_config(who, spelled, value, option.config)


def _is_path(option: Option, value: str) -> bool:
    """Check for what an option takes beside its names: a file, or the import path of a class."""
    has_dot = "." in value.strip(".")
    return (option.files and ("/" in value or "." in value)) or (option.dotted and has_dot)


def _refusal(option: Option, value: str) -> str:
    """Return which bound a number violates; "" when it is within its bounds."""
    if option.bounds is UNBOUNDED or not is_of_type(value, option.type) or value == "auto":
        return ""
    return option.bounds.refusal(read_size(value))


def read_size(text: str) -> float:
    """Read a number of the command line: `1k` is 1000, `1K` is 1024."""
    if text[-1] in UNITS:
        return float(text[:-1]) * UNITS[text[-1]]
    return float(text)


def value_tokens(option: Option, value: str) -> tuple[str, ...]:
    """Split the value of an option that takes several: a JSON list has one in each place."""
    if not option.many or not value.startswith("["):
        return (value,)
    try:
        listed = parse_json(value.encode())
    except ValueError:
        return (value,)
    return tuple(one if isinstance(one, str) else json.dumps(one) for one in listed)


def is_of_type(value: str, of_type: str) -> bool:
    """Return whether text can be parsed as a type of the option tables."""
    match of_type:
        case "int":
            return value.isascii() and value.removeprefix("-").isdecimal()
        case "uint16" | "uint32" | "uint64":
            return _is_unsigned(value, UNSIGNED[of_type])
        case "size":
            return value in {"auto", "-1"} or SIZE.fullmatch(value) is not None
        case "binary-size":
            return BINARY_SIZE.fullmatch(value) is not None
        case "float":
            return _is_float(value)
        case "flag" | "switch" | "bool":
            return value in {"true", "false"}
        case "word":
            return bool(value) and not any(char.isspace() for char in value)
        case "json":
            return _is_json(value)
        case "counts":
            return COUNTS.fullmatch(value) is not None
        case "loose-bool":
            return value.lower() in LOOSE_BOOLS
        case "lora-module":
            return _is_lora_module(value)
    return True


def versions_with(method: str, engine: str = "vllm") -> tuple[str, ...]:
    """Return the known versions of an engine that have a method of drafting, oldest first."""
    keys = {version: version_key(version) for version in _shipped(engine)}
    order = sorted(keys, key=lambda version: keys[version] or LOWEST)
    return tuple(one for one in order if method in find_schema(engine, one).draft_methods)


def shipped_versions(engine: str) -> tuple[str, ...]:
    """List the versions whose options were read from their own parser."""
    return tuple(_shipped(engine))


def _shipped(engine: str) -> dict[str, Path]:
    prefix = f"{engine}-"
    found = ENGINES.glob(f"{prefix}*.json")
    return {path.stem.removeprefix(prefix): path for path in sorted(found)}


def _apply_facts(schema: EngineSchema, engine: str, version: str) -> EngineSchema:
    """Add options that a version is known to have, and remove those that it dropped.

    Whichever schema stands in for the version: patches of one minor version may differ.
    """
    added, gone = (_facts_of(name, engine, version) for name in ("added", "removed"))
    return replace(schema, draft_methods=(schema.draft_methods | added) - gone)


def _rows_since(name: str, engine: str, version: str) -> Iterator[Mapping[str, Any]]:
    key = version_key(version)
    for row in facts()[name]:
        since = version_key(row["since"])
        if row["engine"] == engine and key and since and key >= since:
            yield row


def _facts_of(name: str, engine: str, version: str) -> frozenset[str]:
    rows = _rows_since(name, engine, version)
    return frozenset(method for row in rows for method in row["draft_methods"])


def _is_unsigned(value: str, limit: int) -> bool:
    digits = value.removeprefix("+")
    if not (digits.isascii() and digits.isdecimal()):
        return False
    kept = digits.lstrip("0") or "0"
    return len(kept) <= len(str(limit)) and int(kept) < limit


def _is_lora_module(value: str) -> bool:
    """Check for `name=path`, or for a JSON object with both."""
    if "=" in value and "," not in value:
        return value.count("=") == 1
    try:
        module = parse_json(value.encode())
    except ValueError:
        return False
    return isinstance(module, dict) and {"name", "path"} <= module.keys()


def _is_float(value: str) -> bool:
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False


def _is_json(value: str) -> bool:
    try:
        parse_json(value.encode())
    except ValueError:
        return False
    return True
