"""An SBOM in CycloneDX as SPDX 2.3: a view, which is kept nowhere.

Licences that SPDX does not list are named by `LicenseRef-…`, with what is known of their text.
Source: spdx.github.io/spdx-spec/v2.3 (2026-11).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from packager.images.sbom.licences import is_spdx_id

_NAMESPACE = "https://packager.dev/spdx/"
_UNKNOWN = "NOASSERTION"
_PURPOSES = {
    "application": "APPLICATION", "container": "CONTAINER", "file": "FILE", "library": "LIBRARY",
    "operating-system": "OPERATING-SYSTEM",
}  # fmt: skip
_CREATED = "1970-01-01T00:00:00Z"  # SPDX wants a time; equal images have equal documents


def spdx_document(cyclonedx: bytes, document: Mapping[str, Any]) -> bytes:
    """Return the view of a CycloneDX document, which is also given parsed."""
    digest = hashlib.sha256(cyclonedx).hexdigest()
    subject = document["metadata"]["component"]
    licences: dict[str, dict[str, Any]] = {}
    packages, relations = [], []
    described = "SPDXRef-DOCUMENT"
    for component, parent in _walk(document):
        package = _package(component, licences)
        packages.append(package)
        kind = "CONTAINS" if parent else "DESCRIBES"
        if component.get("scope") == "excluded":
            kind = "OTHER"
        relations.append(
            {
                "spdxElementId": _id(parent) if parent else described,
                "relationshipType": kind,
                "relatedSpdxElement": package["SPDXID"],
            }
        )
    tool = document["metadata"]["tools"]["components"][0]
    found = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": described,
        "name": subject["name"],
        "documentNamespace": f"{_NAMESPACE}{digest}",
        "creationInfo": {
            "created": _CREATED,
            "creators": [f"Tool: {tool['name']}-{tool.get('version', '')}"],
        },
        "packages": packages,
        "relationships": relations,
    }
    if licences:
        found["hasExtractedLicensingInfos"] = [licences[name] for name in sorted(licences)]
    return (json.dumps(found, ensure_ascii=False, indent=1) + "\n").encode()


def _walk(document: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield each component with the ref of what contains it; the subject first."""
    subject = document["metadata"]["component"]
    yield subject, ""
    waiting = [(one, subject["bom-ref"]) for one in reversed(document.get("components", ()))]
    while waiting:
        one, parent = waiting.pop()
        yield one, parent
        waiting += [(below, one["bom-ref"]) for below in reversed(one.get("components", ()))]


def _package(one: Mapping[str, Any], licences: dict[str, dict[str, Any]]) -> dict[str, Any]:
    name = f"{one['group']}/{one['name']}" if one.get("group") else one["name"]
    found: dict[str, Any] = {
        "SPDXID": _id(one["bom-ref"]),
        "name": name,
        "downloadLocation": _UNKNOWN,
        "filesAnalyzed": False,
        "licenseConcluded": _UNKNOWN,
        "licenseDeclared": _declared(one, licences),
        "copyrightText": _UNKNOWN,
        "supplier": f"Organization: {one['group']}" if one.get("group") else _UNKNOWN,
        "primaryPackagePurpose": _PURPOSES.get(one["type"], "OTHER"),
    }
    if one.get("version"):
        found["versionInfo"] = one["version"]
    if one.get("hashes"):
        found["checksums"] = [
            {"algorithm": "SHA256", "checksumValue": hashed["content"]}
            for hashed in one["hashes"]
            if hashed["alg"] == "SHA-256"
        ]
    if one.get("purl"):
        found["externalRefs"] = [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": one["purl"],
            }
        ]
    return found


def _declared(one: Mapping[str, Any], licences: dict[str, dict[str, Any]]) -> str:
    stated = []
    for entry in one.get("licenses", ()):
        claim = entry.get("license") or {}
        if claim.get("id") and is_spdx_id(claim["id"]):
            stated.append(claim["id"])
            continue
        name = claim.get("id") or claim.get("name") or entry.get("expression") or "unnamed"
        known_as = f"LicenseRef-{_word(name)}"
        text = claim.get("url") or name
        info = {"licenseId": known_as, "name": name, "extractedText": text}
        licences[known_as] = info
        stated.append(known_as)
    return " AND ".join(dict.fromkeys(stated)) or _UNKNOWN


def _id(ref: str) -> str:
    """Return an identifier for a ref: SPDX takes letters, digits, dots and dashes only."""
    digest = hashlib.sha256(ref.encode()).hexdigest()[:12]
    return f"SPDXRef-{_word(ref)[:60]}-{digest}"


def _word(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "-", text).strip("-") or "x"
