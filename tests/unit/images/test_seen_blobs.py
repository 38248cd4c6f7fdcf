"""Where blobs were seen: what is remembered, and that forgetting costs nothing."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from packager.core.image import Blob, Inline
from packager.images.digest_index import DigestIndex
from packager.images.seen_blobs import SeenBlobs

A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64


@pytest.fixture
def seen(tmp_path: Path) -> SeenBlobs:
    return SeenBlobs(tmp_path / "state" / "digests.sqlite", clock=itertools.count().__next__)


def test_repositories_are_told_for_one_registry_the_latest_first(seen: SeenBlobs) -> None:
    seen.add("r.example", "old", [A, B])
    seen.add("other.example", "elsewhere", [A])
    seen.add("r.example", "new", [A])

    assert seen.repositories("r.example", A) == ("new", "old")
    assert seen.repositories("r.example", B) == ("old",)


def test_a_repository_that_gives_a_blob_no_more_is_forgotten(seen: SeenBlobs) -> None:
    seen.add("r.example", "models", [A, B])

    seen.forget("r.example", "models", A)

    assert seen.repositories("r.example", A) == ()
    assert seen.repositories("r.example", B) == ("models",)


def test_it_shares_a_file_with_the_digest_index(tmp_path: Path) -> None:
    path = tmp_path / "digests.sqlite"
    blob = Blob((Inline(b"x"),))
    index = DigestIndex(path)
    index.put(blob, A, None, 0)

    SeenBlobs(path).add("r.example", "models", [A])

    assert index.get(blob) is None
    assert SeenBlobs(path).repositories("r.example", A) == ("models",)


@pytest.mark.parametrize("content", [b"not a database" * 1000, b""], ids=["damaged", "empty"])
def test_a_database_that_cannot_be_used_costs_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "digests.sqlite"
    path.write_bytes(content)
    path.chmod(0o400)

    SeenBlobs(path).forget("r.example", "models", A)

    assert SeenBlobs(path).repositories("r.example", A) == ()


def test_a_directory_in_its_place_costs_nothing(tmp_path: Path) -> None:
    SeenBlobs(tmp_path).add("r.example", "models", [A])

    assert SeenBlobs(tmp_path).repositories("r.example", A) == ()
