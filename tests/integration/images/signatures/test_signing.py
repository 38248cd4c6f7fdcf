"""Signing by command: what is signed, where it is, and that others' words are not."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from packager.core.image import MEDIA_MANIFEST, Descriptor
from packager.images.attached import attach_document
from packager.images.signatures.forms import MEDIA_BUNDLE
from tests.support.commandline import TINY, Packager, printed
from tests.support.doubles.registry import FakeRegistry, sha256

BUILD = ("build", str(TINY), "--instance", "local", "--base", "scratch", "--quiet")
TYPES = {
    "https://sigstore.dev/cosign/sign/v1",
    "https://cyclonedx.org/bom",
    "https://slsa.dev/provenance/v1",
}


def bundles_in(registry: FakeRegistry, repository: str) -> list[dict[str, Any]]:
    """The statements in the bundles of a repository."""
    found = []
    for (name, pointer), (_, data) in registry.manifests.items():
        manifest = json.loads(data)
        if name == repository and manifest.get("artifactType") == MEDIA_BUNDLE:
            assert pointer == sha256(data)
            bundle = json.loads(registry.blobs[repository, manifest["layers"][0]["digest"]])
            found.append(json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"])))
    return found


def test_a_build_signs_image_sbom_and_provenance_once(packager: Packager) -> None:
    printed(packager, "keys", "make", "image", "--to", "key.pem")
    with FakeRegistry(referrers=True) as registry:
        outputs = ("--output", f"{registry.host}/a:1", "--output", "oci:out")
        for _ in range(2):
            out = printed(packager, *BUILD, *outputs, "--sign", "key.pem")
        digest = out.splitlines()[0].rpartition("@")[2]
        statements = bundles_in(registry, "a")
        tag = digest.replace(":", "-")
        simple = json.loads(registry.manifests["a", f"{tag}.sig"][1])
        attested = json.loads(registry.manifests["a", f"{tag}.att"][1])
        payload = json.loads(registry.blobs["a", simple["layers"][0]["digest"]])
        host = registry.host

    assert {one["predicateType"] for one in statements} == TYPES
    assert len(statements) == len(TYPES)
    assert all(one["subject"][0]["digest"]["sha256"] == digest[7:] for one in statements)
    assert payload["critical"]["identity"]["docker-reference"] == f"{host}/a"
    assert payload["critical"]["image"]["docker-manifest-digest"] == digest
    assert (len(simple["layers"]), len(attested["layers"])) == (1, 2)


@pytest.mark.parametrize("listing", [True, False], ids=["with the API", "without it"])
def test_a_document_takes_at_most_four_requests(packager: Packager, listing: bool) -> None:
    """Beside what a push of the same image takes; a signature has its own document in each form."""
    printed(packager, "keys", "make", "image", "--to", "key.pem")
    counts = []
    for options in (("--no-sbom",), ("--no-sbom",), ("--sign", "key.pem")):  # first digests
        with FakeRegistry(referrers=listing) as registry:
            printed(packager, *BUILD, "--output", f"{registry.host}/a:1", *options)
            counts.append(len(registry.seen))
            documents = {
                one["digest"]
                for (_, name), (_, data) in registry.manifests.items()
                for one in json.loads(data).get("layers", ())
                if "subject" in json.loads(data) or name.endswith((".sig", ".att"))
            }

    assert len(documents) == 10  # record, SBOM, provenance, six that are signed, the model's files
    assert counts[2] - counts[1] <= 4 * (len(documents) - 1)  # both have a record


def test_what_others_attached_is_not_signed(packager: Packager) -> None:
    printed(packager, "keys", "make", "image")
    with FakeRegistry(referrers=True) as registry:
        place = f"{registry.host}/a:1"
        digest = printed(packager, *BUILD, "--no-sbom", "--output", place).rpartition("@")[2]
        theirs = {
            "bomFormat": "CycloneDX",
            "metadata": {
                "tools": {"components": [{"name": "theirs"}]},
                "component": {
                    "type": "container",
                    "bom-ref": "x",
                    "name": "x",
                    "version": digest,
                },
            },
        }
        subject = Descriptor(media_type=MEDIA_MANIFEST, digest=digest, size=1)
        kind = "application/vnd.cyclonedx+json"
        made = attach_document(subject, json.dumps(theirs).encode(), kind)
        for blob in made.blobs:
            registry.put("a", blob)
        registry.put_manifest("a", sha256(made.manifest), made.manifest, MEDIA_MANIFEST)

        printed(packager, "sign", place)
        signed = [one["predicateType"] for one in bundles_in(registry, "a")]
        printed(packager, "sign", place, "--attest")
        attested = [one["predicateType"] for one in bundles_in(registry, "a")]

    assert signed == ["https://sigstore.dev/cosign/sign/v1"]
    assert sorted(attested) == ["https://cyclonedx.org/bom", *signed]


def test_a_push_signs_what_it_writes(packager: Packager) -> None:
    printed(packager, "keys", "make", "image", "--to", "key.pem")
    printed(packager, *BUILD, "--output", "oci:out")
    with FakeRegistry() as registry:
        printed(packager, "push", "oci:out", f"{registry.host}/a:1", "--sign", "key.pem", "--quiet")
        assert any(pointer.endswith(".sig") for _, pointer in registry.manifests)


def test_a_key_that_others_can_read_is_refused(packager: Packager, tmp_path: Path) -> None:
    printed(packager, "keys", "make", "image", "--to", "key.pem")
    secret = (tmp_path / "key.pem").read_text().splitlines()[1]
    (tmp_path / "key.pem").chmod(0o644)

    done = packager(*BUILD, "--output", "oci:out", "--sign", "key.pem")

    assert (done.status, (tmp_path / "out").exists()) == (2, False)
    assert "others may read" in done.err
    assert secret not in done.err


def test_an_output_that_keeps_no_signature_is_refused(packager: Packager) -> None:
    printed(packager, "keys", "make", "image", "--to", "key.pem")

    done = packager(*BUILD, "--output", "docker:tiny:1", "--sign", "key.pem")

    assert (done.status, "keeps nothing beside an image" in done.err) == (2, True)


def test_keys_are_listed_made_and_explained(packager: Packager) -> None:
    public = printed(packager, "keys", "make", "image")
    printed(packager, "keys", "make", "cache")
    printed(packager, "keys", "make", "claims")

    listed = json.loads(printed(packager, "keys", "list", "--format", "json"))["keys"]
    explained = json.loads(printed(packager, "keys", "explain", "--format", "json"))

    assert {row["kind"] for row in listed if row["id"]} == {"image", "cache", "claims"}
    assert set(explained) == {"image", "cache", "claims"}
    assert printed(packager, "keys", "public") == public
    assert packager("keys", "make", "image").status == 2


def test_what_a_key_has_signed_is_verified_and_the_digest_goes_on(
    packager: Packager, tmp_path: Path
) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / f"{name}.pub").write_text(
            printed(packager, "keys", "make", "image", "--to", f"{name}.pem")
        )
    keys = [("--key", str(tmp_path / f"{name}.pub")) for name in ("ours", "theirs")]
    with FakeRegistry(referrers=True) as registry:
        signed, plain = f"{registry.host}/a:1", f"{registry.host}/a:2"
        out = printed(packager, *BUILD, "--output", signed, "--sign", "ours.pem")
        printed(packager, *BUILD, "--max-batch", "3", "--output", plain)
        kinds = ("--type", "signature", "--type", "sbom", "--type", "provenance")

        proven = printed(packager, "verify", signed, *keys[0], *kinds)
        refused = [
            packager("verify", one, *key) for one, key in ((signed, keys[1]), (plain, keys[0]))
        ]
        both = packager("verify", signed, *keys[1], *keys[0], "--format", "json").document

    assert proven == out
    assert [(one.status, one.out) for one in refused] == [(65, ""), (65, "")]
    assert all("has no https://sigstore.dev/cosign/sign/v1 by" in one.err for one in refused)
    assert {one["key"] for one in both["proven"]} == {str(tmp_path / "ours.pub")}


def test_a_layout_as_oras_writes_it_is_verified(packager: Packager, tmp_path: Path) -> None:
    """Untagged entries with their type, and no annotation of ours at the image."""
    (tmp_path / "key.pub").write_text(printed(packager, "keys", "make", "image", "--to", "key.pem"))
    printed(packager, *BUILD, "--output", "oci:out", "--sign", "key.pem")
    index = json.loads((tmp_path / "out/index.json").read_bytes())
    entries = index["manifests"]
    assert len(entries) > 2
    for entry in entries:
        entry.get("annotations", {}).pop("dev.packager.attached", None)
    listed = [one for one in entries if not str(one.get("annotations", {})).count("sha256-")]
    index["manifests"] = listed
    (tmp_path / "out/index.json").write_text(json.dumps(index))

    words = ("verify", "oci:out", "--key", "key.pub", "--type", "signature", "--type", "sbom")
    printed(packager, *words)
    index["manifests"] = [one for one in listed if "artifactType" not in one]
    (tmp_path / "out/index.json").write_text(json.dumps(index))
    assert packager(*words).status == 65  # they were stripped
