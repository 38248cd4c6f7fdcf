"""What a check has to say: a severity, a stable code, a message and a way out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One observation about a plan. `error` means the plan must not be built."""

    severity: Severity
    code: str  # kebab-case, stable: documentation and scripts refer to it
    message: str
    hint: str = ""


def errors_in(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Keep the findings that forbid a build."""
    return tuple(finding for finding in findings if finding.severity == "error")
