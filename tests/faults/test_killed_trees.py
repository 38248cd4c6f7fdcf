"""kill -9 while a tree is written: the old or the new one is complete, and the next mends it."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from packager.core.errors import OutputFailed
from packager.core.tree_manifest import read_manifest
from tests.faults.counters import never
from tests.faults.killing import Machine
from tests.faults.scale import LONG
from tests.integration.images.trees.building import built
from tests.support.doubles.models import write_model
from tests.support.doubles.s3 import Bucket, bucket_server
from tests.support.places import files_below

BUILD = ("build", "--instance", "local", "--quiet", "--format", "json")
MANIFEST = "packager-tree.json"
SMALL = 400_000  # what may be sent once more: small files, and a part whose note was lost


@dataclass(frozen=True)
class Models:
    """An older model, a newer one, and the tree of each."""

    older: Path
    newer: Path
    trees: tuple[dict[str, bytes], ...]
    seconds: float


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    root = tmp_path_factory.mktemp("models")
    sizes: dict[str, Any] = {"hidden_size": 1024, "intermediate_size": 2048, "shards": 2}
    older = write_model(root / "older" / "model", **sizes)
    newer = write_model(root / "newer" / "model", **sizes, seed=9)
    kept = "model-00001-of-00002.safetensors"
    shutil.copyfile(older / kept, newer / kept)
    (older / "README.md").write_text("# older\n")
    machine = Machine(root / "reference")
    machine.root.mkdir()
    trees, seconds = [], 0.0
    for model in (older, newer):
        started = time.monotonic()
        assert machine.run(*BUILD, "--model", str(model), "--output", "dir:tree") == 0, machine.err
        seconds = time.monotonic() - started
        trees.append(files_below(machine.root / "tree"))
    return Models(older, newer, tuple(trees), seconds)


@pytest.mark.parametrize("seed", range(200 if LONG else 10))
def test_a_directory_is_the_old_tree_or_the_new_one(
    models: Models, tmp_path: Path, seed: int
) -> None:
    machine = Machine(tmp_path)
    assert machine.run(*BUILD, "--model", str(models.older), "--output", "dir:tree") == 0
    new = (*BUILD, "--model", str(models.newer), "--output", "dir:tree")

    machine.kill(seed, 0.02, models.seconds * 1.3, *new)

    with never("incomplete_tag"):
        assert files_below(tmp_path / "tree") in models.trees
    with never("manual_cleanup"):
        assert machine.run(*new) == 0, machine.err
    with never("wrong_bytes"):
        assert files_below(tmp_path / "tree") == models.trees[1]
    with never("garbage_left"):
        assert list(tmp_path.glob(".tree*")) == []
        assert machine.garbage() == []


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with bucket_server() as url:
        yield url


@pytest.mark.parametrize("seed", range(100 if LONG else 8))
def test_a_bucket_has_a_manifest_only_beside_its_objects(
    models: Models, server: str, tmp_path: Path, seed: int
) -> None:
    bucket = Bucket(server)
    machine = Machine(tmp_path, bucket.environment)
    output = ("--output", f"{bucket.url}/m")
    assert machine.run(*BUILD, "--model", str(models.older), *output) == 0, machine.err
    new = (*BUILD, "--model", str(models.newer), *output)

    machine.kill(seed, 0.3, 3.0, *new)

    there = objects(bucket)
    if MANIFEST in there:
        with never("incomplete_tag"):
            for file in read_manifest(there[MANIFEST]).files:
                assert hashlib.sha256(there[file.path]).hexdigest() == file.sha256
    with never("manual_cleanup"):
        assert machine.run(*new) == 0, machine.err
    with never("sent_again"):
        sent = json.loads(machine.out)["transfer"]["bytes_sent"]
        shard = models.trees[1]["model-00002-of-00002.safetensors"]
        assert sent <= len(shard) + SMALL, "the first shard did not change"
        if there.get("model-00002-of-00002.safetensors") == shard:
            assert sent <= SMALL
    with never("wrong_bytes"):
        assert objects(bucket) == models.trees[1]
    with never("garbage_left"):
        assert bucket.client.list_multipart_uploads(Bucket=bucket.name).get("Uploads", []) == []


def objects(bucket: Bucket) -> dict[str, bytes]:
    names = (name for name in bucket.names() if name.startswith("m/"))
    return {name.removeprefix("m/"): bucket.get(name) for name in names}


def test_a_disk_that_fills_up_leaves_no_tree_and_no_garbage(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1 << 40, 0, 1 << 40))

    with pytest.raises(OutputFailed, match="no space left") as failed:
        built(f"dir:{small_disk}/tree")

    assert "free some space" in failed.value.hint
    with never("garbage_left"):
        assert list(small_disk.iterdir()) == []


def test_a_disk_that_is_too_small_is_refused_before_anything_is_read(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    with pytest.raises(OutputFailed, match="are free"):
        built(f"dir:{small_disk}/tree")

    assert list(small_disk.iterdir()) == []
