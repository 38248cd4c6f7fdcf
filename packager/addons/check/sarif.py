"""Findings as SARIF 2.1.0, which code hosts show beside the lines of a change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from packager.addons.check.values import CheckReport, Remark
from packager.catalog.findings import FindingExplanation
from packager.core.positions import Place

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
LEVELS = {"error": "error", "warning": "warning", "note": "note"}


def sarif_document(
    report: CheckReport, explanations: Mapping[str, FindingExplanation], version: str
) -> dict[str, Any]:
    """Return one run with a rule for each code that was found, and its help."""
    codes = list(dict.fromkeys(remark.finding.code for remark in report.remarks))
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "packager",
                        "version": version,
                        "rules": [_rule(code, explanations.get(code)) for code in codes],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "artifacts": [{"location": {"uri": uri_of(file)}} for file in report.kinds],
                "results": [_result(remark, codes) for remark in report.remarks],
            }
        ],
    }


def uri_of(file: str) -> str:
    """Return a file's path as a URI: relative where the path is."""
    uri = quote(file.replace("\\", "/"), safe="/~.-_")
    return f"file://{uri}" if uri.startswith("/") else uri


def _rule(code: str, explained: FindingExplanation | None) -> dict[str, Any]:
    if explained is None:
        return {"id": code}
    rule: dict[str, Any] = {
        "id": code,
        "shortDescription": {"text": explained.title},
        "fullDescription": {"text": f"{explained.means} {explained.why}"},
        "help": {"text": explained.do},
    }
    if explained.link:
        rule["helpUri"] = explained.link
    return rule


def _result(remark: Remark, codes: list[str]) -> dict[str, Any]:
    found = remark.finding
    text = f"{found.message}; {found.hint}" if found.hint else found.message
    return {
        "ruleId": found.code,
        "ruleIndex": codes.index(found.code),
        "level": LEVELS[found.severity],
        "message": {"text": text},
        "locations": [_location(remark.place)],
    }


def _location(place: Place) -> dict[str, Any]:
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": uri_of(place.file)},
            "region": {"startLine": place.line, "startColumn": place.column},
        }
    }
