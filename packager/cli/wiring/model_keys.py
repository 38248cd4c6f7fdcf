"""Models that must be signed: by `--model-key`, or by the rules of a policy.

A directory is compared with its signature before anything else reads it.  Files that are elsewhere
are compared when their source has named them: with the digests that it proves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from packager.cli.wiring.attached import read_small
from packager.cli.wiring.policies import policy_of
from packager.cli.wiring.settings import Settings
from packager.core.errors import ModelRefused, UsageError
from packager.core.files.opening import SourceChanged
from packager.core.image import Blob
from packager.core.model import ModelFile, ModelFiles
from packager.core.references import DirectoryReference, HubReference, ModelReference
from packager.images.blobs import BlobReader
from packager.images.sbom.licences import is_denied
from packager.images.signatures.model_signing import (
    SignedModel,
    check_directory,
    check_files,
    open_signature,
    read_signature,
)
from packager.images.signatures.verifying import PublicKey
from packager.models.model_card import card_of
from packager.pipeline.licences import licence_of

Find = Callable[[ModelReference], ModelFiles]


def model_name(reference: ModelReference) -> str:
    """Return the one name of a model's place, as policies compare it."""
    if isinstance(reference, DirectoryReference):
        return str(Path(reference.path).expanduser().resolve())
    if isinstance(reference, HubReference):
        return reference.name
    return reference.text.partition("@")[0]


def find_signed(
    reference: ModelReference, settings: Settings, reader: BlobReader, find: Find, *, is_model: bool
) -> ModelFiles:
    """Return a model's files; raise `ModelRefused` where they are not what keys have signed.

    Or where the model's card states a licence that is denied.
    """
    name = model_name(reference)
    policy = policy_of(settings, f"model {name}")
    denied = (*settings.deny_licences, *(policy.deny_licences if policy else ()))
    wanted = [tuple(map(PublicKey, settings.model_keys))] if is_model else []
    wanted = [keys for keys in wanted if keys]
    if policy is not None:
        wanted += policy.keys_for_model(name)
    found = _find_proven(reference, settings, reader, find, wanted, is_model=is_model)
    _check_licence(reference.text, found, reader, denied)
    return found


def _find_proven(
    reference: ModelReference,
    settings: Settings,
    reader: BlobReader,
    find: Find,
    wanted: Sequence[tuple[PublicKey, ...]],
    *,
    is_model: bool,
) -> ModelFiles:
    if not wanted:
        return find(reference)
    place = settings.model_signature if is_model else None
    if isinstance(reference, DirectoryReference):
        directory = Path(reference.path).expanduser()
        before = _state(directory)
        signed = [check_directory(directory, keys, place) for keys in wanted]
        found = find(reference)
        if _state(directory) != before:
            raise SourceChanged(str(directory))
        for one in signed:
            check_files(
                reference.text,
                one,
                {file.path: one.files.get(file.path, "") for file in found.files},
            )
        return found
    if place is None:
        raise UsageError(
            f"{reference.text!r} must be signed, and is no directory with a model.sig",
            hint="name the publisher's signature with --model-signature FILE",
        )
    signed = [open_signature(reference.text, read_signature(place), keys) for keys in wanted]
    found = find(reference)
    check_used(reference.text, signed, found, reader)
    return found


def check_used(
    name: str, signed: Sequence[SignedModel], found: ModelFiles, reader: BlobReader
) -> None:
    """Raise `ModelRefused` unless every file that is used is signed as it is."""
    for one in signed:  # what is not signed is not read
        check_files(name, one, {file.path: one.files.get(file.path, "") for file in found.files})
    used = {file.path: _digest_of(file, reader) for file in found.files}
    for one in signed:
        check_files(name, one, used)


def _check_licence(name: str, found: ModelFiles, reader: BlobReader, denied: Sequence[str]) -> None:
    """Raise `ModelRefused` for a model whose card states a licence that is denied."""
    if not denied:
        return
    card = card_of(found.files, lambda file: read_small(file, reader))
    stated = licence_of(card)
    if stated and any(is_denied(word, denied) for word in (stated, card.license)):
        raise ModelRefused(
            f"{name!r} is not used: its licence {stated!r} is denied",
            hint="use another model, or change --deny-licence or deny_licences of the policy",
            code="LicenceDenied",
        )


def _digest_of(file: ModelFile, reader: BlobReader) -> str:
    """Return a file's SHA-256: what its source proves, or that of its bytes."""
    if file.sha256:
        return file.sha256
    content = file.content
    hashed = hashlib.sha256()
    for chunk in reader.chunks(content if isinstance(content, Blob) else Blob((content,))):
        hashed.update(chunk)
    return hashed.hexdigest()


def _state(directory: Path) -> list[tuple[object, ...]]:
    """Return what a write to a file of a directory changes."""
    found: list[tuple[object, ...]] = []
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        identity = (status.st_dev, status.st_ino, status.st_size)
        found.append((str(path), *identity, status.st_mtime_ns, status.st_ctime_ns))
    return found
