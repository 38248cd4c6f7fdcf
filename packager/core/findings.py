"""Findings of checks: severity, stable code, message and hint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

# Names of `data` that decisions read.
LACKS = "lacks"  # of an error that more devices cure: `memory`, or a `split` that divides
MEMORY, SPLIT = "memory", "split"
NEEDED_BYTES, USABLE_BYTES = "needed_bytes", "usable_bytes"  # of one device
VARIABLE = "variable"  # of an environment

FILES_LEFT_OUT = "files-left-out"  # the code of notes that a build prints, too

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One observation about a plan. `error` means the plan must not be built."""

    severity: Severity
    code: str  # kebab-case, stable: documentation and scripts refer to it
    message: str
    hint: str = ""
    # The message's values for code and scripts: sizes in bytes, names as the user wrote them. #
    # Code never parses the message.
    data: Mapping[str, int | float | str] = field(
        default_factory=lambda: MappingProxyType({}), compare=False
    )


def finding_document(finding: Finding) -> dict[str, object]:
    """Return a finding for JSON; `data` only where there is some."""
    document: dict[str, object] = {
        "severity": finding.severity,
        "code": finding.code,
        "message": finding.message,
        "hint": finding.hint,
    }
    return document | ({"data": dict(finding.data)} if finding.data else {})


def errors_in(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings that forbid a build."""
    return tuple(finding for finding in findings if finding.severity == "error")
