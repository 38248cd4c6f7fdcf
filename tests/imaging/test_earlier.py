"""Layers recognised by what a manifest says they hold."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from packager.core.image import Blob, FileRange, Inline, Layer
from packager.core.model import ModelFile
from packager.imaging import earlier
from packager.imaging.earlier import EarlierLayers, content_digest, read_earlier
from packager.imaging.layer_plan import model_layers

DIRECTORY = "/opt/packager/model"
DIGEST = "sha256:" + "d" * 64
OTHER = "sha256:" + "e" * 64


def file(path: str, size: int = 2_000_000, sha256: str = "a" * 64) -> ModelFile:
    content = FileRange(path=f"/m/{path}", offset=0, length=size)
    return ModelFile(path=path, content=content, role="weights", sha256=sha256)


def weights(**changes: Any) -> Layer:
    found = replace(file("model.safetensors"), **changes)
    return model_layers([found], base_layers=0, directory=DIRECTORY)[0]


def manifest_of(layer: Layer, digest: str = DIGEST, **changes: Any) -> bytes:
    entry = {
        "mediaType": layer.media_type,
        "digest": digest,
        "size": layer.size,
        "annotations": dict(layer.annotations),
    }
    return json.dumps({"schemaVersion": 2, "layers": [{**entry, **changes}]}).encode()


def test_a_layer_is_recognised_by_the_contents_of_its_files() -> None:
    assert read_earlier([manifest_of(weights())]).digest_of(weights()) == DIGEST


@pytest.mark.parametrize(
    "changes",
    [{"sha256": "b" * 64}, {"path": "other.safetensors"}, {"executable": True}],
    ids=["content", "path", "mode"],
)
def test_whatever_changes_the_tar_changes_the_content(changes: dict[str, Any]) -> None:
    found = read_earlier([manifest_of(weights())])

    assert found.digest_of(weights(**changes)) == ""


def test_another_tar_format_is_another_content(monkeypatch: pytest.MonkeyPatch) -> None:
    before = content_digest([file("a")], DIRECTORY)
    monkeypatch.setattr(earlier, "TAR_FORMAT", 2)

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


def test_the_order_of_files_does_not_matter() -> None:
    files = [file("a"), file("b", sha256="b" * 64)]

    assert content_digest(files, DIRECTORY) == content_digest(files[::-1], DIRECTORY)


def test_a_file_whose_content_has_no_name_leaves_the_layer_without_one() -> None:
    layer = weights(sha256="")

    assert dict(layer.annotations) == {"dev.packager.role": "weights"}
    found = read_earlier([manifest_of(layer)])
    assert found.digest_of(layer) == ""
    assert found.has_alike(layer)


def test_two_digests_for_one_content_are_none() -> None:
    found = read_earlier([manifest_of(weights()), manifest_of(weights(), OTHER)] * 2)

    assert found.digest_of(weights()) == ""


def test_a_wrong_size_counts_for_nothing() -> None:
    found = read_earlier([manifest_of(weights(), size=weights().size + 512)])

    assert found.digest_of(weights()) == ""
    assert not found.has_alike(weights())


@pytest.mark.parametrize(
    "changes",
    [
        {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip"},
        {"digest": "sha512:" + "d" * 128},
        {"digest": "sha256:../../etc/passwd"},
        {"digest": 7},
        {"size": "many"},
        {"size": float("inf")},
        {"annotations": ["dev.packager.content"]},
        {"annotations": {"dev.packager.role": ["weights"]}},
        {"annotations": {"dev.packager.role": "weights", "dev.packager.content": {}}},
    ],
    ids=lambda changes: str(changes)[:60],
)
def test_a_broken_entry_is_passed_over(changes: dict[str, Any]) -> None:
    found = read_earlier([manifest_of(weights(), **changes), manifest_of(weights(path="b"))])

    assert found.digest_of(weights()) == ""
    assert found.digest_of(weights(path="b")) == DIGEST


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"\xff" * 100,
        b"[]",
        b"{}",
        b'{"layers": 7}',
        b'{"layers": [1, null, "x", []]}',
        b"[" * 1_000_000,
        b'{"layers": [' + b"[" * 1_000_000,
    ],
    ids=["empty", "binary", "list", "object", "number", "no objects", "deep", "deep layers"],
)
def test_what_is_no_manifest_says_nothing(manifest: bytes) -> None:
    assert read_earlier([manifest]) == EarlierLayers()
