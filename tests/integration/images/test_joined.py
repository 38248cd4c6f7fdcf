"""One index of images for several platforms: what is shared, sent, signed, and refused."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from packager.images.joining import BUILD_TYPE
from tests.support.cases import cases
from tests.support.commandline import TINY, Packager, printed
from tests.support.doubles.registry import FakeRegistry
from tests.support.image_schemas import INDEX, check_oci

COMMON = ("build", str(TINY), "--base", "scratch", "--compile", "off", "--quiet")
AMD64 = ("--instance", "ml.c7i.4xlarge")
ARM64 = ("--instance", "c8g.4xlarge")
PLATFORMS = ("linux/amd64", "linux/arm64")
MOST_SENT = 20_000  # bytes of a second platform beside its base


def test_the_second_platform_sends_no_weights_and_an_index_names_both(packager: Packager) -> None:
    with FakeRegistry(referrers=True) as registry:
        name = f"{registry.host}/tiny"
        printed(packager, *COMMON, *AMD64, "--output", f"{name}:1-amd64", "--sbom", "none")
        more = (*COMMON, *ARM64, "--output", f"{name}:1-arm64", "--sbom", "none")
        second = packager(*more, "--format", "json").document
        joined = packager("join", f"{name}:1-arm64", f"{name}:1-amd64", "--output", f"{name}:1",
                          "--format", "json").document  # fmt: skip
        document = registry.manifests["tiny", joined["digest"]][1]
        again = printed(packager, "join", f"{name}:1", "--output", f"{name}:2", "--quiet")
        complete = registry.is_complete("tiny", "1-amd64"), registry.is_complete("tiny", "1-arm64")

    assert complete == (True, True)
    assert second["transfer"]["bytes_sent"] <= MOST_SENT
    assert joined["transfer"]["bytes_sent"] <= MOST_SENT
    assert joined["transfer"]["bytes_read"] == 0
    assert joined["shared_bytes"] > 8_000_000
    check_oci(document, INDEX)
    entries = json.loads(document)["manifests"]
    assert [f"{one['platform']['os']}/{one['platform']['architecture']}" for one in entries] == [
        *PLATFORMS
    ]
    assert {one["digest"] for one in entries} == set(joined["platforms"].values())
    assert again.endswith(joined["digest"])


def test_an_index_and_each_of_its_images_are_signed_and_verified(
    packager: Packager, tmp_path: Path
) -> None:
    (tmp_path / "key.pub").write_text(printed(packager, "keys", "make", "image", "--to", "key.pem"))
    (tmp_path / "other.pub").write_text(printed(packager, "keys", "make", "image", "--to", "o.pem"))
    key, other = ("--key", str(tmp_path / "key.pub")), ("--key", str(tmp_path / "other.pub"))
    kinds = ("--type", "signature", "--type", "sbom", "--type", "provenance")
    with FakeRegistry(referrers=True) as registry:
        places = {"layout": "oci:joined", "registry": f"{registry.host}/tiny:1"}
        printed(packager, *COMMON, *AMD64, "--output", "oci:amd64")
        printed(packager, *COMMON, *ARM64, "--output", "oci:arm64")
        outputs = [word for place in places.values() for word in ("--output", place)]
        printed(
            packager, "join", "oci:amd64", "oci:arm64", *outputs, "--sign", "key.pem", "--quiet"
        )
        for place in places.values():
            chosen = [("--platform", one) for one in PLATFORMS]
            found = {printed(packager, "verify", place, *key, *kinds, *one) for one in chosen}

            assert len(found) == 2
            assert packager("verify", place, *other).status == 65
        digest = registry.tagged("tiny", "1")
        for one in (digest, *(place.rpartition("@")[2] for place in found)):
            printed(packager, "verify", f"{registry.host}/tiny@{one}", *key)
        for platform in PLATFORMS:
            shown = printed(packager, "sbom", places["registry"], "--platform", platform)
            assert "tiny-llama" in shown
        documents = [json.loads(data) for data in registry.blobs.values() if data[:1] == b"{"]

    parts = [one for one in documents if one.get("bomFormat") == "CycloneDX"]
    assert digest in {one["metadata"]["component"].get("version") for one in parts}
    made = [one["predicate"] for one in documents if one.get("predicateType")]
    assert BUILD_TYPE in {one.get("buildDefinition", {}).get("buildType") for one in made}


@cases("what_makes_no_index_is_refused")
def test_what_makes_no_index_is_refused(
    packager: Packager, tmp_path: Path, images: tuple[str, ...], output: str, reason: str
) -> None:
    printed(packager, *COMMON, *AMD64, "--output", "oci:amd64")
    printed(packager, *COMMON, *ARM64, "--output", "oci:arm64")
    printed(packager, *COMMON, *AMD64, "--max-batch", "3", "--output", "oci:other")
    printed(packager, "copy", "--view", "modelpack", "oci:arm64", "oci:pack", "--quiet")

    done = packager("join", *images, "--output", output)

    assert done.status != 0
    assert reason in done.err
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(shutil.which("skopeo") is None, reason="skopeo is not installed")
def test_skopeo_takes_the_index_and_the_image_of_either_platform(
    packager: Packager, tmp_path: Path
) -> None:
    printed(packager, *COMMON, *AMD64, "--output", "oci:amd64", "--sbom", "none")
    printed(packager, *COMMON, *ARM64, "--output", "oci:arm64", "--sbom", "none")
    printed(packager, "join", "oci:amd64", "oci:arm64", "--output", "oci:both", "--quiet")
    keep = ("--preserve-digests", "--dest-oci-accept-uncompressed-layers")
    source = f"oci:{tmp_path}/both:latest"

    for number, chosen in enumerate((("--all",), ("--override-arch", "arm64"))):
        global_words = chosen if chosen[0].startswith("--override") else ()
        words = () if global_words else chosen
        target = f"oci:{tmp_path}/taken{number}:1"
        subprocess.run(["skopeo", *global_words, "copy", *words, *keep, source, target], check=True)

    blobs = (tmp_path / "both/blobs/sha256", tmp_path / "taken0/blobs/sha256")
    index = json.loads((tmp_path / "both/index.json").read_text())["manifests"][0]["digest"]
    assert (blobs[1] / index.removeprefix("sha256:")).read_bytes()
    said = printed(packager, "inspect", "oci:taken1:1", "--format", "json")
    assert json.loads(said)["platform"] == "linux/arm64"
