"""The signature of a bundle: a sigstore bundle of a statement about its manifest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from packager.addons.bundle.manifest import MANIFEST, MOST_BYTES, SIGNATURE, Bundle
from packager.core.documents import NotStrict
from packager.core.errors import ModelRefused
from packager.core.files.atomic import read_regular, write_atomically
from packager.images.oci import sha256
from packager.images.signatures.forms import bundle as sigstore_bundle
from packager.images.signatures.forms import envelope
from packager.images.signatures.keys import ImageSigner
from packager.images.signatures.statements import statement
from packager.images.signatures.verifying import PublicKey, is_about, open_bundle

CARRIES = "https://packager.dev/bundle/v1"  # of a statement that lists a bundle's images


def sign_bundle(directory: Path, bundle: Bundle, manifest: bytes, signer: ImageSigner) -> None:
    """Write the signature of a manifest, which has the digest of every file, beside it."""
    images = [{"name": one.name, "digest": one.digest} for one in bundle.images]
    signed = envelope(
        signer, statement(CARRIES, {"images": images}, [(MANIFEST, sha256(manifest))])
    )
    write_atomically(directory / SIGNATURE, sigstore_bundle(signer, signed))


def check_signed(directory: Path, keys: Sequence[PublicKey]) -> None:
    """Raise `ModelRefused` where none of the keys has signed the manifest."""
    digest = sha256(read_regular(directory / MANIFEST, MOST_BYTES))
    why = f"there is no {SIGNATURE}"
    try:
        found, _ = open_bundle(read_regular(directory / SIGNATURE, MOST_BYTES), keys)
        if found.get("predicateType") == CARRIES and is_about(found, digest):
            return
        why = "the signature is of another manifest"
    except OSError:
        pass
    except NotStrict as error:
        why = str(error)
    raise ModelRefused(
        f"the bundle {str(directory)!r} is not proven: {why}",
        hint="use it only where you know who made it; `packager bundle create --sign` signs one",
        code="BundleNotProven",
    )
