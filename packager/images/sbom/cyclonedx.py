"""An SBOM as CycloneDX 1.6 in JSON.  Equal parts give equal bytes: no time, no random number.

Source: CycloneDX/specification, schema/bom-1.6.schema.json (2026-11).
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from packager.images.oci import canonical_json
from packager.images.sbom.components import Component, LicenseClaim, Sbom

MEDIA_CYCLONEDX = "application/vnd.cyclonedx+json"


def cyclonedx_document(sbom: Sbom) -> bytes:
    """Return the document, ending with a line break."""
    parts = sorted(sbom.components, key=lambda one: one.ref)
    document: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "lifecycles": [{"phase": "build"}],
            "tools": {
                "components": [{"type": "application", "name": "packager", "version": sbom.version}]
            },
            "component": _component(sbom.subject),
        },
        "components": [_component(one) for one in parts],
        "dependencies": _dependencies(sbom),
        "compositions": [
            {"aggregate": aggregate, "assemblies": sorted(refs)}
            for aggregate, refs in (("complete", sbom.complete), ("incomplete", sbom.incomplete))
            if refs
        ],
    }
    seed = hashlib.sha256(canonical_json(document)).hexdigest()
    serial = {"serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, seed)}"}
    head = {name: document.pop(name) for name in ("bomFormat", "specVersion")}
    return canonical_json({**head, **serial, **document}) + b"\n"


def _component(one: Component) -> dict[str, Any]:
    found: dict[str, Any] = {"type": one.type, "bom-ref": one.ref, "name": one.name}
    for name, value in (("group", one.group), ("version", one.version), ("purl", one.purl)):
        if value:
            found[name] = value
    if one.is_tool:
        found["scope"] = "excluded"
    if one.sha256:
        found["hashes"] = [{"alg": "SHA-256", "content": one.sha256}]
    if one.licenses:
        found["licenses"] = [{"license": _license(claim)} for claim in one.licenses]
    if one.components:
        nested = sorted(one.components, key=lambda part: part.ref)
        found["components"] = [_component(part) for part in nested]
    if one.ancestors or one.notes:
        pedigree: dict[str, Any] = {}
        if one.ancestors:
            pedigree["ancestors"] = [_component(part) for part in one.ancestors]
        if one.notes:
            pedigree["notes"] = one.notes
        found["pedigree"] = pedigree
    if one.type == "data":
        found["data"] = [{"type": "dataset", "name": one.name}]
    if one.model_card:
        found["modelCard"] = dict(one.model_card)
    if one.about:
        found["properties"] = [{"name": name, "value": value} for name, value in one.about]
    return found


def _license(claim: LicenseClaim) -> dict[str, str]:
    stated = {"id": claim.id} if claim.id else {"name": claim.name}
    return {**stated, **({"url": claim.url} if claim.url else {})}


def _dependencies(sbom: Sbom) -> list[dict[str, Any]]:
    served = [one.ref for one in sbom.components if not one.is_tool and one.type != "data"]
    found = [{"ref": sbom.subject.ref, "dependsOn": sorted(served)}]
    for one in sorted(_all(sbom.components), key=lambda part: part.ref):
        needs = {"dependsOn": sorted(one.needs)} if one.needs else {}
        if one.type != "file":
            found.append({"ref": one.ref, **needs})
    return found


def _all(components: Iterable[Component]) -> Iterator[Component]:
    for one in components:
        yield one
        yield from _all(one.components)
