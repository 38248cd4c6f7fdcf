"""The build record at its image: found without the state directory, and no more than a claim."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from packager.core.image import MEDIA_MANIFEST, Descriptor
from packager.images.attached import MEDIA_RECORD, attach_document
from tests.support.cases import cases
from tests.support.commandline import TINY, Packager
from tests.support.doubles.registry import FakeRegistry, sha256
from tests.support.real_registry import docker_registry

BUILD = ("build", "--model", str(TINY), "--instance", "local", "--base", "scratch", "--quiet")


@pytest.fixture(params=[True, False], ids=["with the API", "without it"])
def registry(request: pytest.FixtureRequest) -> Iterator[FakeRegistry]:
    with FakeRegistry(referrers=request.param) as fake:
        yield fake


def inspected(packager: Packager, image: str) -> dict[str, Any]:
    done = packager("inspect", image, "--format", "json", status=0)
    found: dict[str, Any] = json.loads(done.out)
    return found


def built(packager: Packager, *words: str) -> str:
    """Build an image; give its digest."""
    done = packager(*BUILD, *words, status=0)
    return done.out.strip().rpartition("@")[2]


def attach(registry: FakeRegistry, digest: str, document: bytes, kind: str = MEDIA_RECORD) -> None:
    """Attach a document of somebody's to an image in the repository `a`."""
    subject = Descriptor(media_type=MEDIA_MANIFEST, digest=digest, size=1)
    made = attach_document(subject, document, kind)
    for blob in made.blobs:
        registry.put("a", blob)
    registry.put_manifest("a", sha256(made.manifest), made.manifest, MEDIA_MANIFEST)


def test_a_pushed_image_has_its_record_attached(packager: Packager, registry: FakeRegistry) -> None:
    digest = built(packager, "--output", f"{registry.host}/tiny:1")

    (record,) = inspected(packager, f"{registry.host}/tiny:1")["attached_records"]

    assert record["digest"] == digest
    assert record["model"] == {"source": "local", "name": "tiny-llama", "revision": ""}
    assert record["schema_version"] == 7


def test_the_record_changes_no_digest_and_adds_no_image(packager: Packager, tmp_path: Path) -> None:
    with FakeRegistry(referrers=True) as registry:
        digest = built(packager, "--output", f"{registry.host}/tiny:1", "--output", "oci:out")
        assert registry.tagged("tiny", "1") == digest

    index = json.loads((tmp_path / "out" / "index.json").read_text())
    assert len(index["manifests"]) == 1
    named = index["manifests"][0]["annotations"]["dev.packager.attached"].split()
    assert len(named) == 3  # record, SBOM, provenance
    assert all(re.fullmatch("sha256:[0-9a-f]{64}", one) for one in named)


def test_building_again_attaches_nothing_more(packager: Packager, registry: FakeRegistry) -> None:
    for _ in range(2):
        built(packager, "--output", f"{registry.host}/tiny:1")

    assert len(inspected(packager, f"{registry.host}/tiny:1")["attached_records"]) == 1


def test_nothing_of_this_machine_is_attached(
    packager: Packager, registry: FakeRegistry, tmp_path: Path
) -> None:
    places = ("--output", f"{registry.host}/t:1", "--output", "oci:out", "--output", "dir:files")
    built(packager, *places)

    (record,) = inspected(packager, f"{registry.host}/t:1")["attached_records"]

    assert record["request"]["model"] == "./tiny-llama"
    assert (record["images"], record["seconds"]) == ([], 0.0)
    assert not any(path in json.dumps(record) for path in (str(tmp_path), str(TINY.parent)))


def test_copies_take_the_record_along(packager: Packager, registry: FakeRegistry) -> None:
    digest = built(packager, "--output", "oci:out")
    with FakeRegistry() as other:
        to_registry = packager("push", "oci:out", f"{registry.host}/a:1", "--format", "json")
        packager("copy", f"{registry.host}/a:1", f"{other.host}/b:1", "oci:back", status=0)
        found = [
            inspected(packager, place)["attached_records"]
            for place in (f"{registry.host}/a:1", f"{other.host}/b:1", "oci:back")
        ]

    assert json.loads(to_registry.out)["attached"] == 3
    assert [[record["digest"] for record in records] for records in found] == [[digest]] * 3


def test_a_view_is_another_image_and_takes_no_record(packager: Packager) -> None:
    built(packager, "--output", "oci:out")

    done = packager("copy", "--view", "weights", "oci:out", "oci:view", "--format", "json")

    assert json.loads(done.out)["attached"] == 0
    assert inspected(packager, "oci:view")["attached_records"] == []


def test_what_others_attached_travels_along_and_claims_do_not(packager: Packager) -> None:
    kind = "application/vnd.example.signature"
    with FakeRegistry(referrers=True) as registry:
        digest = built(packager, "--output", f"{registry.host}/a:1")
        for of_type in (kind, "application/vnd.packager.claims.v1+json"):
            attach(registry, digest, b'"theirs"', of_type)
        packager("copy", f"{registry.host}/a:1", f"{registry.host}/b:1", "--quiet", status=0)

        copied = [
            json.loads(data).get("artifactType")
            for (name, _), (_, data) in registry.manifests.items()
            if name == "b"
        ]

    ours = ["application/vnd.cyclonedx+json", "application/vnd.in-toto+json", MEDIA_RECORD]
    assert sorted(filter(None, copied)) == sorted([kind, *ours])


@cases("an_unreadable_record_is_as_good_as_missing")
def test_an_unreadable_record_is_as_good_as_missing(packager: Packager, document: bytes) -> None:
    with FakeRegistry(referrers=True) as registry:
        digest = built(packager, "--output", f"{registry.host}/a:1")
        attach(registry, digest, document)

        records = inspected(packager, f"{registry.host}/a:1")["attached_records"]

    assert [record["digest"] for record in records] == [digest]


def test_a_record_of_another_image_is_not_shown(packager: Packager, tmp_path: Path) -> None:
    with FakeRegistry(referrers=True) as registry:
        digest = built(packager, "--output", f"{registry.host}/a:1")
        built(packager, "--served-name", "other", "--output", "oci:o", "--record", "r")
        attach(registry, digest, (tmp_path / "r").read_bytes())

        (record,) = inspected(packager, f"{registry.host}/a:1")["attached_records"]

    assert record["served_name"] == "tiny-llama"


def test_a_terminal_is_told_that_the_record_is_unproven(packager: Packager) -> None:
    built(packager, "--output", "oci:out")

    shown = packager("inspect", "oci:out").out

    assert "attached   a build record, unproven: tiny-llama built by packager" in shown


def test_a_layout_of_another_tool_names_artifacts_as_entries(
    packager: Packager, tmp_path: Path
) -> None:
    """ORAS gives each artifact an entry of its own: the one image is found all the same."""
    built(packager, "--output", "oci:out")
    path = tmp_path / "out" / "index.json"
    index = json.loads(path.read_text())
    digest = index["manifests"][0]["annotations"].pop("dev.packager.attached").split()[0]
    entry = {"mediaType": MEDIA_MANIFEST, "digest": digest, "size": 1}
    index["manifests"] = [{**entry, "artifactType": MEDIA_RECORD}, index["manifests"][0]]
    del index["manifests"][1]["annotations"]
    path.write_text(json.dumps(index))

    assert len(inspected(packager, "oci:out")["attached_records"]) == 1


def test_an_image_that_is_replaced_leaves_no_record_behind(
    packager: Packager, tmp_path: Path
) -> None:
    built(packager, "--output", "oci:out")
    first = len(list((tmp_path / "out/blobs/sha256").iterdir()))

    packager(*BUILD, "--served-name", "other", "--output", "oci:out")

    assert len(list((tmp_path / "out/blobs/sha256").iterdir())) == first


@pytest.mark.live
def test_without_lists_the_record_is_under_a_tag(packager: Packager, tmp_path: Path) -> None:
    (tmp_path / "registry").mkdir()
    with docker_registry(tmp_path / "registry") as host:
        digest = built(packager, "--output", f"{host}/tiny:1")

        (record,) = inspected(packager, f"{host}/tiny:1")["attached_records"]

    assert record["digest"] == digest
