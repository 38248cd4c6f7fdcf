"""Signatures over the files of a model, in the form of OpenSSF Model Signing 1.0.

A sigstore bundle around a statement whose predicate lists every file with its SHA-256.  The key's
hint is the digest of the public key in PEM, not in DER as in cosign's bundles.

Source: ossf/model-signing-spec a0c91e2, sigstore/model-transparency 1.1.1 (2026-11).
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packager.core.documents import NotStrict
from packager.core.errors import ModelRefused, NotFound
from packager.core.files.user_files import read_user_file
from packager.images.attached import MAX_BYTES
from packager.images.oci import canonical_json
from packager.images.signatures.forms import MEDIA_BUNDLE, envelope
from packager.images.signatures.keys import ImageSigner, public_pem
from packager.images.signatures.statements import statement
from packager.images.signatures.verifying import PublicKey, open_bundle

MEDIA_MODEL_SIGNATURE = "application/vnd.packager.model-signature.v1+json"
MODEL_SIGNED = "https://model_signing/signature/v1.0"
FILE_NAME = "model.sig"
_HINT = "have the publisher sign it again, or leave --model-key out"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedModel:
    """A model's files as a key has signed them."""

    files: Mapping[str, str]  # path → SHA-256 in hexadecimal
    key: str  # as the caller named it


def sign_model(signer: ImageSigner, name: str, files: Mapping[str, str]) -> bytes:
    """Return the signature of files: their paths below the model's root, and SHA-256."""
    ordered = sorted(files.items())
    root = hashlib.sha256(b"".join(bytes.fromhex(digest) for _, digest in ordered)).hexdigest()
    predicate = {
        "serialization": {
            "method": "files",
            "hash_type": "sha256",
            "allow_symlinks": False,
            "ignore_paths": [],
        },
        "resources": [
            {"name": path, "algorithm": "sha256", "digest": digest} for path, digest in ordered
        ],
    }
    signed = envelope(signer, statement(MODEL_SIGNED, predicate, [(name, root)]))
    hint = hashlib.sha256(public_pem(signer.public_der).encode()).hexdigest()
    return canonical_json(
        {
            "mediaType": MEDIA_BUNDLE,
            "verificationMaterial": {"publicKey": {"hint": hint}, "tlogEntries": []},
            "dsseEnvelope": signed,
        }
    )


def open_signature(name: str, data: bytes, keys: Sequence[PublicKey]) -> SignedModel:
    """Return what one of the keys has signed; raise `ModelRefused` for anything else."""
    try:
        parsed, key = open_bundle(data, keys)
        if parsed.get("predicateType") != MODEL_SIGNED:
            raise NotStrict(f"it is about {parsed.get('predicateType')!r}")
        files = _files_of(parsed.get("predicate"))
        subjects = parsed.get("subject")
        root = hashlib.sha256(b"".join(bytes.fromhex(files[path]) for path in sorted(files)))
        wanted = [{"sha256": root.hexdigest()}]
        if not isinstance(subjects, list) or [one.get("digest") for one in subjects] != wanted:
            raise NotStrict("its subject is not what its files give")
    except (NotStrict, AttributeError) as error:
        raise refused(name, f"its signature cannot be used: {error}") from error
    return SignedModel(files=files, key=key)


def check_files(name: str, signed: SignedModel, used: Mapping[str, str]) -> None:
    """Raise `ModelRefused` unless every file that is used is signed with its digest."""
    faults = [f"{path!r} is not signed" for path in sorted(used) if path not in signed.files]
    faults += [
        f"{path!r} has other bytes"
        for path, digest in sorted(used.items())
        if signed.files.get(path, digest) != digest
    ]
    if faults:
        raise refused(name, "; ".join(faults[:5]) + ("; …" if len(faults) > 5 else ""))


def check_directory(
    directory: Path, keys: Sequence[PublicKey], signature: Path | None = None
) -> SignedModel:
    """Hash the signed files of a directory; raise `ModelRefused` where one is not as signed.

    The signature is `model.sig` in it, or another file.  A signed file that is missing, that is a
    link, or that lies behind one, is refused.
    """
    name, place = str(directory), signature or directory / FILE_NAME
    signed = open_signature(name, _read(place), keys)
    check_files(name, signed, {path: _hash(directory, path, name) for path in signed.files})
    return signed


def read_signature(place: Path) -> bytes:
    """Return the bytes of a signature's file; raise `NotFound` without one."""
    return _read(place)


def refused(name: str, reason: str) -> ModelRefused:
    """Return an error: a model is not what a key has signed."""
    return ModelRefused(f"{name!r} is not used: {reason}", hint=_HINT, code="ModelNotSigned")


def _files_of(predicate: object) -> dict[str, str]:
    """Return the files of a predicate; raise `NotStrict` for other methods and other digests."""
    if not isinstance(predicate, dict):
        raise NotStrict("it lists no files")
    serialization = predicate.get("serialization")
    said: Mapping[str, Any] = serialization if isinstance(serialization, dict) else {}
    if (said.get("method"), said.get("hash_type")) != ("files", "sha256"):
        raise NotStrict("it does not list whole files by SHA-256")
    resources = predicate.get("resources")
    found: dict[str, str] = {}
    for one in resources if isinstance(resources, list) else ():
        path, digest = one.get("name"), one.get("digest")
        if one.get("algorithm") != "sha256" or not isinstance(path, str) or path in found:
            raise NotStrict("a file of it is listed twice, or by another algorithm")
        if not _is_below(path):
            raise NotStrict(f"{path!r} is not below the model")
        if not (isinstance(digest, str) and len(digest) == 64 and set(digest) <= _DIGITS):
            raise NotStrict(f"the digest of {path!r} is none")
        found[path] = digest
    if not found:
        raise NotStrict("it lists no files")
    return found


_DIGITS = frozenset("0123456789abcdef")


def _is_below(path: str) -> bool:
    parts = path.split("/")
    return all(part not in ("", ".", "..") for part in parts) and "\0" not in path


def _read(place: Path) -> bytes:
    if place.is_symlink():
        raise refused(str(place), "its signature is a link")
    if not place.is_file():
        raise NotFound(
            f"there is no signature {str(place)!r}",
            hint="name it with --model-signature, or leave --model-key out",
        )
    return read_user_file(place, what="the signature", hint=_HINT, max_bytes=MAX_BYTES)


def _hash(directory: Path, path: str, name: str) -> str:
    """Return the SHA-256 of a file; raise `ModelRefused` for one that is missing, or behind links.

    Each part of the path is opened below the one before, so that none is exchanged meanwhile.
    """
    parts = path.split("/")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for number, part in enumerate(parts):
            more = os.O_DIRECTORY if number + 1 < len(parts) else os.O_NONBLOCK
            below = os.open(part, flags | more, dir_fd=opened)
            os.close(opened)
            opened = below
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise refused(name, f"{path!r} is no file")
        with os.fdopen(os.dup(opened), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise refused(name, f"{path!r} is signed and cannot be read: {reason}") from error
    finally:
        os.close(opened)
