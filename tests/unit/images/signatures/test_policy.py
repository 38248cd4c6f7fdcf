"""Policies under attack: each row is refused with its reason, or passes as it should."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from packager.core.errors import NotFound
from packager.core.image import Attached, Descriptor
from packager.images.oci import canonical_json
from packager.images.signatures.forms import sign_image
from packager.images.signatures.keys import (
    FileSigner,
    make_image_key,
    parse_private_key,
    public_pem,
)
from packager.images.signatures.policy import canonical_name, check_image, read_policy
from packager.images.signatures.statements import CYCLONEDX, SLSA, statement
from packager.images.target import parse_target
from tests.support.cases import cases, read_tables
from tests.support.refusals import raises_code

TABLES = read_tables(__file__)


DIGESTS = {
    "image": f"sha256:{'c' * 64}",
    "other": f"sha256:{'d' * 64}",
    "index": f"sha256:{'e' * 64}",
}
POLICY = TABLES["policy"]
SIGNERS: dict[tuple[Path, str], FileSigner] = {}  # by directory and name of the key


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("keys")
    for name in ("ours", "theirs", "second"):
        make_image_key(root / name)
        signer = FileSigner(name, parse_private_key(name, (root / name).read_bytes(), None))
        (root / f"{name}.pub").write_text(public_pem(signer.public_der))
        SIGNERS[root, name] = signer
    return root


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """What somebody has attached to the image that is looked at."""

    by: str = "ours"
    about: str = "image"
    at: str = "image"  # the digest that it is attached to
    form: str = "both"  # of cosign: bundle, tag
    only: str = ""  # the type of predicate that is left
    sbom: dict[str, Any] | None = None
    provenance: dict[str, Any] | None = None
    becomes: str = ""  # the type that the statement is said to have where it is listed


def attached(root: Path, one: Signed) -> list[Attached]:
    """Return the artifacts of a row, by real signatures."""
    about = DIGESTS[one.about]
    image = Descriptor(
        media_type="application/vnd.oci.image.manifest.v1+json", digest=about, size=7
    )
    statements = [
        statement(kind, predicate, [("tiny", about)])
        for kind, predicate in ((CYCLONEDX, one.sbom), (SLSA, one.provenance))
        if predicate is not None
    ]
    found = list(sign_image(SIGNERS[root, one.by], image, "host/repo", statements))
    if one.form != "both":
        found = [artifact for artifact in found if bool(artifact.tag) == (one.form == "tag")]
    kept = []
    for artifact in found:
        manifest = json.loads(artifact.manifest)
        kind = (manifest.get("annotations") or {}).get("dev.sigstore.bundle.predicateType", "")
        if one.only and kind != one.only:
            continue
        if one.becomes:
            manifest["annotations"]["dev.sigstore.bundle.predicateType"] = one.becomes
        kept.append(replace(artifact, manifest=canonical_json(manifest)))
    return kept


def written(root: Path, rules: tuple[dict[str, Any], ...], default: str) -> Path:
    place = root / "policy.toml"
    lines = [f'default = "{default}"']
    for rule in rules or ({},):
        lines.append("[[image]]")
        lines += [f"{name} = {json.dumps(value)}" for name, value in {**POLICY, **rule}.items()]
    place.write_text("\n".join(lines))
    return place


@cases("attacks", name="registry.example.com/models/tiny:1", default="reject", rules=(), signed=())
def test_what_an_attacker_does_is_refused_with_the_reason(
    keys: Path,
    name: str,
    default: str,
    rules: tuple[dict[str, Any], ...],
    signed: tuple[Signed, ...],
    reason: str,
) -> None:
    policy = read_policy(written(keys, rules, default))
    there: dict[str, list[Attached]] = {DIGESTS["image"]: []}
    for one in signed:
        there.setdefault(DIGESTS[one.at], []).extend(attached(keys, one))

    def look() -> None:
        check_image(policy, canonical_name(parse_target(name, ("oci", "docker"))), there)

    if not reason:
        look()
        return
    with raises_code("AgainstPolicy", match=reason):
        look()


@cases("models")
def test_a_model_is_held_to_the_rules_that_name_it(
    keys: Path, name: str, names: tuple[str, ...], default: str, wanted: int | None
) -> None:
    place = keys / "models.toml"
    rule = f"[[model]]\nnames = {json.dumps(names)}\nkeys = ['ours.pub']\n"
    place.write_text(f"default = '{default}'\n{rule}")
    policy = read_policy(place)

    if wanted is None:
        with raises_code("AgainstPolicy", match="no rule for models names it"):
            policy.keys_for_model(name)
    else:
        assert len(policy.keys_for_model(name)) == wanted


@cases("files")
def test_a_policy_that_says_less_than_it_seems_to_is_refused(
    keys: Path, text: str, reason: str
) -> None:
    place = keys / "broken.toml"
    place.write_text(text)

    with raises_code("UnusablePolicy", match=reason):
        read_policy(place)


def test_a_policy_with_a_key_that_is_not_there_lets_nothing_pass(keys: Path) -> None:
    place = keys / "lost.toml"
    place.write_text('[[image]]\nnames = ["**"]\nkeys = ["nowhere.pub"]\n')

    with pytest.raises(NotFound, match="nowhere"):
        read_policy(place)
