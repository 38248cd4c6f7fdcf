"""The tables of rules across options, read strictly: `data/engines/rules/ENGINE.toml`.

One row a check, with the versions that make it and the source where it was read.  `rules.py`
evaluates them.

    [[rule]]
    since = "0.14.0"      # first version that checks; left out: that of the table
    before = "0.27.0"     # first version that no longer does
    when = [
      { option = "max-num-batched-tokens", below = { option = "max-model-len" } },
      { option = "enable-chunked-prefill", is = false },
    ]
    severity = "error"    # refused at start, or without effect; warning: changed; note
    code = "options-conflict"
    message = "{who} refuses [max-num-batched-tokens] {max-num-batched-tokens} below …"
    hint = "raise [max-num-batched-tokens]"
    source = "config/scheduler.py verify_max_model_len, 0.14.0 to 0.26.0, read"
    date = "2026-11-22"

- All conditions must hold; `{ any = [...] }` holds where one of its own does.  A subject is an
  `option` (`field = "a.b"` inside its JSON), a `fact` (`FACTS` in `rules.py`) or a
  `product = [...]`; `default` is what the engine assumes; `plus` is added.
- Tests: `given`, `is`, `isnt`, `below`, `above`, `at_most`, `at_least`, `divisible_by`,
  `indivisible_by`, `starts`, `contains`, `type`, `keys_beyond`.  What is not known fulfils none.
- A `[[limit]]` bounds numbers: `of = { "option.field" = ">0,<=1" }`.
- In messages `[name]` is the option as the family spells it, `{name}` its value, `{fact:heads}` a
  fact, `{who}` and `{version}` the engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, Literal, get_args

from packager.core.findings import Severity
from packager.core.share import read_shipped
from packager.core.versions import is_within, version_key
from packager.engines.schema import ENGINES

TABLES = ENGINES / "rules"

Scalar = str | int | float | bool

FACTS = frozenset(
    {
        # of the model
        *("architecture", "model_type", "heads", "kv_heads", "head_dim", "layers", "vocab_size"),
        *("max_positions", "experts", "attention", "has_states", "has_tower", "model_dtype"),
        "attention_kind",  # `mla-sparse` where an index chooses among latents
        "weight_format",  # in the words of `Instance.formats`
        "quantization",  # method of the checkpoint that is served; "" for whole weights
        "planned",  # true: absolute paths in options were compared with what the image holds
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

PLACEHOLDER = re.compile(r"\[([^\]]+)\]|\{([^}]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleReference:
    """A value that a rule looks at: of an option, of a field of its JSON, or a fact."""

    option: str = ""
    path: tuple[str, ...] = ()  # into the option's JSON
    fact: str = ""
    default: Operand | None = None  # the engine's default of the option
    plus: int = 0  # added to a number

    @property
    def name(self) -> str:
        """Return how a message refers to it."""
        name = ".".join((self.option, *self.path)) if self.option else f"fact:{self.fact}"
        return f"{name}+{self.plus}" if self.plus else name


Operand = Scalar | RuleReference | tuple["Operand", ...]  # several: their product


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
class EngineRule:
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
    references: Mapping[str, RuleReference] = field(default_factory=dict, compare=False)

    def is_of(self, version: str) -> bool:
        """Return whether a version makes this check; an unknown version counts as the newest."""
        return is_within(version, self.since, self.before)


@lru_cache(maxsize=256)
def rules_of(engine: str, version: str) -> tuple[EngineRule, ...]:
    """List the checks that a version of an engine makes."""
    return tuple(rule for rule in rules(engine) if rule.is_of(version))


@cache
def rules(engine: str) -> tuple[EngineRule, ...]:
    """List every rule of an engine, in the table's order; empty if it has no table."""
    path = TABLES / f"{engine}.toml"
    if not path.is_file():
        return ()
    table = read_shipped(path)
    _refuse_strangers(table, frozenset({"rule", "limit", "since"}), "a table of rules")
    first = {"since": table["since"]} if "since" in table else {}  # of the versions that were read
    limits = (rule for row in table.get("limit", ()) for rule in read_limit(first | row))
    return (*limits, *(read_rule(first | row) for row in table.get("rule", ())))


def engines_with_rules() -> tuple[str, ...]:
    """List the engines that have a table of rules."""
    return tuple(sorted(path.stem for path in TABLES.glob("*.toml")))


def read_rule(row: Mapping[str, Any]) -> EngineRule:
    """Read a row strictly: a key, test, fact or placeholder that is none raises `ValueError`."""
    _refuse_strangers(row, ROW, "a rule")
    if missing := REQUIRED - row.keys():
        raise ValueError(f"a rule lacks {', '.join(sorted(missing))}: {row}")
    for name in ("since", "before"):
        if row.get(name) and version_key(row[name]) is None:
            raise ValueError(f"{name} of a rule is not a version: {row[name]!r}")
    if row["severity"] not in get_args(Severity):
        raise ValueError(f"a rule has severity {row['severity']!r}")
    if not row["when"] or not row["source"] or not row["date"]:
        raise ValueError(f"a rule lacks a condition, its source or its date: {row}")
    when = tuple(_condition(one) for one in row["when"])
    found = [one for condition in when for one in _references(condition)]
    found.sort(key=lambda one: one.default is not None)  # where two differ, the one that knows more
    references = {one.name: one for one in found}
    rule = EngineRule(
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


def read_limit(row: Mapping[str, Any]) -> Iterator[EngineRule]:
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
    if op == "given" and not (isinstance(subject, RuleReference) and subject.option):
        raise ValueError(f"only an option can be given: {row}")
    if op == "type" and row[op] not in TYPES:
        raise ValueError(f"there is no type {row[op]!r}: {row}")
    return Test(subject=subject, op=op, wanted=_operand(row[op]))  # type: ignore[arg-type]


def _operand(row: Any) -> Operand:
    if isinstance(row, list):
        return tuple(_operand(one) for one in row)
    return _reference(row) if isinstance(row, dict) else row


def _reference(row: Mapping[str, Any]) -> RuleReference:
    _refuse_strangers(row, REFERENCE, "a reference")
    if ("option" in row) == ("fact" in row):
        raise ValueError(f"a reference is of an option or of a fact: {row}")
    if "fact" in row and row["fact"] not in FACTS:
        raise ValueError(f"there is no fact {row['fact']!r}")
    return RuleReference(
        option=row.get("option", ""),
        path=tuple(row["field"].split(".")) if "field" in row else (),
        fact=row.get("fact", ""),
        default=_operand(row["default"]) if "default" in row else None,
        plus=row.get("plus", 0),
    )


def _refuse_strangers(row: Mapping[str, Any], known: frozenset[str], what: str) -> None:
    if strangers := row.keys() - known:
        raise ValueError(f"{what} has no {', '.join(sorted(strangers))}: {row}")


def _references(condition: Condition) -> Iterator[RuleReference]:
    """Walk through every value that a condition looks at."""
    if isinstance(condition, AnyOf):
        for one in condition.conditions:
            yield from _references(one)
        return
    yield from _references_in(condition.subject)
    yield from _references_in(condition.wanted)


def _references_in(operand: Operand | None) -> Iterator[RuleReference]:
    if isinstance(operand, tuple):
        for one in operand:
            yield from _references_in(one)
    elif isinstance(operand, RuleReference):
        yield operand
        yield from _references_in(operand.default)


def _names(references: Mapping[str, RuleReference]) -> set[str]:
    """List what a message may name: each option, and each field that a condition looks at."""
    named = {one.option for one in references.values() if one.option}
    return named | {name for name, one in references.items() if one.option}


def _needed(condition: Condition) -> frozenset[str]:
    """List the options that must be set for a condition to hold."""
    if isinstance(condition, AnyOf):
        return frozenset.intersection(*(_needed(one) for one in condition.conditions))
    if condition.op == "given":
        operands: tuple[Operand, ...] = parts_of(condition.subject) if condition.wanted else ()
    elif condition.op in {"is", "isnt"}:  # of several values, each may lack an option
        operands = parts_of(condition.subject)
    else:
        operands = (*parts_of(condition.subject), *parts_of(condition.wanted))
    return frozenset(
        one.option
        for one in operands
        if isinstance(one, RuleReference) and one.option and one.default is None
    )


def parts_of(operand: Operand) -> tuple[Operand, ...]:
    return operand if isinstance(operand, tuple) else (operand,)
