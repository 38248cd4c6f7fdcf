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
from tests.support.commandline import TINY, Packager
from tests.support.doubles.registry import FakeRegistry, sha256
from tests.support.real_registry import docker_registry

BUILD = ("build", "--model", str(TINY), "--instance", "local", "--base", "scratch", "--quiet")


@pytest.fixture(params=[True, False], ids=["with the API", "without it"])
def registry(request: pytest.FixtureRequest) -> Iterator[FakeRegistry]:
    with FakeRegistry(referrers=request.param) as fake:
        yield fake


def inspected(packager: Packager, image: str) -> dict[str, Any]:
    done = packager("inspect", image, "--format", "json")
    assert done.status == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def digest_of(out: str) -> str:
    return out.strip().rpartition("@")[2]


def test_a_pushed_image_has_its_record_attached(packager: Packager, registry: FakeRegistry) -> None:
    done = packager(*BUILD, "--output", f"{registry.host}/tiny:1")
    assert done.status == 0, done.err

    (record,) = inspected(packager, f"{registry.host}/tiny:1")["attached_records"]

    assert record["digest"] == digest_of(done.out)
    assert record["model"] == {"source": "local", "name": "tiny-llama", "revision": ""}
    assert record["schema_version"] == 4


def test_the_record_changes_no_digest_and_adds_no_image(packager: Packager, tmp_path: Path) -> None:
    with FakeRegistry(referrers=True) as registry:
        pushed = packager(*BUILD, "--output", f"{registry.host}/tiny:1", "--output", "oci:out")
        assert registry.tagged("tiny", "1") == digest_of(pushed.out)

    index = json.loads((tmp_path / "out" / "index.json").read_text())
    assert len(index["manifests"]) == 1
    assert re.fullmatch(
        "sha256:[0-9a-f]{64}", index["manifests"][0]["annotations"]["dev.packager.attached"]
    )


def test_building_again_attaches_nothing_more(packager: Packager, registry: FakeRegistry) -> None:
    for _ in range(2):
        assert packager(*BUILD, "--output", f"{registry.host}/tiny:1").status == 0

    assert len(inspected(packager, f"{registry.host}/tiny:1")["attached_records"]) == 1


def test_nothing_of_this_machine_is_attached(
    packager: Packager, registry: FakeRegistry, tmp_path: Path
) -> None:
    places = ("--output", f"{registry.host}/t:1", "--output", "oci:out", "--output", "dir:files")
    done = packager(*BUILD, *places)
    assert done.status == 0, done.err

    (record,) = inspected(packager, f"{registry.host}/t:1")["attached_records"]

    assert record["request"]["model"] == "./tiny-llama"
    assert (record["images"], record["seconds"]) == ([], 0.0)
    assert not any(path in json.dumps(record) for path in (str(tmp_path), str(TINY.parent)))


def test_copies_take_the_record_along(packager: Packager, registry: FakeRegistry) -> None:
    built = digest_of(packager(*BUILD, "--output", "oci:out").out)
    with FakeRegistry() as other:
        to_registry = packager("push", "oci:out", f"{registry.host}/a:1", "--format", "json")
        onwards = packager("copy", f"{registry.host}/a:1", f"{other.host}/b:1", "oci:back")
        assert onwards.status == 0, onwards.err
        found = [
            inspected(packager, place)["attached_records"]
            for place in (f"{registry.host}/a:1", f"{other.host}/b:1", "oci:back")
        ]

    assert json.loads(to_registry.out)["attached"] == 1
    assert [[record["digest"] for record in records] for records in found] == [[built]] * 3


def test_a_view_is_another_image_and_takes_no_record(packager: Packager) -> None:
    packager(*BUILD, "--output", "oci:out")

    done = packager("copy", "--view", "weights", "oci:out", "oci:view", "--format", "json")

    assert json.loads(done.out)["attached"] == 0
    assert inspected(packager, "oci:view")["attached_records"] == []


def test_what_others_attached_travels_along_and_claims_do_not(packager: Packager) -> None:
    kind = "application/vnd.example.signature"
    with FakeRegistry(referrers=True) as registry:
        built = digest_of(packager(*BUILD, "--output", f"{registry.host}/a:1").out)
        size = len(registry.manifests["a", "1"][1])
        subject = Descriptor(media_type=MEDIA_MANIFEST, digest=built, size=size)
        for of_type in (kind, "application/vnd.packager.claims.v1+json"):
            theirs = attach_document(subject, b'"theirs"', of_type)
            for blob in theirs.blobs:
                registry.put("a", blob)
            registry.put_manifest("a", sha256(theirs.manifest), theirs.manifest, MEDIA_MANIFEST)
        done = packager("copy", f"{registry.host}/a:1", f"{registry.host}/b:1", "--quiet")
        assert done.status == 0, done.err

        copied = [
            json.loads(data).get("artifactType")
            for (name, _), (_, data) in registry.manifests.items()
            if name == "b"
        ]

    assert sorted(filter(None, copied)) == [kind, MEDIA_RECORD]


@pytest.mark.parametrize(
    "document",
    [b"{", b"[]", b'{"schema_version": 99}', b'{"a":' * 2000, b"\x00\xff"],
    ids=["cut off", "a list", "another version", "deep", "no text"],
)
def test_a_record_that_cannot_be_read_is_as_good_as_missing(
    packager: Packager, document: bytes
) -> None:
    with FakeRegistry(referrers=True) as registry:
        built = digest_of(packager(*BUILD, "--output", f"{registry.host}/a:1").out)
        subject = Descriptor(media_type=MEDIA_MANIFEST, digest=built, size=1)
        hostile = attach_document(subject, document, MEDIA_RECORD)
        for blob in hostile.blobs:
            registry.put("a", blob)
        registry.put_manifest("a", sha256(hostile.manifest), hostile.manifest, MEDIA_MANIFEST)

        records = inspected(packager, f"{registry.host}/a:1")["attached_records"]

    assert [record["digest"] for record in records] == [built]


def test_a_record_of_another_image_is_not_shown(packager: Packager, tmp_path: Path) -> None:
    with FakeRegistry(referrers=True) as registry:
        built = digest_of(packager(*BUILD, "--output", f"{registry.host}/a:1").out)
        other = packager(*BUILD, "--served-name", "other", "--output", "oci:o", "--record", "r")
        assert other.status == 0, other.err
        subject = Descriptor(media_type=MEDIA_MANIFEST, digest=built, size=1)
        hostile = attach_document(subject, (tmp_path / "r").read_bytes(), MEDIA_RECORD)
        for blob in hostile.blobs:
            registry.put("a", blob)
        registry.put_manifest("a", sha256(hostile.manifest), hostile.manifest, MEDIA_MANIFEST)

        (record,) = inspected(packager, f"{registry.host}/a:1")["attached_records"]

    assert record["served_name"] == "tiny-llama"


def test_a_terminal_is_told_that_the_record_is_unproven(packager: Packager) -> None:
    packager(*BUILD, "--output", "oci:out")

    shown = packager("inspect", "oci:out").out

    assert "attached   a build record, unproven: tiny-llama built by packager" in shown


def test_a_layout_of_another_tool_names_artifacts_as_entries(
    packager: Packager, tmp_path: Path
) -> None:
    """ORAS gives each artifact an entry of its own: the one image is found all the same."""
    packager(*BUILD, "--output", "oci:out")
    path = tmp_path / "out" / "index.json"
    index = json.loads(path.read_text())
    digest = index["manifests"][0]["annotations"].pop("dev.packager.attached")
    entry = {"mediaType": MEDIA_MANIFEST, "digest": digest, "size": 1}
    index["manifests"] = [{**entry, "artifactType": MEDIA_RECORD}, index["manifests"][0]]
    del index["manifests"][1]["annotations"]
    path.write_text(json.dumps(index))

    assert len(inspected(packager, "oci:out")["attached_records"]) == 1


def test_an_image_that_is_replaced_leaves_no_record_behind(
    packager: Packager, tmp_path: Path
) -> None:
    packager(*BUILD, "--output", "oci:out")
    first = len(list((tmp_path / "out/blobs/sha256").iterdir()))

    packager(*BUILD, "--served-name", "other", "--output", "oci:out")

    assert len(list((tmp_path / "out/blobs/sha256").iterdir())) == first


@pytest.mark.live
def test_a_registry_without_lists_keeps_the_record_under_the_fallback_tag(
    packager: Packager, tmp_path: Path
) -> None:
    (tmp_path / "registry").mkdir()
    with docker_registry(tmp_path / "registry") as host:
        done = packager(*BUILD, "--output", f"{host}/tiny:1")
        assert done.status == 0, done.err

        (record,) = inspected(packager, f"{host}/tiny:1")["attached_records"]

    assert record["digest"] == digest_of(done.out)
