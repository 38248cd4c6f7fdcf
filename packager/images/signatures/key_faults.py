"""Why a key cannot sign images, and what a public key is called."""

from __future__ import annotations

import base64
import hashlib

from artifact_cache.distribution import install_command
from packager.core.errors import UsageError

KMS = "awskms://"


def unusable_image_key(place: str, reason: str, hint: str = "") -> UsageError:
    """Return an error: a key that cannot, or must not, sign images."""
    return UsageError(
        f"the key {place!r} cannot sign images: {reason}", hint=hint, code="UnusableImageKey"
    )


def hint_of(public_der: bytes) -> str:
    """Return what cosign's bundles call a public key."""
    return base64.b64encode(hashlib.sha256(public_der).digest()).decode()


def need_cryptography() -> None:
    """Raise `UsageError` where the extra for signatures is not installed."""
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise UsageError(
            "signing images needs the package cryptography, which is not installed",
            hint=f"install it with `{install_command('cryptography', 'signing')}`",
        ) from error
