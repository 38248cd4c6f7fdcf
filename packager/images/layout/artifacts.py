"""What is attached to the images of a layout, as `index.json` names it.

What packager made and did not sign, such as the build record, is named by an annotation of the
image's entry alone: programs that take the one image of a layout (`skopeo copy oci:DIR`, syft)
refuse one with several entries.  Signatures and other people's artifacts get entries, as ORAS
reads them, and annotations that tell cosign what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from packager.core.errors import PackagerError, ProtocolFailed
from packager.core.files.atomic import read_regular
from packager.core.image import MEDIA_INDEX, MEDIA_MANIFEST, Attached
from packager.images.attached import (
    DEEPEST,
    MAX_ATTACHED,
    collect,
    is_made_here,
    longest_of,
    parse_artifact,
)
from packager.images.layout.blobs import WRITE_AGAIN
from packager.images.oci import is_digest, parse_manifest, sha256
from packager.images.signature_tags import merge_tagged, tagged_subject

REF_NAME = "org.opencontainers.image.ref.name"
ATTACHED = "dev.packager.attached"  # manifests of artifacts whose subject the image is
KIND = "kind"  # annotation by which cosign tells the entries of a layout apart
_COSIGN = "dev.cosignproject.cosign/"
_KINDS = {".sig": f"{_COSIGN}sigs", ".att": f"{_COSIGN}atts"}

Entry = dict[str, Any]
ReadBlob = Callable[[str, int], bytes]  # a digest, and how long it may be


def attached_to(entry: object) -> list[str]:
    """Return the manifests of artifacts that an entry of an index names, as far as they are."""
    annotations = entry.get("annotations") if isinstance(entry, dict) else None
    named = annotations.get(ATTACHED) if isinstance(annotations, dict) else None
    words = named.split() if isinstance(named, str) else []
    return [word for word in words if is_digest(word)]


def is_artifact(entry: Mapping[str, Any]) -> bool:
    """Whether an entry is of something attached, not of an image that a name refers to."""
    named = (entry.get("annotations") or {}).get(REF_NAME)
    return bool(tagged_subject(named)) if named else isinstance(entry.get("artifactType"), str)


def with_attached(
    entries: Sequence[Entry], image: str, artifacts: Sequence[Attached], read: ReadBlob
) -> tuple[list[Entry], list[bytes]]:
    """Return the entries of an index that names the artifacts, and the blobs that it needs."""
    found, blobs = [dict(entry) for entry in entries], []
    for artifact in artifacts:
        whole = _merged(found, artifact, read) if artifact.tag else artifact
        if whole is None:
            continue
        blobs += [*whole.blobs, whole.manifest]
        for entry in [one for one in found if one.get("digest") == image]:
            _name(entry, whole)
        if not is_made_here(whole):
            listed = _entry_of(whole)
            found = [one for one in found if not _is_same(one, listed)] + [listed]
    return found, blobs


def without_images(
    entries: Sequence[Entry], gone: set[str], read: ReadBlob
) -> tuple[list[Entry], list[Entry]]:
    """Return the entries that stay when images go, and those of what was attached to them."""
    kept, dropped = list(entries), list[Entry]()
    while following := [entry for entry in kept if _subject_of(entry, read) in gone]:
        kept = [entry for entry in kept if entry not in following]
        dropped += following
        gone = gone | {str(entry.get("digest")) for entry in following}
    return kept, dropped


def small_blob(path: Path, digest: str, most: int) -> bytes:
    """Read a document of a layout; raise `ProtocolFailed` for a damaged or missing one."""
    data = b""
    with suppress(OSError):
        data = read_regular(path, most)
    if sha256(data) != digest:
        raise ProtocolFailed(f"blob {str(path)!r} is damaged", hint=WRITE_AGAIN)
    return data


def read_attached(
    entries: Sequence[Mapping[str, Any]],
    image: Mapping[str, Any],
    subject: str,
    artifact_type: str,
    read: ReadBlob,
    on_warning: Callable[[str], None],
) -> Iterator[Attached]:
    """Yield what is attached to an image; warn of what cannot be read.

    Entries of artifacts of other images are passed over.
    """
    waiting = [*attached_to(image)]
    waiting += [str(one.get("digest")) for one in entries if is_artifact(one) and not _tag_of(one)]
    waiting = list(dict.fromkeys(filter(is_digest, waiting)))
    most, subjects = longest_of(artifact_type), {subject}
    for _ in range(DEEPEST):
        rest = []
        for digest in waiting:
            try:
                manifest = read(digest, most)
                parsed = parse_artifact(manifest)
                if parsed.subject not in subjects:
                    rest.append(digest)
                    continue
                if artifact_type in ("", parsed.artifact_type):
                    yield collect(manifest, parsed.subject, _fetcher(read, most), most=most)
                subjects.add(digest)
            except PackagerError as error:
                on_warning(f"attached artifact {digest} is left out: {error.message}")
        waiting = rest
    for entry in () if artifact_type else entries:
        tag = _tag_of(entry)
        if tagged_subject(tag) == subject:
            try:
                manifest = read(str(entry.get("digest")), most)
                yield collect(manifest, subject, _fetcher(read, most), tag=tag, most=most)
            except PackagerError as error:
                on_warning(f"attached artifact {tag} is left out: {error.message}")


def _fetcher(read: ReadBlob, most: int) -> Callable[[Any], bytes]:
    return lambda blob: read(blob.digest, most)


def _tag_of(entry: Mapping[str, Any]) -> str:
    """Return the signature tag of an entry; "" for any other."""
    named = (entry.get("annotations") or {}).get(REF_NAME)
    return str(named) if tagged_subject(named) else ""


def _subject_of(entry: Entry, read: ReadBlob) -> str:
    """Return the digest that an entry of an artifact is about; "" of an image."""
    if tag := _tag_of(entry):
        return tagged_subject(tag)
    if is_artifact(entry):
        with suppress(PackagerError):
            return parse_artifact(read(str(entry.get("digest")), longest_of(""))).subject
    return ""


def _merged(entries: Sequence[Entry], added: Attached, read: ReadBlob) -> Attached | None:
    """Return the artifact with other signers' layers that are here; None where it is here."""
    for entry in entries:
        if _tag_of(entry) == added.tag:
            with suppress(PackagerError):  # a damaged one is written anew
                there = read(str(entry["digest"]), longest_of(""))
                config = parse_manifest(added.tag, there).config
                return merge_tagged(there, read(config.digest, longest_of("")), added)
    return added


def _name(entry: Entry, artifact: Attached) -> None:
    """Note in an image's entry what is attached to it."""
    noted = dict(entry.get("annotations") or {})
    if is_made_here(artifact):
        named = [*attached_to(entry), sha256(artifact.manifest)]
        newest = list(dict.fromkeys(reversed(named)))[:MAX_ATTACHED]
        noted[ATTACHED] = " ".join(reversed(newest))
    else:
        image = "imageIndex" if entry.get("mediaType") == MEDIA_INDEX else "image"
        noted.setdefault(KIND, f"{_COSIGN}{image}")
    entry["annotations"] = noted


def _entry_of(artifact: Attached) -> Entry:
    entry: Entry = {
        "mediaType": MEDIA_MANIFEST,
        "digest": sha256(artifact.manifest),
        "size": len(artifact.manifest),
    }
    if artifact.tag:
        kind = _KINDS.get(artifact.tag[artifact.tag.rindex(".") :])
        entry["annotations"] = {REF_NAME: artifact.tag, **({KIND: kind} if kind else {})}
        return entry
    parsed = parse_artifact(artifact.manifest)
    texts = {name: text for name, text in parsed.annotations.items() if isinstance(text, str)}
    entry["artifactType"] = parsed.artifact_type
    return {**entry, "annotations": texts} if texts else entry


def _is_same(one: Entry, other: Entry) -> bool:
    """Whether an entry takes another's place: of one tag, or of one digest without a name."""
    if tag := _tag_of(other):
        return _tag_of(one) == tag
    return is_artifact(one) and not _tag_of(one) and one.get("digest") == other["digest"]
