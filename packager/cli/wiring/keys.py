"""The keys of this user: where they are, and what each is for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from packager.cli.wiring.caches import signing_key_place
from packager.cli.wiring.signing import image_key_place
from packager.core.errors import PackagerError

KINDS = ("image", "cache", "claims")
EXPLAINED = {
    "image": {
        "proves": "that you made, or saw, an image, its SBOM and its provenance",
        "who": "one machine or one service of yours; verifiers have the public half alone",
        "options": "build --sign, push --sign, packager sign; cosign's keys and awskms:// too",
    },
    "cache": {
        "proves": "that a machine of yours published an entry of the artifact cache",
        "who": "each machine that publishes; the others list its public half: cache trust",
        "options": "--signing-key, --trusted-keys, --require-signed; also cache keygen",
    },
    "claims": {
        "proves": "which layers of a registry hold which files, so that nobody reads them again",
        "who": "one secret of a team: whoever has it can have builds name layers of their choice",
        "options": "PACKAGER_CLAIM_KEY, PACKAGER_CLAIM_KEY_FILE; claims key, export, import",
    },
}


def key_rows(environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield each key's kind, place and id; "" where there is none, or why it cannot be used."""
    for kind, place, found in (
        ("image", image_key_place(environment), _image_id),
        ("cache", signing_key_place(), _cache_id),
    ):
        try:
            known = found(place, environment) if place.is_file() else ""
        except PackagerError as error:
            known = f"unusable: {error.message}"
        yield {"kind": kind, "place": str(place), "id": known}
    yield _claims(environment)


def _image_id(place: Path, environment: Mapping[str, str]) -> str:
    from packager.images.signatures.keys import load_image_signer

    return load_image_signer(str(place), environment).hint


def _cache_id(place: Path, _environment: Mapping[str, str]) -> str:
    from artifact_cache.trust import load_signer
    from packager.optimize.cache.errors import explained_cache_errors

    with explained_cache_errors():
        return load_signer(place).keyid


def _claims(environment: Mapping[str, str]) -> dict[str, str]:
    from packager.images.claim_key import key_place, load_key

    try:
        place = key_place(environment).name
        found = load_key(environment)
    except PackagerError as error:
        return {"kind": "claims", "place": "", "id": f"unusable: {error.message}"}
    return {"kind": "claims", "place": place, "id": found.id if found else ""}
