"""Scanners' reports and the like as statements about an image: what a file says, with its date.

Nothing here compares packages with advisories: a report is its author's word, of its day.

Sources: openvex/spec, in-toto/attestation spec/predicates, sigstore/cosign COSIGN_VULN_ATTESTATION
(2026-11).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packager.core.errors import UsageError
from packager.images.signatures.statements import CYCLONEDX, statement

# As `cosign verify-attestation --type` names them.
REPORTS: Mapping[str, str] = {
    "vex": "https://openvex.dev/ns",
    "vuln": "https://cosign.sigstore.dev/attestation/vuln/v1",
    "cyclonedx": CYCLONEDX,
    "spdx": "https://spdx.dev/Document",
    "custom": "https://cosign.sigstore.dev/attestation/v1",
}


def report_statement(
    kind: str, report: Mapping[str, Any], digest: str, *, tool: str, date: str
) -> bytes:
    """Return the statement that a report makes about an image; raise `UsageError` for another kind.

    `kind` is a name of `REPORTS` or a URI. `date` is RFC 3339.
    """
    predicate_type = REPORTS.get(kind, kind)
    predicate: Mapping[str, Any] = report
    if kind == "vex" and not str(report.get("@context", "")).startswith(REPORTS["vex"]):
        raise _not(kind, "an OpenVEX document, whose @context is https://openvex.dev/ns")
    if kind == "cyclonedx" and report.get("bomFormat") != "CycloneDX":
        raise _not(kind, "a CycloneDX document")
    if kind == "spdx" and "spdxVersion" not in report:
        raise _not(kind, "an SPDX 2 document")
    if kind == "vuln" and not {"scanner", "metadata"} <= report.keys():
        predicate = {
            "invocation": {},
            "scanner": {"uri": tool, "version": "", "db": {}, "result": report},
            "metadata": {"scanStartedOn": date, "scanFinishedOn": date},
        }
    elif kind == "custom":
        predicate = {"Data": report, "Timestamp": date}
    return statement(predicate_type, predicate, [("", digest)])


def _not(kind: str, what: str) -> UsageError:
    return UsageError(
        f"the file is not {what}", hint=f"--type {kind} wants one; --type URI takes any JSON object"
    )
