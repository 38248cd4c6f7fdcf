"""What is attached to an image about its making, or lies beside a tree: read, checked, told.

Anyone with push access may attach one: unsigned, it is a claim.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from packager.core.documents import NotStrict, parse_object
from packager.core.errors import NotFound, ProtocolFailed
from packager.core.files.user_files import read_user_file
from packager.core.reports.report import Column, Pair, Pairs, Report, Row, Section, Table
from packager.images.attached import MAX_BYTES, document_of
from packager.images.opened import OpenImage
from packager.images.sbom.cyclonedx import MEDIA_CYCLONEDX
from packager.images.signatures.statements import MEDIA_IN_TOTO, SLSA

BESIDE = "sbom.cdx.json"  # behind the name of a tree's directory
_AGAIN = "build it again: every build attaches one"


def attached_sbom(found: OpenImage) -> bytes | None:
    """Return the SBOM at an image that describes this very image; None without one."""
    for artifact in found.attached(MEDIA_CYCLONEDX):
        document = document_of(artifact, MEDIA_CYCLONEDX)
        if document is None:
            continue
        try:
            subject = parse_sbom(document, "")["metadata"]["component"]
        except ProtocolFailed:
            continue
        if subject.get("version") == found.image.digest:
            return document
    return None


def attached_provenance(found: OpenImage) -> bytes | None:
    """Return the provenance at an image that is about this very image; None without one."""
    for artifact in found.attached(MEDIA_IN_TOTO):
        document = document_of(artifact, MEDIA_IN_TOTO)
        with suppress(NotStrict, ProtocolFailed):
            parsed = parse_object(document or b"", max_bytes=MAX_BYTES)
            digests = [one.get("digest") for one in _listed(parsed, "subject")]
            wanted = {"sha256": found.image.digest.removeprefix("sha256:")}
            if parsed.get("predicateType") == SLSA and wanted in digests:
                return document
    return None


def find_sbom(found: OpenImage) -> bytes:
    """Return the SBOM at an image; raise `NotFound` without one."""
    document = attached_sbom(found)
    if document is None:
        raise NotFound(f"{found.image.reference!r} has no SBOM of its own attached", hint=_AGAIN)
    return document


def sbom_beside(directory: Path) -> bytes:
    """Return the SBOM beside a tree of files; raise `NotFound` without one."""
    place = directory.with_name(f"{directory.name}.{BESIDE}")
    if not place.is_file():
        raise NotFound(f"there is no {str(place)!r}", hint=_AGAIN)
    return read_user_file(place, what="the SBOM", hint=_AGAIN, max_bytes=MAX_BYTES)


def parse_sbom(document: bytes, name: str) -> Mapping[str, Any]:
    """Parse an SBOM in CycloneDX as far as views need it; raise `ProtocolFailed`."""
    try:
        parsed = parse_object(document, max_bytes=MAX_BYTES)
        if parsed.get("bomFormat") != "CycloneDX":
            raise NotStrict("it is not CycloneDX")
        metadata = parsed.get("metadata")
        if not isinstance(metadata, dict) or not isinstance(metadata.get("component"), dict):
            raise NotStrict("it says not what it is about")
        tools = metadata.get("tools")
        if not isinstance(tools, dict) or not _are_named(tools.get("components")):
            raise NotStrict("it says not who made it")
        _check(metadata["component"])
        for one in _listed(parsed, "components"):
            _check(one)
        return parsed
    except (NotStrict, RecursionError) as error:
        raise ProtocolFailed(
            f"the SBOM of {name!r} cannot be used: {error}", hint=_AGAIN
        ) from error


def sbom_report(document: Mapping[str, Any], name: str) -> Report:
    """Return the parts of an image, of packages their number alone."""
    rows = []
    for one in document.get("components", ()):
        below = len(list(_below(one)))
        hashes = one.get("hashes") or [{}]
        rows.append(
            (
                one["bom-ref"],
                f"{one.get('group', '')}/{one['name']}".lstrip("/"),
                str(one.get("version") or str(hashes[0].get("content", "")))[:19],
                _license_words(one),
                str(below) if below else "",
            )
        )
    names = ("part", "name", "version", "licence", "files")
    table = Table(
        columns=tuple(Column(label, is_number=label == "files") for label in names),
        rows=tuple(Row(cells) for cells in rows),
    )
    lacking = ", ".join(incomplete_parts(document)) or "nothing"
    pairs = Pairs((Pair("image", name), Pair("incomplete", lacking)))
    return Report(title="SBOM", sections=(Section(parts=(pairs, table)),))


def sbom_line(document: Mapping[str, Any]) -> str:
    """Return an attached SBOM in one line."""
    count = sum(1 + len(list(_below(one))) for one in document.get("components", ()))
    lacking = ", ".join(one for one in incomplete_parts(document) if one != "image")
    return f"an SBOM, unproven: {count} parts" + (f"; incomplete: {lacking}" if lacking else "")


def incomplete_parts(document: Mapping[str, Any]) -> list[str]:
    """Return the refs of parts of which not all is listed."""
    return [
        str(ref)
        for one in _listed(document, "compositions")
        if one.get("aggregate") != "complete"
        for ref in one.get("assemblies") or ()
    ]


def _license_words(one: Mapping[str, Any]) -> str:
    claims = [entry.get("license") or {} for entry in one.get("licenses", ())]
    found = [str(claim.get("id") or claim.get("name") or "") for claim in claims]
    is_said = one["type"] in ("machine-learning-model", "library", "operating-system")
    return ", ".join(filter(None, found)) or ("nobody says" if is_said else "")


def _below(one: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for part in one.get("components", ()):
        yield part
        yield from _below(part)


def _check(component: Any) -> None:
    """Refuse a component whose fields have other types than views rely on."""
    waiting = [component]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, dict):
            raise NotStrict("a component of it is none")
        for name in ("type", "bom-ref", "name"):
            if not isinstance(one.get(name), str):
                raise NotStrict(f"a component of it has no {name}")
        for name in ("group", "version", "purl", "scope"):
            if not isinstance(one.get(name, ""), str):
                raise NotStrict(f"the {name} of a component is no text")
        for entry in _listed(one, "licenses"):
            claim = entry.get("license", {})
            if not isinstance(claim, dict) or not all(
                isinstance(value, str) for value in claim.values()
            ):
                raise NotStrict("the licence of a component is none")
        for entry in _listed(one, "hashes"):
            if not isinstance(entry.get("alg"), str) or not isinstance(entry.get("content"), str):
                raise NotStrict("the digest of a component is none")
        waiting += _listed(one, "components")


def _listed(document: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    listed = document.get(name, [])
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise NotStrict(f"{name} of it is no list of objects")
    return listed


def _are_named(tools: object) -> bool:
    if not isinstance(tools, list) or not tools or not isinstance(tools[0], dict):
        return False
    return isinstance(tools[0].get("name"), str)
