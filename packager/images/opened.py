"""Opening an image by reference: a registry's, a layout's (`oci:`), an engine's (`docker:`).

Only documents are read; layers stay where they are until a sink needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packager.core.events import ignore
from packager.core.image import Attached, Blob, Claim, Descriptor, Layer, Platform
from packager.core.references import ImageTarget, LayoutTarget, RegistryTarget
from packager.images.claims import ClaimKey, judge
from packager.images.oci import LAYER_TYPES
from packager.images.stored import StoredImage, parse_stored

Warn = Callable[[str], None]
ReadAttached = Callable[[str, Warn], Iterator[Attached]]  # of a type; "" means all

if TYPE_CHECKING:
    from packager.images.registry.clients import RegistryClients


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenImage:
    """An image and where its layers can be read."""

    image: StoredImage
    locate: Callable[[Descriptor], Blob]  # raises `NotFound` for a layer that is not there
    mount_from: str = ""  # `HOST/REPOSITORY` whose registry can take layers over by itself
    offered: tuple[str, ...] = ()  # platforms, if the reference is to several images
    claims: tuple[Claim, ...] = ()  # about its layers, proven with the key at hand
    read_attached: ReadAttached = lambda _type, _warn: iter(())
    index: str = ""  # digest of the index that the name refers to, which lists the image
    read_index_attached: ReadAttached = lambda _type, _warn: iter(())

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers as a base's, with where their bytes are."""
        return tuple(
            Layer(
                role="base",
                blob=self.locate(one.descriptor),
                media_type=LAYER_TYPES.get(one.descriptor.media_type, one.descriptor.media_type),
                digest=one.descriptor.digest,
                diff_id=one.diff_id,
                annotations=one.descriptor.annotations,
            )
            for one in self.image.layers
        )

    def attached(self, artifact_type: str = "", on_warning: Warn = ignore) -> tuple[Attached, ...]:
        """Read what is attached to the image, all of it or of one type; never raises.

        Anyone with push access may attach: the content is an unproven claim.
        """
        return tuple(self.read_attached(artifact_type, on_warning))

    def signed_of(self, on_warning: Warn) -> dict[str, tuple[Attached, ...]]:
        """Return what is attached to the image, and to the index that names it, by digest."""
        found = {self.image.digest: tuple(self.read_attached("", on_warning))}
        if self.index:
            found[self.index] = tuple(self.read_index_attached("", on_warning))
        return found


def open_layout(target: LayoutTarget, platform: Platform) -> OpenImage:
    """Open an image of a layout; of several platforms' images, the one for `platform`."""
    return _from_layout(target.text, target, platform)


def open_engine_image(target: ImageTarget, platform: Platform) -> OpenImage:
    """Open an image of the Docker Engine, which is exported into a cached layout first."""
    from packager.images.daemon.base import DockerBase

    return _from_layout(target.text, LayoutTarget.at(DockerBase().take_out(target)), platform)


def open_registry_image(
    target: RegistryTarget,
    platform: Platform,
    clients: RegistryClients,
    key: ClaimKey | None = None,
) -> OpenImage:
    """Open an image of a registry; of several platforms' images, the one for `platform`.

    With a key, the claims about its layers that the key proves are read too.
    """
    from packager.images.registry.attached import fetch_attached
    from packager.images.registry.base import read_documents
    from packager.images.registry.claims import fetch_claims
    from packager.images.registry.reader import registry_blob

    name = target.image.name
    found = read_documents(target, platform, clients)
    image = parse_stored(target.text, found.manifest, found.config)
    claims: set[Claim] = set()
    if key is not None:
        client = clients.at(target.image.host)
        for document in fetch_claims(client, target.image.repository, image.digest, key.id):
            if judge(document, key, name) == "proven":
                claims.update(document.claims)

    def attached_to(digest: str) -> ReadAttached:
        repository = target.image.repository
        return lambda kind, warn: fetch_attached(
            clients.at(target.image.host), repository, digest, kind, warn
        )

    return OpenImage(
        image=image,
        claims=tuple(sorted(claims)),
        locate=lambda descriptor: registry_blob(name, descriptor.digest, descriptor.size),
        mount_from=name,
        offered=found.offered,
        read_attached=attached_to(image.digest),
        index=found.index,
        read_index_attached=attached_to(found.index),
    )


def _from_layout(reference: str, layout: LayoutTarget, platform: Platform) -> OpenImage:
    from packager.images.layout.base import read_documents

    found = read_documents(layout, platform)
    return OpenImage(
        image=parse_stored(reference, found.manifest, found.config),
        locate=found.locate,
        mount_from=found.mount_from,
        offered=found.offered,
        read_attached=found.attached,
        index=found.index,
        read_index_attached=found.index_attached,
    )
