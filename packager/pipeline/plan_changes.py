"""What changed from one plan to another: the decisions, and what they cost.

Both are documents of `packager plan --format json`, of this version or an earlier one; a field that
one of them lacks is a change from or to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packager.core.errors import UsageError
from packager.core.files.user_files import read_table
from packager.core.reports.report import Report, Section, Words, one_section, plain_table
from packager.core.units import decimal, gib

_HINT = "write both with `packager plan … --format json > FILE`"
# what a row is called → where it stands in the document
_ROWS = {
    "model": ("model", "name"),
    "revision": ("model", "revision"),
    "weights": ("profile", "weight_bytes"),
    "instance": ("instance", "name"),
    "price an hour, USD": ("instance", "price_usd_hour"),
    "container": ("container", "version"),
    "engine": ("container", "engine_version"),
    "served name": ("served_name",),
    "precision": ("precision",),
    "quantization": ("quantization", "method"),
    "draft": ("draft", "kind"),
    "split": ("split", "words"),
    "copies": ("capacity", "copies"),
    "requests at once": ("shape", "max_batch"),
    "prompt tokens": ("shape", "max_input_tokens"),
    "tokens": ("shape", "max_total_tokens"),
    "KV cache type": ("kv_dtype",),
    "memory needed per device": ("memory_per_device", "needed_bytes"),
    "requests that the cache holds": ("capacity", "typical_requests"),
    "month, USD": ("predicted", "monthly", "usd"),
}
_BYTES = frozenset(("weights", "memory needed per device"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChange:
    """One row that differs. None: the plan does not have it."""

    what: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanComparison:
    """From one plan to another."""

    changes: tuple[PlanChange, ...]
    new_findings: tuple[Mapping[str, Any], ...]
    gone_findings: tuple[Mapping[str, Any], ...]

    @property
    def same(self) -> bool:
        """Whether nothing of what is compared differs."""
        return not (self.changes or self.new_findings or self.gone_findings)


def is_plan(name: str) -> bool:
    """Return whether a name on the command line is a file of JSON, and so a plan."""
    return name.endswith(".json") and Path(name).is_file()


def read_plan(name: str) -> Mapping[str, Any]:
    """Read a plan's document; raise `UsageError` for another file."""
    document = read_table(Path(name), what="plan", hint=_HINT)
    if not {"model", "instance", "findings"} <= document.keys():
        raise UsageError(f"{name!r} is no plan", hint=_HINT)
    return document


def compare_plans(before: Mapping[str, Any], after: Mapping[str, Any]) -> PlanComparison:
    """Compare two plans' documents."""
    old, new = ({_key(one): one for one in plan["findings"]} for plan in (before, after))
    return PlanComparison(
        changes=tuple(
            PlanChange(what=what, before=one, after=other)
            for what, path in _ROWS.items()
            if (one := _at(before, path)) != (other := _at(after, path))
        ),
        new_findings=tuple(one for key, one in new.items() if key not in old),
        gone_findings=tuple(one for key, one in old.items() if key not in new),
    )


def changes_document(found: PlanComparison) -> dict[str, Any]:
    """Return the comparison as JSON: numbers as in the plans, bytes as bytes."""
    return {
        "same": found.same,
        "changes": [
            {"what": one.what, "before": one.before, "after": one.after} for one in found.changes
        ],
        "new_findings": list(found.new_findings),
        "gone_findings": list(found.gone_findings),
    }


def changes_report(found: PlanComparison, title: str) -> Report:
    """Return the comparison as a report; notes are left out, as each plan words them anew."""
    if found.same:
        return one_section(title, Words("the plans decide the same", is_soft=False))
    rows = [
        (one.what, _value(one.what, one.before), _value(one.what, one.after))
        for one in found.changes
    ]
    sections = [
        Section(key="plan", title="Plan", parts=(plain_table(("", "before", "after"), rows),))
    ] * bool(rows)
    for heading, findings in (("new", found.new_findings), ("gone", found.gone_findings)):
        shown = tuple(
            Words(f"{heading}: {one['severity']} {one['code']}: {one['message']}", is_soft=False)
            for one in findings
            if one["severity"] != "note"
        )
        if shown:
            sections.append(Section(key=heading, title=f"Findings: {heading}", parts=shown))
    return Report(kind="Plans compared", title=title, sections=tuple(sections))


def _key(finding: Mapping[str, Any]) -> tuple[Any, ...]:
    return finding.get("severity"), finding.get("code"), finding.get("message")


def _at(document: Any, path: Sequence[str]) -> Any:
    for name in path:
        document = document.get(name) if isinstance(document, Mapping) else None
    return None if document == "" else document


def _value(what: str, value: Any) -> str:
    if value is None:
        return "-"
    if what in _BYTES:
        return gib(value) if what.startswith("memory") else decimal(value)
    return f"{value:,.2f}" if isinstance(value, float) else str(value)
