"""Compatibility rules, read from `data/compatibility.toml`.

Ask with `matching(rules(), situation)`.  The situation's keys, what they mean
and how they are spelled are in `packager.core.catalog.SITUATION_KEYS`:

    target model architecture family variant release engine engine_version
    device device_name instance instance_family compute_capability neuron_core
    formats kernels quantize quantize_options scheme checkpoint_format existing
    source_quantization tool draft draft_version draft_heads speculative_tokens compile load_format
    dtype kv_dtype attention head_dim tp_degree pp_degree

Say "" for what there is none of and leave out what is not known.  Rules about
AWS's own optimization jobs only hold for `target="sagemaker-job"`.

A rule that cannot hold, because a key or a placeholder is misspelled, is a bug
in the table; the loader refuses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

from packager.core.catalog import SITUATION_KEYS, Rule, RuleValue, finding_of, matching
from packager.core.findings import Severity
from packager.core.share import read_shipped

__all__ = ["find_rule", "finding_of", "matching", "rules"]

TABLE = Path(__file__).parent / "data" / "compatibility.toml"


@cache
def rules() -> tuple[Rule, ...]:
    """List every rule, in the table's order."""
    table = read_shipped(TABLE)["rule"]
    found = tuple(_rule(row) for row in table)
    if len({rule.id for rule in found}) != len(found):
        raise ValueError("two rules have the same id")
    return found


def find_rule(code: str) -> Rule | None:
    """Find the rule behind a finding's code."""
    return next((rule for rule in rules() if rule.id == code), None)


def _rule(row: Mapping[str, Any]) -> Rule:
    rule = Rule(
        id=row["id"],
        severity=row["severity"],
        when=MappingProxyType({key: _value(value) for key, value in row["when"].items()}),
        reason=row["reason"],
        instead=row["instead"],
        link=row.get("link", ""),
        source=row["source"],
        date=row["date"],
    )
    strangers = set(rule.when) - set(SITUATION_KEYS)
    if strangers:
        raise ValueError(f"rule {rule.id!r} asks for {', '.join(sorted(strangers))}")
    if rule.severity not in get_args(Severity):
        raise ValueError(f"rule {rule.id!r} has severity {rule.severity!r}")
    finding_of(rule, {})  # a placeholder that is not a key fails here, not before a user
    return rule


def _value(value: Any) -> RuleValue:
    return tuple(value) if isinstance(value, list) else value
