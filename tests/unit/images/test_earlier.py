"""Layers recognised by what is proven of them, and hints of what may be there."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from packager.core.image import Blob, FileRange, Inline, Layer
from packager.core.model import ModelFile
from packager.images import remote_layers
from packager.images.claims import Claim, ClaimDocument, ClaimKey, read_claims, write_claims
from packager.images.layer_plan import model_layers
from packager.images.remote_layers import RemoteLayerIndex, content_digest, read_earlier
from tests.support.cases import cases

DIRECTORY = "/opt/packager/model"
DIGEST = "sha256:" + "d" * 64
REPOSITORY = "registry.test/team/model"
KEY = ClaimKey(b"k" * 32)


def file(path: str, size: int = 2_000_000, sha256: str = "a" * 64) -> ModelFile:
    content = FileRange(path=f"/m/{path}", offset=0, length=size)
    return ModelFile(path=path, content=content, role="weights", sha256=sha256)


def weights(**changes: Any) -> Layer:
    found = replace(file("model.safetensors"), **changes)
    return model_layers([found], base_layers=0, directory=DIRECTORY)[0]


def claimed(layer: Layer, digest: str = DIGEST, key: ClaimKey = KEY, **changes: Any) -> Any:
    claim = Claim(role=layer.role, content=layer.content, size=layer.size, digest=digest)
    return read_claims(write_claims(key, REPOSITORY, [replace(claim, **changes)]))


def proven(*documents: ClaimDocument, key: ClaimKey | None = KEY) -> RemoteLayerIndex:
    return read_earlier([], documents, key=key, repository=REPOSITORY)


def manifest_of(layer: Layer, digest: str = DIGEST, **changes: Any) -> bytes:
    entry = {
        "mediaType": layer.media_type,
        "digest": digest,
        "size": layer.size,
        "annotations": {**layer.annotations, "dev.packager.content": layer.content},
    }
    return json.dumps({"schemaVersion": 2, "layers": [{**entry, **changes}]}).encode()


def test_what_a_manifest_says_of_contents_proves_nothing() -> None:
    found = read_earlier([manifest_of(weights())], key=KEY, repository=REPOSITORY)

    assert found.digest_of(weights()) == ""
    assert found.has_similar(weights())


@cases("whatever_changes_the_tar_changes_the_content")
def test_whatever_changes_the_tar_changes_the_content(changes: dict[str, Any]) -> None:
    assert proven(claimed(weights())).digest_of(weights(**changes)) == ""


def test_another_tar_format_is_another_content(monkeypatch: pytest.MonkeyPatch) -> None:
    before = content_digest([file("a")], DIRECTORY)
    monkeypatch.setattr(remote_layers, "TAR_FORMAT", 2)

    assert content_digest([file("a")], DIRECTORY) != before


def part(header: bytes = b"header", offset: int = 8, part_of: str = "a" * 64) -> ModelFile:
    data = FileRange(path="/m/whole", offset=offset, length=2_000_000)
    whole = file("model.safetensors")
    content = Blob((Inline(header), data))
    return replace(whole, content=content, sha256="", part_of=part_of)


@pytest.mark.parametrize(
    "other",
    [part(b"other!"), part(offset=16), part(part_of="b" * 64)],
    ids=["header", "range", "original"],
)
def test_a_part_of_a_file_is_named_by_how_it_is_made(other: ModelFile) -> None:
    assert content_digest([part()], DIRECTORY) == content_digest([part()], DIRECTORY) != ""
    assert content_digest([other], DIRECTORY) != content_digest([part()], DIRECTORY)
    assert content_digest([part(part_of="")], DIRECTORY) == ""


def test_a_file_of_the_artifact_cache_is_not_named_by_what_the_cache_remembers() -> None:
    """Its bytes may have been changed since: a claim would carry that to every machine."""
    cached = FileRange(path="/cache/blob", offset=0, length=2_000_000, sha256="a" * 64)

    assert content_digest([replace(file("a"), content=cached)], DIRECTORY) == ""
    assert content_digest([replace(part(), content=Blob((cached,)))], DIRECTORY) == ""


def test_the_order_of_files_does_not_matter() -> None:
    files = [file("a"), file("b", sha256="b" * 64)]

    assert content_digest(files, DIRECTORY) == content_digest(files[::-1], DIRECTORY)


def test_what_a_layer_holds_stands_in_no_annotation() -> None:
    """The digest of an image depended on whether a step's result could be cached."""
    named, unnamed = weights(), weights(sha256="")

    assert dict(named.annotations) == dict(unnamed.annotations) == {"dev.packager.role": "weights"}
    assert named.content != "" == unnamed.content


def test_a_layer_whose_content_has_no_name_is_worth_hashing_where_one_is_alike() -> None:
    found = read_earlier([manifest_of(weights())])

    assert found.digest_of(weights(sha256="")) == ""
    assert found.has_similar(weights(sha256=""))


def test_a_layer_that_is_said_to_hold_something_else_is_not_worth_hashing() -> None:
    other = weights(sha256="b" * 64)
    said = [claimed(other, key=ClaimKey(b"?" * 32))]

    found = read_earlier([manifest_of(other)], said, key=KEY, repository=REPOSITORY)

    assert found.digest_of(other) == ""
    assert found.has_similar(other)
    assert not found.has_similar(weights())
    assert found.has_similar(weights(sha256=""))


@cases("claims")
def test_a_claim_counts_unless_another_of_our_key_contradicts_it(
    claims: list[tuple[str, str]], key: str, found: str
) -> None:
    keys = {"ours": KEY, "theirs": ClaimKey(b"?" * 32)}
    documents = [claimed(weights(), digest, keys[of]) for digest, of in claims]

    assert proven(*documents, key=keys.get(key)).digest_of(weights()) == found


@cases("a_claim_about_another_layer_counts_for_nothing")
def test_a_claim_about_another_layer_counts_for_nothing(changes: dict[str, Any]) -> None:
    assert proven(claimed(weights(), **changes)).digest_of(weights()) == ""


@cases("broken")
def test_a_broken_entry_is_passed_over(fields: str) -> None:
    broken = manifest_of(weights(), **json.loads(fields))

    assert not read_earlier([broken]).has_similar(weights())
    assert read_earlier([broken, manifest_of(weights())]).has_similar(weights())


@cases("no_manifest")
def test_what_is_no_manifest_says_nothing(manifest: bytes) -> None:
    assert read_earlier([manifest]) == RemoteLayerIndex()
