"""Rules across the options of an engine: what its start-up checks refuse, drop or change.

A parser judges one option at a time; the engine then looks at several together, and at the
model and the device.  `data/engines/rules/ENGINE.toml` has one row a check, with the versions
that make it and the source where it was read; `rule_tables.py` has the vocabulary.

A condition on an unset option or an unknown fact is false unless the row states the engine's
default.  So the same rows check a plan, and a configuration file without a model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from packager.core.documents import NotStrict, parse_json
from packager.core.findings import Finding
from packager.core.instance import Instance
from packager.core.model import ModelProfile
from packager.core.plan import Plan
from packager.engines.rule_tables import (
    PLACEHOLDER,
    TYPES,
    AnyOf,
    Condition,
    EngineRule,
    Op,
    Operand,
    RuleReference,
    Scalar,
    parts_of,
    rules_of,
)
from packager.engines.schema import UNITS, Option
from packager.models.architectures.numbers import UNLIMITED

Facts = Mapping[str, Scalar]  # of FACTS; what is not known is left out
NO_FACTS: Facts = MappingProxyType({})
NO_OPTIONS: Mapping[str, Option] = MappingProxyType({})
NO_NAMES: Mapping[str, str] = MappingProxyType({})

QUANTIZED = {"fp8": "fp8_w8a8"}  # precision of weights that are quantized here → their format

LONGEST_VALUE = 60  # characters of a value in a message

HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])i?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """Settings and plan that the rules are evaluated for."""

    settings: Mapping[str, str | bool]
    facts: Facts
    options: Mapping[str, Option]


def check_rules(
    who: str,
    engine: str,
    version: str,
    settings: Mapping[str, str | bool],
    *,
    facts: Facts = NO_FACTS,
    options: Mapping[str, Option] = NO_OPTIONS,
    spelled: Mapping[str, str] = NO_NAMES,
) -> Iterator[Finding]:
    """Find what this version of an engine refuses, drops or changes of settings taken together.

    `settings` use the names of the rules; `spelled` maps those that messages write differently.
    `options` tell sizes (`8k`, `auto`) from numbers.
    """
    case = _Case(settings=settings, facts=facts, options=options)
    for rule in rules_of(engine, version):
        if rule.needs <= settings.keys() and all(_holds(one, case) for one in rule.when):
            words = _Words(who=who, version=version, rule=rule, case=case, spelled=spelled)
            yield Finding(rule.severity, rule.code, words.fill(rule.message), words.fill(rule.hint))


def plan_facts(plan: Plan) -> Facts:
    """Return what a plan knows beyond the settings that are rendered from it."""
    facts = {**model_facts(plan.profile), **device_facts(plan.instance), "planned": True}
    if plan.quantization is not None and not plan.quantization.existing:
        facts["quantization"] = plan.quantization.checkpoint_format  # "": as the weights are read
        facts["weight_format"] = QUANTIZED.get(plan.precision, "")
    return facts


def model_facts(profile: ModelProfile) -> Facts:
    """Return what rules may ask of a model; the numbers of an unknown architecture are guesses."""
    if not profile.known:
        return {"architecture": profile.architecture, "quantization": profile.quantization}
    has_limit = 0 < profile.max_positions < UNLIMITED
    return {
        **({"max_positions": profile.max_positions} if has_limit else {}),
        "architecture": profile.architecture,
        "model_type": profile.model_type,
        "heads": profile.heads,
        "kv_heads": profile.kv_heads,
        "head_dim": profile.head_dim,
        "layers": profile.layers,
        "vocab_size": profile.vocab_size,
        "experts": profile.experts,
        "attention": profile.attention,
        "attention_kind": _attention_kind(profile),
        "has_states": profile.state_bytes > 0,
        "has_tower": profile.tower_bytes > 0,
        "model_dtype": profile.dtype,
        "quantization": profile.quantization,
        "weight_format": profile.weight_format,
    }


def _attention_kind(profile: ModelProfile) -> str:
    """Return whose kernels compute the attention: heads, mla, mla-sparse; "" where others do."""
    kinds = {group.kind for group in profile.kv_groups}
    has_index = any(group.kind == "mla" and group.entry_bytes for group in profile.kv_groups)
    if "compressed" in kinds or kinds == {"state"} or (has_index and profile.attention != "mla"):
        return ""
    return f"{profile.attention}-sparse" if has_index else profile.attention


def device_facts(instance: Instance) -> Facts:
    """Return what rules may ask of a machine."""
    found: dict[str, Scalar] = {"device": instance.kind, "devices": instance.devices}
    if instance.compute_capability is not None:
        found["compute_capability"] = instance.compute_capability
    return found


def _holds(condition: Condition, case: _Case) -> bool:
    if isinstance(condition, AnyOf):
        return any(_holds(one, case) for one in condition.conditions)
    subject, op, wanted = condition.subject, condition.op, condition.wanted
    if op == "given":
        assert isinstance(subject, RuleReference)
        return (_found(subject, case) is not None) is wanted
    value = _value(subject, case)
    if value is None:
        return False
    if op == "type":
        is_bool = isinstance(value, bool)
        return isinstance(value, TYPES[str(wanted)]) and (wanted == "bool") is is_bool
    if op in {"is", "isnt"}:
        is_one = any(_equal(value, _value(one, case)) for one in parts_of(wanted))
        return is_one is (op == "is")
    if op == "contains":
        return isinstance(value, (str, list)) and any(str(one) in value for one in parts_of(wanted))
    if op == "starts":
        return isinstance(value, str) and value.startswith(tuple(str(x) for x in parts_of(wanted)))
    if op == "keys_beyond":
        return isinstance(value, dict) and not value.keys() <= {*map(str, parts_of(wanted))}
    other = _value(wanted, case)
    return _is_number(value) and _is_number(other) and _compare(op, value, other)


def _compare(op: Op, value: Any, other: Any) -> bool:
    match op:
        case "below":
            return bool(value < other)
        case "above":
            return bool(value > other)
        case "at_most":
            return bool(value <= other)
        case "at_least":
            return bool(value >= other)
    divides = bool(other) and value % other == 0
    return divides is (op == "divisible_by")


def _equal(value: Any, other: Any) -> bool:
    """Compare without taking true for 1."""
    return isinstance(value, bool) is isinstance(other, bool) and bool(value == other)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _value(operand: Operand, case: _Case) -> Any:
    """Return a value as JSON has it; None where it is not known."""
    if isinstance(operand, tuple):
        product: float = 1
        for one in operand:
            factor = _value(one, case)
            if not _is_number(factor):
                return None
            product *= factor
        return product
    if not isinstance(operand, RuleReference):
        return operand
    found = _found(operand, case)
    if found is None and operand.default is not None:
        found = _value(operand.default, case)
    return found + operand.plus if operand.plus and _is_number(found) else found


def _found(reference: RuleReference, case: _Case) -> Any:
    """Return the setting or fact; None if it is missing or unreadable."""
    if reference.fact:
        return case.facts.get(reference.fact)
    given = case.settings.get(reference.option)
    if given is None or isinstance(given, bool):
        return None if reference.path else given
    option = case.options.get(reference.option)
    if not reference.path:
        return _read(given, option.type if option is not None else "")
    is_one_of_many = option is not None and option.many and not given.startswith("[")
    value = [given] if is_one_of_many else _read_json(given)
    for key in reference.path:
        if isinstance(value, dict):
            value = value.get(key)
        else:
            is_there = isinstance(value, list) and key.isdecimal() and int(key) < len(value)
            value = value[int(key)] if is_there else None
    return value


def _read(text: str, of_type: str) -> Any:
    """Read an option's text as the value that the engine makes of it."""
    if text in {"true", "false"}:
        return text == "true"
    if of_type == "size" and text in {"auto", "-1"}:
        return None  # the engine chooses
    try:
        return int(text)
    except ValueError:
        pass
    if human := HUMAN.fullmatch(text):
        return int(float(human[1]) * UNITS[human[2]])
    try:
        return float(text)
    except ValueError:
        found = _read_json(text) if text[:1] in {"{", "["} else None
        return text if found is None else found


@lru_cache(maxsize=256)  # several rules look into one option
def _read_json(text: str) -> Any:
    try:
        return parse_json(text.encode())
    except NotStrict:
        return None  # reported by the check of the option's type


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """Fills the names and values of a case into a rule's message."""

    who: str
    version: str
    rule: EngineRule
    case: _Case
    spelled: Mapping[str, str]

    def fill(self, text: str) -> str:
        return PLACEHOLDER.sub(self._word, text)

    def _word(self, found: re.Match[str]) -> str:
        if found[1]:
            option, dot, path = found[1].partition(".")
            return repr(f"{self.spelled.get(option, option)}{dot}{path}")
        if found[2] in {"who", "version"}:
            return self.who if found[2] == "who" else self.version
        value = _value(self.rule.references[found[2]], self.case)
        text = value if isinstance(value, str) else json.dumps(value)
        return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"
