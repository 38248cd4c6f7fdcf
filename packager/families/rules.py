"""Rules across the options of an engine: what its start-up checks refuse, drop or change.

A parser judges one option at a time; the engine then looks at several together, and at the
model and the device.  `data/engines/rules/ENGINE.toml` has one row a check, with the versions
that make it and the source where it was read; docs/adding-a-family.md has the vocabulary.

A rule holds only on what is known: a condition on an option that was not given, or on a fact that
nobody has, does not hold unless the row says what the engine assumes.  So the same rows judge a
plan, and a configuration file without a model.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, Literal, get_args

from packager.core.documents import NotStrict, parse_json
from packager.core.findings import Finding, Severity
from packager.core.instance import Instance
from packager.core.model import ModelProfile
from packager.core.plan import Plan
from packager.core.versions import version_key
from packager.families.schema import ENGINES, Option
from packager.planning.numbers import UNLIMITED

TABLES = ENGINES / "rules"

Scalar = str | int | float | bool
Facts = Mapping[str, Scalar]  # of FACTS; what is not known is left out
NO_FACTS: Facts = MappingProxyType({})
NO_OPTIONS: Mapping[str, Option] = MappingProxyType({})
NO_NAMES: Mapping[str, str] = MappingProxyType({})

FACTS = frozenset(
    {
        # of the model
        *("architecture", "model_type", "heads", "kv_heads", "head_dim", "layers", "vocab_size"),
        *("max_positions", "experts", "attention", "has_states", "has_tower", "model_dtype"),
        "quantization",  # method of the checkpoint that is served; "" for whole weights
        # of the machine
        *("device", "devices", "compute_capability"),
    }
)

Op = Literal[
    "given", "is", "isnt", "below", "above", "at_most", "at_least", "divisible_by",
    "indivisible_by", "starts", "contains", "type", "keys_beyond",
]  # fmt: skip
OPS = frozenset(get_args(Op))
ROW = frozenset(
    {"since", "before", "when", "severity", "code", "message", "hint", "source", "date"}
)
REQUIRED = ROW - {"since", "before", "hint"}
LIMIT = frozenset({"since", "before", "when", "of", "source", "date"})
BOUND = re.compile(r"(>=|<=|>|<)(-?\d+(?:\.\d+)?)", re.ASCII)
BEYOND: Mapping[str, Op] = {">=": "below", "<=": "above", ">": "at_most", "<": "at_least"}
IN_WORDS = {">=": "{} or more", "<=": "at most {}", ">": "more than {}", "<": "less than {}"}
REFERENCE = frozenset({"option", "field", "fact", "default", "plus"})
TYPES: Mapping[str, tuple[type, ...]] = {
    "text": (str,),
    "number": (int, float),
    "bool": (bool,),
    "list": (list,),
    "object": (dict,),
}

LONGEST_VALUE = 60  # characters of a value in a message
PLACEHOLDER = re.compile(r"\[([^\]]+)\]|\{([^}]+)\}")
HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])i?", re.ASCII)
UNITS = {
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "K": 2**10,
    "M": 2**20,
    "G": 2**30,
    "T": 2**40,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A value that a rule looks at: of an option, of a field of its JSON, or a fact."""

    option: str = ""
    path: tuple[str, ...] = ()  # into the option's JSON
    fact: str = ""
    default: Operand | None = None  # what the engine assumes where the option is not given
    plus: int = 0  # added to a number

    @property
    def name(self) -> str:
        """Return how a message refers to it."""
        name = ".".join((self.option, *self.path)) if self.option else f"fact:{self.fact}"
        return f"{name}+{self.plus}" if self.plus else name


Operand = Scalar | Reference | tuple["Operand", ...]  # several: their product


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """One comparison. It does not hold where either side is not known."""

    __test__ = False  # no case for pytest

    subject: Operand
    op: Op
    wanted: Operand


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Holds where one of its conditions does."""

    conditions: tuple[Condition, ...]


Condition = Test | AnyOf


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One check of an engine: what must hold, and what it does then."""

    when: tuple[Condition, ...]
    severity: Severity
    code: str
    message: str
    hint: str = ""
    since: str = ""  # the first version that checks; "": every one
    before: str = ""  # the first version that no longer does
    source: str
    date: str
    needs: frozenset[str] = field(default=frozenset(), compare=False)  # options without which
    # it cannot hold
    references: Mapping[str, Reference] = field(default_factory=dict, compare=False)

    def is_of(self, version: str) -> bool:
        """Check that a version makes this check; what is no version counts as the newest."""
        key = version_key(version)
        since, before = version_key(self.since), version_key(self.before)
        if key is None:
            return before is None
        return (since is None or key >= since) and (before is None or key < before)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """What the rules are asked about."""

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

    `settings` are by the names of the rules, `spelled` says how messages write them where that
    differs.  `options` tell sizes (`8k`, `auto`) from numbers.
    """
    case = _Case(settings=settings, facts=facts, options=options)
    for rule in rules_of(engine, version):
        if rule.needs <= settings.keys() and all(_holds(one, case) for one in rule.when):
            words = _Words(who=who, version=version, rule=rule, case=case, spelled=spelled)
            yield Finding(rule.severity, rule.code, words.fill(rule.message), words.fill(rule.hint))


def plan_facts(plan: Plan) -> Facts:
    """Return what a plan knows beyond the settings that are rendered from it."""
    facts = {**model_facts(plan.profile), **device_facts(plan.instance)}
    if plan.quantization is not None and not plan.quantization.existing:
        facts["quantization"] = plan.quantization.checkpoint_format  # "": as the weights are read
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
        "has_states": profile.state_bytes > 0,
        "has_tower": profile.tower_bytes > 0,
        "model_dtype": profile.dtype,
        "quantization": profile.quantization,
    }


def device_facts(instance: Instance) -> Facts:
    """Return what rules may ask of a machine."""
    found: dict[str, Scalar] = {"device": instance.kind, "devices": instance.devices}
    if instance.compute_capability is not None:
        found["compute_capability"] = instance.compute_capability
    return found


@lru_cache(maxsize=256)
def rules_of(engine: str, version: str) -> tuple[Rule, ...]:
    """List the checks that a version of an engine makes."""
    return tuple(rule for rule in rules(engine) if rule.is_of(version))


@cache
def rules(engine: str) -> tuple[Rule, ...]:
    """List every rule of an engine, in the table's order; none where nobody wrote a table."""
    path = TABLES / f"{engine}.toml"
    if not path.is_file():
        return ()
    table = tomllib.loads(path.read_text("utf-8"))
    _refuse_strangers(table, frozenset({"rule", "limit", "since"}), "a table of rules")
    first = {"since": table["since"]} if "since" in table else {}  # of the versions that were read
    limits = (rule for row in table.get("limit", ()) for rule in read_limit(first | row))
    return (*limits, *(read_rule(first | row) for row in table.get("rule", ())))


def engines_with_rules() -> tuple[str, ...]:
    """List the engines that have a table of rules."""
    return tuple(sorted(path.stem for path in TABLES.glob("*.toml")))


def read_rule(row: Mapping[str, Any]) -> Rule:
    """Read a row strictly: a key, test, fact or placeholder that is none raises `ValueError`."""
    _refuse_strangers(row, ROW, "a rule")
    if missing := REQUIRED - row.keys():
        raise ValueError(f"a rule lacks {', '.join(sorted(missing))}: {row}")
    for name in ("since", "before"):
        if row.get(name) and version_key(row[name]) is None:
            raise ValueError(f"{name} of a rule is no version: {row[name]!r}")
    if row["severity"] not in get_args(Severity):
        raise ValueError(f"a rule has severity {row['severity']!r}")
    if not row["when"] or not row["source"] or not row["date"]:
        raise ValueError(f"a rule lacks a condition, its source or its date: {row}")
    when = tuple(_condition(one) for one in row["when"])
    found = [one for condition in when for one in _references(condition)]
    found.sort(key=lambda one: one.default is not None)  # where two differ, the one that knows more
    references = {one.name: one for one in found}
    rule = Rule(
        **{key: value for key, value in row.items() if key != "when"},
        when=when,
        needs=frozenset().union(*(_needed(one) for one in when)),
        references=references,
    )
    for bracketed, braced in PLACEHOLDER.findall(f"{rule.message} {rule.hint}"):
        known = references.keys() | {"who", "version"} if braced else _names(references)
        if (braced or bracketed) not in known:
            raise ValueError(f"no condition has {braced or bracketed!r}: {rule.message}")
    return rule


def read_limit(row: Mapping[str, Any]) -> Iterator[Rule]:
    """Read a row of limits, one rule for each value: `of` gives `>0,<=1` for `option.field`."""
    _refuse_strangers(row, LIMIT, "a row of limits")
    for name, bounds in row["of"].items():
        found = [BOUND.fullmatch(bound) for bound in bounds.split(",")]
        pairs = [(match[1], float(match[2])) for match in found if match]
        if len(pairs) != len(found):
            raise ValueError(f"{bounds!r} limits nothing: {row}")
        option, _, path = name.partition(".")
        subject = {"option": option, **({"field": path} if path else {})}
        words = " and ".join(IN_WORDS[sign].format(f"{limit:g}") for sign, limit in pairs)
        beyond = [{**subject, BEYOND[sign]: limit} for sign, limit in pairs]
        yield read_rule(
            {key: value for key, value in row.items() if key not in {"of", "when"}}
            | {
                "when": [*row.get("when", ()), {"any": beyond}],
                "severity": "error",
                "code": "value-refused",
                "message": f"{{who}} refuses {{{name}}} for [{name}]",
                "hint": f"it takes {words}",
            }
        )


def _condition(row: Mapping[str, Any]) -> Condition:
    if "any" in row:
        _refuse_strangers(row, frozenset({"any"}), "a choice of conditions")
        if not row["any"]:
            raise ValueError(f"a choice has a condition at least: {row}")
        return AnyOf(tuple(_condition(one) for one in row["any"]))
    _refuse_strangers(row, REFERENCE | OPS | {"product"}, "a condition")
    ops = [key for key in row if key in OPS]
    if len(ops) != 1:
        raise ValueError(f"a condition has one test: {row}")
    (op,) = ops
    subject = (
        _operand(row["product"])
        if "product" in row
        else _reference({key: value for key, value in row.items() if key in REFERENCE})
    )
    if op == "given" and not (isinstance(subject, Reference) and subject.option):
        raise ValueError(f"only an option can be given: {row}")
    if op == "type" and row[op] not in TYPES:
        raise ValueError(f"there is no type {row[op]!r}: {row}")
    return Test(subject=subject, op=op, wanted=_operand(row[op]))  # type: ignore[arg-type]


def _operand(row: Any) -> Operand:
    if isinstance(row, list):
        return tuple(_operand(one) for one in row)
    return _reference(row) if isinstance(row, dict) else row


def _reference(row: Mapping[str, Any]) -> Reference:
    _refuse_strangers(row, REFERENCE, "a reference")
    if ("option" in row) == ("fact" in row):
        raise ValueError(f"a reference is of an option or of a fact: {row}")
    if "fact" in row and row["fact"] not in FACTS:
        raise ValueError(f"there is no fact {row['fact']!r}")
    return Reference(
        option=row.get("option", ""),
        path=tuple(row["field"].split(".")) if "field" in row else (),
        fact=row.get("fact", ""),
        default=_operand(row["default"]) if "default" in row else None,
        plus=row.get("plus", 0),
    )


def _refuse_strangers(row: Mapping[str, Any], known: frozenset[str], what: str) -> None:
    if strangers := row.keys() - known:
        raise ValueError(f"{what} has no {', '.join(sorted(strangers))}: {row}")


def _references(condition: Condition) -> Iterator[Reference]:
    """Walk through every value that a condition looks at."""
    if isinstance(condition, AnyOf):
        for one in condition.conditions:
            yield from _references(one)
        return
    yield from _references_in(condition.subject)
    yield from _references_in(condition.wanted)


def _references_in(operand: Operand | None) -> Iterator[Reference]:
    if isinstance(operand, tuple):
        for one in operand:
            yield from _references_in(one)
    elif isinstance(operand, Reference):
        yield operand
        yield from _references_in(operand.default)


def _names(references: Mapping[str, Reference]) -> set[str]:
    """List what a message may name: each option, and each field that a condition looks at."""
    named = {one.option for one in references.values() if one.option}
    return named | {name for name, one in references.items() if one.option}


def _needed(condition: Condition) -> frozenset[str]:
    """List the options that must be given for a condition to hold."""
    if isinstance(condition, AnyOf):
        return frozenset.intersection(*(_needed(one) for one in condition.conditions))
    if condition.op == "given":
        operands: tuple[Operand, ...] = _parts(condition.subject) if condition.wanted else ()
    elif condition.op in {"is", "isnt"}:  # of several values, each may lack an option
        operands = _parts(condition.subject)
    else:
        operands = (*_parts(condition.subject), *_parts(condition.wanted))
    return frozenset(
        one.option
        for one in operands
        if isinstance(one, Reference) and one.option and one.default is None
    )


def _parts(operand: Operand) -> tuple[Operand, ...]:
    return operand if isinstance(operand, tuple) else (operand,)


def _holds(condition: Condition, case: _Case) -> bool:
    if isinstance(condition, AnyOf):
        return any(_holds(one, case) for one in condition.conditions)
    subject, op, wanted = condition.subject, condition.op, condition.wanted
    if op == "given":
        assert isinstance(subject, Reference)
        return (_found(subject, case) is not None) is wanted
    value = _value(subject, case)
    if value is None:
        return False
    if op == "type":
        is_bool = isinstance(value, bool)
        return isinstance(value, TYPES[str(wanted)]) and (wanted == "bool") is is_bool
    if op in {"is", "isnt"}:
        is_one = any(_equal(value, _value(one, case)) for one in _parts(wanted))
        return is_one is (op == "is")
    if op == "contains":
        return isinstance(value, (str, list)) and any(str(one) in value for one in _parts(wanted))
    if op == "starts":
        return isinstance(value, str) and value.startswith(tuple(str(x) for x in _parts(wanted)))
    if op == "keys_beyond":
        return isinstance(value, dict) and not value.keys() <= {*map(str, _parts(wanted))}
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
    if not isinstance(operand, Reference):
        return operand
    found = _found(operand, case)
    if found is None and operand.default is not None:
        found = _value(operand.default, case)
    return found + operand.plus if operand.plus and _is_number(found) else found


def _found(reference: Reference, case: _Case) -> Any:
    """Return what was given, or is a fact; None where it was not, or cannot be read."""
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
        return None  # said where the option's type is checked


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """Fills the names and values of a case into a rule's message."""

    who: str
    version: str
    rule: Rule
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
