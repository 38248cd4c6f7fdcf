"""What engines are asked for, and what packager says of it and renders: sentences of TOML files.

A table is a sentence about an engine, and its `rows` are the cases, by id: each has the keys that
differ from the sentence's own.  A plan is asked for by `container`, or by each of `containers`,
with a `version` of its engine or a `release`, fields of the `plan`, and `options` of the engine.
Options without a plan have an `engine`, its `version`, and `facts` of the model and the device.

Of what is said: `found` are severities and codes of all findings, `codes` of some; `errors` are
the codes of all errors, `error` that of one; `refused` asks for an error, whichever; `silent` are
codes of no finding.  `says` are words of a message, `refuses` of an error's, `hint` of a hint;
`messages` and `hints` are those of all errors, whole.

Of what is rendered: values in `env`, `argv` or `properties`, where a table is JSON; `told` has
options by their names, however the image is told; `flags` are words of the command, `absent` names
that are nowhere, `files` all paths.  `only` says that the variables and properties with a prefix
are those of the row, and no others; `document` is the JSON of the first file, and `config` has
fields of the configuration.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import javaproperties

from packager.cli.plugins.tables import FAMILIES
from packager.core.artifact import Artifacts
from packager.core.findings import Finding
from packager.core.parsers import ChosenParser
from packager.core.plan import Plan
from packager.core.ports import ContainerFamily
from packager.core.serving import ServingConfig
from packager.core.shape import Shape
from packager.engines.lmi.check import check_settings
from packager.engines.lmi.options import lmi_options
from packager.engines.schema import find_schema
from packager.engines.sglang.check import check_options as check_sglang
from packager.engines.tgi.check import check_settings as check_tgi
from packager.engines.vllm.check import check_options as check_vllm
from tests.support.engine_plans import DRAFTS, PROFILES, QUANTIZATIONS, plan_for
from tests.support.places import ROOT

CORPUS = ROOT / "tests" / "unit" / "engines" / "corpus"
PREFIXES = {"vllm": "SM_VLLM_", "sglang": "SM_SGLANG_", "lmi": "OPTION_"}
ASKED = {"container", "containers", "version", "release", "plan", "options", "engine", "facts"}
SAID = {
    *("found", "errors", "error", "refused", "codes", "silent"),
    *("says", "refuses", "messages", "hint", "hints"),
}
RENDERED = {
    "env",
    "argv",
    "properties",
    "told",
    "flags",
    "absent",
    "only",
    "files",
    "document",
    "config",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRow:
    """One case of a sentence."""

    id: str
    keys: Mapping[str, Any]

    def __post_init__(self) -> None:
        unknown = self.keys.keys() - ASKED - SAID - RENDERED - {"why"}
        assert not unknown, f"{self.id}: unknown keys {sorted(unknown)}"

    def asks_for_a_plan(self) -> bool:
        return "container" in self.keys

    def is_rendered(self) -> bool:
        return not RENDERED.isdisjoint(self.keys)

    def is_judged(self) -> bool:
        return not SAID.isdisjoint(self.keys)


def read_rows() -> Iterator[EngineRow]:
    """Read the sentences of every file, in the order of their names."""
    for path in sorted(CORPUS.glob("plans_*.toml")):
        for sentence, table in tomllib.loads(path.read_text(encoding="utf-8")).items():
            for id, row in table.pop("rows", {"": {}}).items():
                keys = _merged(table, row)
                for container in keys.pop("containers", [keys.get("container")]):
                    case = " ".join(filter(None, (container, id)))
                    named = {"container": container} if container else {}
                    yield EngineRow(id=f"{sentence}: {case}", keys=keys | named)


def family_of(plan: Plan) -> ContainerFamily:
    """Make the family of a plan's container."""
    family: ContainerFamily = FAMILIES.find(plan.container.family).make()
    return family


def plan_of_row(row: EngineRow) -> Plan:
    """Write out the plan that a row asks for."""
    fields = {name: _value(name, value) for name, value in row.keys.get("plan", {}).items()}
    of_model, of_machine = fields.pop("model_is", {}), fields.pop("machine_is", {})
    options = tuple(row.keys.get("options", {}).items())
    plan = plan_for(row.keys["container"], **fields, engine_options=options)
    named = {"engine_version": row.keys.get("version"), "release": row.keys.get("release")}
    changed = {name: value for name, value in named.items() if value is not None}
    return replace(
        plan,
        container=replace(plan.container, **changed),
        profile=replace(plan.profile, **of_model),
        instance=replace(plan.instance, **of_machine),
    )


def findings_of(row: EngineRow) -> Sequence[Finding]:
    """Check what a row asks for."""
    if row.asks_for_a_plan():
        plan = plan_of_row(row)
        return tuple(family_of(plan).check(plan))
    engine, options = row.keys["engine"], row.keys["options"]
    version, facts = row.keys.get("version", ""), row.keys.get("facts", {})
    match engine:
        case "lmi":
            release = row.keys["release"]
            table = lmi_options(find_schema("vllm", version), release)
            return tuple(check_settings(options, table, vllm_version=version))
        case "sglang" | "sglang by variables":
            schema, one_word = find_schema("sglang", version), engine != "sglang"
            return tuple(check_sglang(options, schema, facts, version=version, one_word=one_word))
        case "tgi":
            return tuple(check_tgi(options, version, by_script=False))
    return tuple(check_vllm("vLLM", options, find_schema("vllm", version), facts))


def check_said(row: EngineRow, found: Sequence[Finding]) -> None:
    """Compare what was found with what the row says of it."""
    keys, errors = row.keys, [one for one in found if one.severity == "error"]
    shown = [f"{one.severity} {one.code}" for one in found]
    for key, told in (
        ("found", shown),
        ("errors", [one.code for one in errors]),
        ("messages", [one.message for one in errors]),
        ("hints", [one.hint for one in errors]),
    ):
        assert told == keys.get(key, told), found
    assert "error" not in keys or f"error {keys['error']}" in shown, found
    assert errors or not keys.get("refused"), found
    assert set(keys.get("codes", ())) <= set(shown), found
    assert set(keys.get("silent", ())).isdisjoint(one.code for one in found), found
    for key, texts in (
        ("says", [one.message for one in found]),
        ("refuses", [one.message for one in errors]),
        ("hint", [one.hint for one in found]),
    ):
        assert key not in keys or any(keys[key] in text for text in texts), found


def check_rendered(row: EngineRow, plan: Plan) -> None:
    """Compare what is rendered of the plan with what the row says of it."""
    keys, config = row.keys, family_of(plan).render(plan, Artifacts(model=()))
    env, argv, properties = config.env, argv_of(config), properties_of(config)
    _compare(keys.get("env", {}), env)
    _compare(keys.get("argv", {}), _options_of(argv))
    _compare(keys.get("properties", {}), properties)
    if "told" in keys:
        _compare(keys["told"], _told(plan, env, argv))
    assert set(keys.get("flags", ())) <= set(argv), argv
    assert set(keys.get("absent", ())).isdisjoint({*env, *argv, *properties})
    if "only" in keys:
        names = {name for name in (*env, *properties) if name.startswith(keys["only"])}
        written = {*keys.get("env", {}), *keys.get("properties", {})}
        assert names == {name for name in written if name.startswith(keys["only"])}
    if "files" in keys:
        assert sorted(file.path for file in config.files) == sorted(keys["files"])
    if "document" in keys:
        assert json.loads(config.files[0].data) == keys["document"]
    for name, value in keys.get("config", {}).items():
        shown = getattr(config, name)
        assert (list(shown) if isinstance(shown, tuple) else shown) == value, name


def argv_of(config: ServingConfig) -> list[str]:
    """Return the command that the launcher runs; nothing where the image has another way."""
    for file in config.files:
        if file.path.endswith("/command.json"):
            argv: list[str] = json.loads(file.data)["argv"]
            return argv
    return []


def properties_of(config: ServingConfig) -> dict[str, str]:
    """Return LMI's properties, read by a parser that is not ours."""
    for file in config.files:
        if file.path.endswith("/serving.properties"):
            return dict(javaproperties.loads(file.data.decode("latin-1")))
    return {}


def _options_of(argv: Sequence[str]) -> dict[str, str]:
    """Return each option of a command with all words up to the next."""
    options: dict[str, list[str]] = {}
    words: list[str] = []
    for word in argv:
        if word.startswith("--"):
            assert word not in options, f"{word} is given twice"
            words = options[word] = []
        else:
            words.append(word)
    return {name: " ".join(words) for name, words in options.items()}


def _told(plan: Plan, env: Mapping[str, str], argv: Sequence[str]) -> dict[str, str]:
    if argv:
        return {name.removeprefix("--"): value for name, value in _options_of(argv).items()}
    prefix = PREFIXES[plan.container.family]
    return {
        name.removeprefix(prefix).lower().replace("_", "-"): value
        for name, value in env.items()
        if name.startswith(prefix)
    }


def _compare(expected: Mapping[str, Any], found: Mapping[str, str]) -> None:
    for name, value in expected.items():
        assert name in found, f"{name} is not among {sorted(found)}"
        read = json.loads(found[name]) if isinstance(value, dict) else found[name]
        assert read == value, name


def _merged(table: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sentence's keys with the row's; tables of both are joined."""
    tables = {
        name: {**table[name], **value}
        for name, value in row.items()
        if isinstance(value, dict) and name in table
    }
    return {**table, **row, **tables}


def _value(name: str, value: Any) -> Any:
    """Make a field of a plan: of a name in plans.toml, or of a table that changes one."""
    named: Mapping[str, Any] = {
        "draft": DRAFTS,
        "quantization": QUANTIZATIONS,
        "profile": PROFILES,
    }.get(name, {})
    if isinstance(value, dict) and "of" in value:
        return replace(named[value["of"]], **{key: value[key] for key in value if key != "of"})
    if name == "shape":
        return Shape(max_batch=value[0], max_input_tokens=value[1], max_total_tokens=value[2])
    if name.endswith("_parser"):
        return ChosenParser(name=value, reason="asked")
    return named[value] if named else value
