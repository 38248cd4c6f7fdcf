"""Media types of manifests, as answers and documents state them."""

from __future__ import annotations

from packager.core import documents
from packager.core.image import MEDIA_INDEX, MEDIA_MANIFEST
from packager.images.oci import INDEX_TYPES, LONGEST_DOCUMENT, MANIFEST_TYPES
from packager.images.registry.transport import Response

TYPES = (*MANIFEST_TYPES, *INDEX_TYPES)


def media_type(answer: Response) -> str:
    """Return the media type that an answer states, without parameters."""
    return answer.headers.get("Content-Type", "").partition(";")[0].strip()


def manifest_type(answer: Response, data: bytes) -> str:
    """Return the media type of a manifest: its own where the header names none of a manifest.

    Servers of files say text/plain or application/octet-stream (containers/image, GuessMIMEType).
    """
    stated = media_type(answer)
    if stated in TYPES:
        return stated
    try:
        document = documents.parse_object(data, max_bytes=LONGEST_DOCUMENT)
    except documents.NotStrict:
        return stated
    own = document.get("mediaType")
    if isinstance(own, str) and own in TYPES:
        return own
    return (
        MEDIA_INDEX
        if "manifests" in document
        else MEDIA_MANIFEST
        if "layers" in document
        else stated
    )
