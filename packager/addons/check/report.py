"""Report of `packager check`, as text lines and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packager.addons.check.values import Checked, CheckReport, Remark
from packager.core.text import escape

SEVERITIES = ("error", "warning", "note")


def check_lines(report: CheckReport) -> list[str]:
    """Write each finding behind its place, as compilers do, with its hint below."""
    lines: list[str] = []
    for remark in report.remarks:
        place, found = remark.place, remark.finding
        where = f"{escape(place.file)}:{place.line}:{place.column}"
        lines.append(f"{where}: {found.severity} {found.code} {escape(found.message)}")
        if found.hint:
            lines.append(f"    hint: {escape(found.hint)}")
    return lines


def summary_lines(report: CheckReport) -> list[str]:
    """Write what was checked for which engine, and how much was found."""
    lines = [f"checked {_title(one)}" for one in report.checked if one.target is not None]
    counts = [_counted(report.count(severity), severity) for severity in SEVERITIES]
    summary = ", ".join(count for count in counts if count)
    return [*lines, f"found {summary}" if summary else "found nothing to complain of"]


def check_document(report: CheckReport) -> dict[str, Any]:
    """Return the report for programs: what was checked, and every finding with its place."""
    return {
        "checked": [_server(one) for one in report.checked],
        "findings": [finding_document(remark) for remark in report.remarks],
        "counts": {severity: report.count(severity) for severity in SEVERITIES},
        "files": [{"file": file, "kind": kind} for file, kind in report.kinds.items()],
    }


def finding_document(remark: Remark) -> Mapping[str, Any]:
    """Return one finding with its place."""
    place, found = remark.place, remark.finding
    return {
        "file": place.file,
        "line": place.line,
        "column": place.column,
        "severity": found.severity,
        "code": found.code,
        "message": found.message,
        "hint": found.hint,
    }


def _server(one: Checked) -> dict[str, Any]:
    place, target = one.server.place, one.target
    document: dict[str, Any] = {
        "file": place.file,
        "line": place.line,
        "server": one.server.name,
        "image": one.server.image,
        "engine": None,
    }
    if target is not None:
        document["engine"] = {
            "family": target.family,
            "version": target.version,
            "release": str(target.release or ""),
            "known_by": target.said_by,
        }
    return document


def _title(one: Checked) -> str:
    assert one.target is not None
    name = f" ({one.server.name})" if one.server.name else ""
    target = one.target
    return escape(f"{one.server.place.file}{name} as {target.title}, from {target.said_by}")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}" if count else ""
