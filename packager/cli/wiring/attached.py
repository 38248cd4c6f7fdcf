"""What a build attaches to an image, and keeps beside a tree: record, SBOM, signatures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from packager.cli.wiring.bases import base_packages
from packager.cli.wiring.outputs import attach_to_all, traits_of
from packager.cli.wiring.policies import stated_policy
from packager.cli.wiring.settings import Settings, digests_file
from packager.cli.wiring.signing import (
    sign_tree,
    signed,
    signed_models,
    signer_for,
    statements_of,
)
from packager.core.errors import PackagerError, UsageError
from packager.core.image import Attached, Blob, SealedImage
from packager.core.model import ModelFile
from packager.core.ports import ImageSink
from packager.core.version import __version__
from packager.images.attached import VERSION, attach_document
from packager.images.blobs import BlobReader
from packager.images.digest_index import DigestIndex
from packager.images.file_digests import known_digest
from packager.images.signatures.keys import ImageSigner
from packager.models.model_card import MAX_CARD_BYTES
from packager.pipeline.services import BuildServices

if TYPE_CHECKING:
    from packager.core.record import BuildRecord

# The ends of the names that documents have beside a tree of files.
_BESIDE = {
    "application/vnd.cyclonedx+json": "sbom.cdx.json",
    "application/vnd.in-toto+json": "provenance.json",
}


def check_sbom(settings: Settings) -> None:
    """Refuse outputs that cannot keep an SBOM or a signature, and keys that cannot sign."""
    required = "--sbom is required" if settings.sbom == "required" else ""
    if settings.sign:
        signer_for(settings.sign, settings.environment)
        required = "--sign is given"
    for output in settings.outputs if required else ():
        traits = traits_of(output)
        if not (traits.takes_artifacts or traits.holds_tree):
            raise UsageError(
                f"{output.text!r} keeps nothing beside an image, and {required}",
                hint="name an oci: layout or a registry alone, or leave the option out",
            )


def keeps_documents(settings: Settings) -> bool:
    """Whether an SBOM is made: an engine alone keeps none, and files are not hashed for it."""
    traits = [traits_of(output) for output in settings.outputs]
    kept = not traits or any(one.takes_artifacts or one.holds_tree for one in traits)
    return settings.sbom != "none" and kept


def with_documents(
    services: BuildServices,
    settings: Settings,
    sinks: Sequence[ImageSink],
    reader: BlobReader,
) -> BuildServices:
    """Return the services with those that describe and sign what was written.

    The index is opened when the outputs are there: one that was asked before they were written
    does not know what outputs learned of files.
    """
    index = cache(lambda: DigestIndex(digests_file(settings)))
    return replace(
        services,
        attach=lambda record, image, documents: attach_documents(
            record, image, documents, sinks, settings
        ),
        with_sbom=keeps_documents(settings),
        base_packages=partial(base_packages, settings, reader),
        policy=stated_policy(settings),
        digest_of=lambda blob, stated: known_digest(blob, stated, index()),
    )


def attach_documents(
    record: BuildRecord,
    image: SealedImage,
    documents: Mapping[str, bytes],
    sinks: Sequence[ImageSink],
    settings: Settings,
) -> None:
    """Attach the record and the documents to the image, and keep documents beside trees."""
    from packager.pipeline.attached_record import record_artifact

    for kind, data in documents.items():
        for sink in sinks:
            sink.keep_beside(_BESIDE[kind], data)
    signer = signer_for(settings.sign, settings.environment) if settings.sign else None
    if signer is not None:
        for sink in sinks if image.tree else ():
            sink.keep_beside("model.sig", sign_tree(signer, record.served_name, image.tree))
    if not record.images:
        return
    found = record_artifact(record, image.manifest_descriptor)
    if found is None:
        settings.on_warning("the build record is too large to be attached to the image")
    others = [
        attach_document(image.manifest_descriptor, data, kind, {VERSION: __version__})
        for kind, data in documents.items()
    ]
    artifacts: list[Attached] = [*([found] if found else []), *others]
    if signer is None:
        attach_to_all(sinks, image, artifacts, required=settings.sbom == "required")
        return
    sign_everywhere(
        signer,
        sinks,
        image,
        documents,
        otherwise=record.served_name,
        beside=artifacts,
    )


def sign_everywhere(
    signer: ImageSigner,
    sinks: Sequence[ImageSink],
    image: SealedImage,
    documents: Mapping[str, bytes],
    *,
    otherwise: str,
    beside: Sequence[Attached] = (),
) -> None:
    """Sign the image and documents about it in each output; raise where one keeps no signature.

    Artifacts that go `beside` signatures are attached with them, in as few requests as possible.
    A signature names the repository that it is for; in a layout it is for `otherwise`.
    """
    for sink in sinks:
        statements = statements_of(documents, image, otherwise)
        made = signed(signer, image, sink.repository or otherwise, statements)
        made += signed_models(signer, image, documents, otherwise)
        sink.attach(image, (*beside, *made), required=True)


def sign_each(
    sinks: Sequence[ImageSink],
    made: Callable[[str], Sequence[Attached]],
    image: SealedImage,
) -> None:
    """Attach the signatures that are made for each output's repository; raise where it fails."""
    for sink in sinks:
        sink.attach(image, made(sink.repository), required=True)


def read_small(file: ModelFile, reader: BlobReader) -> bytes:
    """Return a small file's bytes; none of one that is long or cannot be read."""
    if file.size > MAX_CARD_BYTES:
        return b""
    content = file.content
    blob = content if isinstance(content, Blob) else Blob((content,))
    try:
        return b"".join(bytes(chunk) for chunk in reader.chunks(blob))
    except (PackagerError, OSError):
        return b""
