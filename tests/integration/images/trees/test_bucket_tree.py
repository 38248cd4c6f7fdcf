"""Trees in buckets of a real S3 server: what is sent, what is not, and what a kill leaves."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from packager.core.errors import AccessDenied, NotFound, OutputFailed, PackagerError, Unavailable
from packager.core.record import BuildRecord
from packager.core.tree_manifest import ListedFile, read_manifest
from packager.core.units import MIB
from packager.images import tee
from packager.images.trees import objects
from packager.images.trees.bucket import TreeBucket
from tests.integration.images.trees.building import MODEL, built
from tests.support.cases import cases
from tests.support.doubles.fault_proxy import Action, Fault, FaultProxy
from tests.support.doubles.models import write_model
from tests.support.doubles.s3 import Bucket, bucket_server
from tests.support.places import files_below


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with bucket_server() as url:
        yield url


class TreeInBucket(Bucket):
    """A bucket, and the tree `m` in it."""

    def build(self, *outputs: str, **asked: Any) -> BuildRecord:
        return built(f"{self.url}/m", *outputs, **asked)

    def client(self) -> Any:
        return boto3.client("s3", endpoint_url=self.environment["AWS_ENDPOINT_URL"])

    def objects(self) -> dict[str, bytes]:
        return {name: self.get(name) for name in self.names()}

    def tree(self) -> dict[str, bytes]:
        return {
            key.removeprefix("m/"): data
            for key, data in self.objects().items()
            if key.startswith("m/")
        }

    def files(self) -> tuple[ListedFile, ...]:
        """Return what the manifest lists."""
        return read_manifest(self.get("m/packager-tree.json")).files

    def check_whole(self, model: Path) -> None:
        """All files of the model are there, byte for byte."""
        there = self.tree()
        for path in model.iterdir():
            assert there[path.name] == path.read_bytes(), path.name


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> TreeInBucket:
    made = TreeInBucket(server)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


def test_a_bucket_holds_the_files_of_a_directory(bucket: TreeInBucket, tmp_path: Path) -> None:
    record = bucket.build(f"dir:{tmp_path}/out")

    there = bucket.tree()
    assert there == files_below(tmp_path / "out")
    assert {tree.digest for tree in record.trees} == {record.digest}
    digest = hashlib.sha256(there["packager-tree.json"]).hexdigest()
    assert record.digest == f"sha256:{digest}"
    assert [tree.name for tree in record.trees] == [f"{bucket.url}/m", f"dir:{tmp_path}/out"]


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "on another machine"])
def test_a_second_build_sends_nothing(
    bucket: TreeInBucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, elsewhere: bool
) -> None:
    bucket.build()
    before = bucket.objects()
    if elsewhere:  # it believes the manifest
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))

    assert bucket.build().transfer.bytes_sent == 0
    assert bucket.objects() == before


@pytest.mark.parametrize("unfinished", [True, False], ids=["unfinished", "younger"])
def test_an_object_that_was_replaced_is_sent_again(bucket: TreeInBucket, unfinished: bool) -> None:
    bucket.build()
    size = len(bucket.get("m/config.json"))
    if unfinished:
        note = {"files": [*set(bucket.tree()) - {"packager-tree.json"}], "held": {}}
        bucket.delete("m/packager-tree.json")
        bucket.put("m/packager-tree.unfinished", json.dumps(note).encode())
    else:
        time.sleep(1.1)  # S3 counts seconds
    bucket.put("m/config.json", b"x" * size)

    again = bucket.build()

    assert bucket.get("m/config.json") == Path(MODEL, "config.json").read_bytes()
    assert again.transfer.bytes_sent == size


def test_the_note_of_a_build_killed_behind_its_manifest_goes(bucket: TreeInBucket) -> None:
    bucket.build()
    whole = bucket.objects()
    note = {"files": [*set(bucket.tree()) - {"packager-tree.json"}], "held": {}}
    bucket.put("m/packager-tree.unfinished", json.dumps(note).encode())

    assert bucket.build().transfer.bytes_sent == 0
    assert bucket.objects() == whole


def test_objects_of_the_tree_before_are_removed(bucket: TreeInBucket, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(MODEL, model)
    (model / "README.md").write_text("# a page\n")
    bucket.build(model=str(model))
    (model / "README.md").unlink()

    bucket.build(model=str(model))

    assert "README.md" not in bucket.tree()
    assert {file.path for file in bucket.files()} | {"packager-tree.json"} == set(bucket.tree())


def test_a_prefix_with_objects_of_others_is_refused_before_any_work(bucket: TreeInBucket) -> None:
    bucket.put("m/notes.txt", b"mine")

    with pytest.raises(OutputFailed, match=r"'notes.txt' is none of its files"):
        bucket.build()

    assert bucket.objects() == {"m/notes.txt": b"mine"}


def test_a_prefix_beside_is_no_part_of_the_tree(bucket: TreeInBucket) -> None:
    bucket.put("model-old/notes.txt", b"mine")

    built(f"{bucket.url}/model")

    assert bucket.objects()["model-old/notes.txt"] == b"mine"


def test_a_bucket_that_is_not_there_is_named(bucket: TreeInBucket) -> None:
    with pytest.raises(NotFound, match="there is no bucket 'nowhere-at-all'"):
        built("s3://nowhere-at-all/m")


def test_a_build_that_broke_off_sends_only_what_is_missing(
    bucket: TreeInBucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = write_model(tmp_path / "model", hidden_size=1024, intermediate_size=2048)
    sent: list[int] = []
    call = objects.WritableBucket.call

    def breaks(self: objects.WritableBucket, operation: str, **request: Any) -> Any:
        if operation == "upload_part":
            if len(sent) == 4:
                raise AccessDenied("S3 refuses access", hint="")
            sent.append(request["Body"].seek(0, 2))
            request["Body"].seek(0)
        return call(self, operation, **request)

    monkeypatch.setattr(objects.WritableBucket, "call", breaks)
    with pytest.raises(AccessDenied):
        bucket.build(model=str(model))
    assert "m/packager-tree.json" not in bucket.objects()
    assert len(sent) == 4
    before = sum(sent)
    monkeypatch.setattr(objects.WritableBucket, "call", call)

    again = bucket.build(model=str(model))

    files = bucket.files()
    small = sum(file.size for file in files if file.size < 5 * MIB)  # some were sent before
    left = sum(file.size for file in files) - before
    assert left - small <= again.transfer.bytes_sent <= left
    bucket.check_whole(model)


SHARD = r"model-00002-of-00003"


@pytest.fixture
def proxy(bucket: TreeInBucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """A line to the server that can break."""
    with FaultProxy(bucket.host) as made:
        monkeypatch.setenv("AWS_ENDPOINT_URL", made.url)
        yield made


@cases("broken_uploads", path=SHARD)
def test_a_broken_upload_is_repeated(
    bucket: TreeInBucket, proxy: FaultProxy, action: Action, path: str, more: dict[str, Any]
) -> None:
    proxy.add(Fault(action, path=path, method="PUT", **more))

    bucket.build()

    there = bucket.tree()
    for file in bucket.files():
        assert hashlib.sha256(there[file.path]).hexdigest() == file.sha256


def test_a_bucket_that_stays_away_is_named_and_gets_no_manifest(
    bucket: TreeInBucket, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tee, "BACKOFF_S", 0.01)
    proxy.add(Fault("answer", path=SHARD, method="PUT", status=503, times=99))

    with pytest.raises(Unavailable, match=f"S3 answers 503 for bucket '{bucket.name}'"):
        bucket.build()

    assert "m/packager-tree.json" not in bucket.objects()
    assert "m/packager-tree.unfinished" in bucket.objects()


@cases("what_does_not_pass_ends_the_build_at_once")
def test_what_does_not_pass_ends_the_build_at_once(
    bucket: TreeInBucket, proxy: FaultProxy, status: int, told: str, hint: str
) -> None:
    proxy.add(Fault("answer", path=SHARD, method="PUT", status=status, times=99))

    with pytest.raises(PackagerError, match=told) as failed:
        bucket.build()

    assert hint in failed.value.hint
    assert len(proxy.requests("PUT", SHARD)) == 1
    assert "m/packager-tree.json" not in bucket.objects()


def test_an_object_that_changes_meanwhile_gets_no_manifest(
    bucket: TreeInBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = TreeBucket._check_unchanged

    def meddled(self: TreeBucket) -> None:
        bucket.put("m/config.json", b"another build's")
        check(self)

    monkeypatch.setattr(TreeBucket, "_check_unchanged", meddled)

    with pytest.raises(OutputFailed, match=r"m/config.json' changed while the tree was written"):
        bucket.build()

    assert "m/packager-tree.json" not in bucket.objects()


def test_no_manifest_is_there_while_objects_change(
    bucket: TreeInBucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A server that looks for the manifest never loads half of one tree and half of another."""
    model = write_model(tmp_path / "model")
    bucket.build(model=model)
    write_model(tmp_path / "model", seed=3)
    seen: list[tuple[str, bool]] = []
    call = objects.WritableBucket.call

    def noted(self: objects.WritableBucket, operation: str, **request: Any) -> Any:
        if operation == "put_object":
            name = request["Key"].removeprefix("m/")
            seen.append((name, "m/packager-tree.json" in bucket.objects()))
        return call(self, operation, **request)

    monkeypatch.setattr(objects.WritableBucket, "call", noted)

    bucket.build(model=model)

    assert seen[0] == ("packager-tree.unfinished", True)
    beside = ["m.sbom.cdx.json", "m.provenance.json"]  # documents about the tree, after it
    assert [name for name, _ in seen[-3:]] == ["packager-tree.json", *beside]
    del seen[-2:]
    assert {there for _, there in seen[1:]} == {False}
    assert len(seen) > 3


def test_every_object_is_sent_with_its_checksum(bucket: TreeInBucket, proxy: FaultProxy) -> None:
    bucket.build()

    for key, data in bucket.objects().items():
        [sent] = [one for one in proxy.requests("PUT") if one.path.endswith(f"/{key}")]
        digest = hashlib.sha256(data)
        expected = base64.b64encode(digest.digest()).decode()
        assert sent.headers["x-amz-checksum-sha256"] == expected, key
        assert sent.headers["x-amz-meta-packager-sha256"] == digest.hexdigest()


def test_image_and_bucket_come_of_one_build(bucket: TreeInBucket, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", hidden_size=1024, intermediate_size=2048)

    record = bucket.build(f"oci:{tmp_path}/image", model=model, base="scratch")
    again = bucket.build(f"oci:{tmp_path}/image", model=model, base="scratch")

    bucket.check_whole(model)
    weights = sum(path.stat().st_size for path in model.glob("*.safetensors"))
    assert weights < record.transfer.bytes_read < weights + 100_000
    assert (again.transfer.bytes_sent, again.digest) == (0, record.digest)


def test_a_model_of_a_bucket_is_read_once_for_image_and_tree(
    bucket: TreeInBucket, proxy: FaultProxy, tmp_path: Path
) -> None:
    model = write_model(tmp_path / "model", hidden_size=256, intermediate_size=1024)
    bucket.upload(model, "source")

    built(
        f"{bucket.url}/m",
        f"oci:{tmp_path}/image",
        f"dir:{tmp_path}/tree",
        model=f"{bucket.url}/source",
        base="scratch",
        served_name="model",
    )

    read = [seen for seen in proxy.requests("GET", "source/model-00002") if _is_large(seen)]
    assert len(read) == 1
    assert files_below(tmp_path / "tree") == bucket.tree()


def _is_large(seen: Any) -> bool:
    """Whether a request was for more than a header."""
    first, _, last = (
        seen.headers.get("range", "bytes=0-999999").removeprefix("bytes=").partition("-")
    )
    return int(last) - int(first) > 200_000


def test_what_is_written_is_encrypted_with_the_key_that_is_named(
    bucket: TreeInBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACKAGER_S3_KMS_KEY", "alias/own")
    bucket.build()

    s3 = bucket.client
    found = {key: s3.head_object(Bucket=bucket.name, Key=key) for key in bucket.objects()}
    assert {one.get("SSEKMSKeyId") for one in found.values()} == {"alias/own"}
    assert len(found) > 3
