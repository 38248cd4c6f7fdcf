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

from packager.core.tree_manifest import read_manifest
from packager.core.units import MIB
from packager.errors import AccessDenied, NotFound, OutputFailed, PackagerError, Unavailable
from packager.images import tee
from packager.images.trees import objects
from packager.images.trees.bucket import TreeBucket
from tests.integration.images.trees.building import MODEL, built, files_in
from tests.support.doubles.fault_proxy import Fault, FaultProxy
from tests.support.doubles.models import write_model
from tests.support.doubles.s3 import Bucket, bucket_server


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with bucket_server() as url:
        yield url


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    made = Bucket(server)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


def client(bucket: Bucket) -> Any:
    return boto3.client("s3", endpoint_url=bucket.environment["AWS_ENDPOINT_URL"])


def objects_in(bucket: Bucket) -> dict[str, bytes]:
    s3 = client(bucket)
    listed = s3.list_objects_v2(Bucket=bucket.name).get("Contents", ())
    return {
        one["Key"]: s3.get_object(Bucket=bucket.name, Key=one["Key"])["Body"].read()
        for one in listed
    }


def test_a_bucket_holds_the_files_of_a_directory_byte_for_byte(
    bucket: Bucket, tmp_path: Path
) -> None:
    record = built(f"{bucket.url}/a/b", f"dir:{tmp_path}/out")

    there = {key.removeprefix("a/b/"): data for key, data in objects_in(bucket).items()}
    here = {
        str(path.relative_to(tmp_path / "out")): path.read_bytes()
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    assert there == here
    assert {tree.digest for tree in record.trees} == {record.digest}
    digest = hashlib.sha256(there["packager-tree.json"]).hexdigest()
    assert record.digest == f"sha256:{digest}"
    assert [tree.name for tree in record.trees] == [
        f"{bucket.url}/a/b",
        f"dir:{tmp_path}/out",
    ]


def test_a_second_build_sends_nothing(bucket: Bucket, tmp_path: Path) -> None:
    built(f"{bucket.url}/m")
    before = objects_in(bucket)

    again = built(f"{bucket.url}/m")

    assert again.transfer.bytes_sent == 0
    assert objects_in(bucket) == before


def test_another_machine_believes_the_manifest_and_sends_nothing(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built(f"{bucket.url}/m")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))

    again = built(f"{bucket.url}/m")

    assert again.transfer.bytes_sent == 0


def test_an_object_that_somebody_replaced_is_sent_again(bucket: Bucket) -> None:
    built(f"{bucket.url}/m")
    size = len(objects_in(bucket)["m/config.json"])
    bucket.put("m/config.json", b"x" * size)
    bucket.delete("m/packager-tree.json")
    bucket.put("m/packager-tree.unfinished", json.dumps({"files": list_of(), "held": {}}).encode())

    again = built(f"{bucket.url}/m")

    assert objects_in(bucket)["m/config.json"] == Path(MODEL, "config.json").read_bytes()
    assert again.transfer.bytes_sent == size


def test_an_object_that_is_younger_than_its_manifest_is_not_believed(bucket: Bucket) -> None:
    built(f"{bucket.url}/m")
    size = len(objects_in(bucket)["m/config.json"])
    time.sleep(1.1)  # S3 counts seconds
    bucket.put("m/config.json", b"x" * size)

    again = built(f"{bucket.url}/m")

    assert objects_in(bucket)["m/config.json"] == Path(MODEL, "config.json").read_bytes()
    assert again.transfer.bytes_sent == size


def test_the_note_of_a_build_that_was_killed_after_its_manifest_is_removed(bucket: Bucket) -> None:
    built(f"{bucket.url}/m")
    whole = objects_in(bucket)
    names = [key.removeprefix("m/") for key in whole if key != "m/packager-tree.json"]
    note = {"files": names, "held": {}}
    bucket.put("m/packager-tree.unfinished", json.dumps(note).encode())

    again = built(f"{bucket.url}/m")

    assert again.transfer.bytes_sent == 0
    assert objects_in(bucket) == whole


def list_of() -> list[str]:
    files = [path.name for path in Path(MODEL).iterdir()]
    serving = ("command.json", "inputs_adapter.py", "launch.py", "sitecustomize.py")
    return [*files, *(f"serving/{name}" for name in serving)]


def test_objects_of_the_tree_before_are_removed_after_the_manifest(
    bucket: Bucket, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(MODEL, model)
    (model / "README.md").write_text("# a page\n")
    built(f"{bucket.url}/m", model=str(model))
    (model / "README.md").unlink()

    built(f"{bucket.url}/m", model=str(model))

    assert "m/README.md" not in objects_in(bucket)
    assert "m/packager-tree.unfinished" not in objects_in(bucket)
    files = read_manifest(objects_in(bucket)["m/packager-tree.json"]).files
    assert {f"m/{file.path}" for file in files} | {"m/packager-tree.json"} == set(
        objects_in(bucket)
    )


def test_a_prefix_with_objects_of_others_is_refused_before_any_work(bucket: Bucket) -> None:
    bucket.put("m/notes.txt", b"mine")

    with pytest.raises(OutputFailed, match=r"'notes.txt' is none of its files"):
        built(f"{bucket.url}/m")

    assert objects_in(bucket) == {"m/notes.txt": b"mine"}


def test_a_prefix_beside_is_no_part_of_the_tree(bucket: Bucket) -> None:
    bucket.put("model-old/notes.txt", b"mine")

    built(f"{bucket.url}/model")

    assert objects_in(bucket)["model-old/notes.txt"] == b"mine"


def test_a_bucket_that_is_not_there_is_named(bucket: Bucket) -> None:
    with pytest.raises(NotFound, match="there is no bucket 'nowhere-at-all'"):
        built("s3://nowhere-at-all/m")


def test_a_build_that_broke_off_sends_only_what_is_missing(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
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
        built(f"{bucket.url}/m", model=str(model))
    assert "m/packager-tree.json" not in objects_in(bucket)
    assert len(sent) == 4
    before = sum(sent)
    monkeypatch.setattr(objects.WritableBucket, "call", call)

    again = built(f"{bucket.url}/m", model=str(model))

    there = objects_in(bucket)
    files = read_manifest(there["m/packager-tree.json"]).files
    small = sum(file.size for file in files if file.size < 5 * MIB)  # some were sent before
    left = sum(file.size for file in files) - before
    assert left - small <= again.transfer.bytes_sent <= left
    for path in model.iterdir():
        assert there[f"m/{path.name}"] == path.read_bytes(), path.name


SHARD = r"model-00002-of-00003"


@pytest.fixture
def proxy(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """A line to the server that can break."""
    with FaultProxy(bucket.host) as made:
        monkeypatch.setenv("AWS_ENDPOINT_URL", made.url)
        yield made


@pytest.mark.parametrize(
    "fault",
    [
        Fault("answer", path=SHARD, method="PUT", status=503),
        Fault("answer", path=SHARD, method="PUT", status=500),
        Fault("reset", path=SHARD, method="PUT", at=300_000),
        Fault("reset", path="packager-tree.json", method="PUT"),
    ],
    ids=["throttled", "server error", "cut", "manifest cut"],
)
def test_an_upload_that_breaks_once_is_repeated(
    bucket: Bucket, proxy: FaultProxy, fault: Fault
) -> None:
    proxy.add(fault)

    built(f"{bucket.url}/m")

    there = objects_in(bucket)
    for file in read_manifest(there["m/packager-tree.json"]).files:
        assert hashlib.sha256(there[f"m/{file.path}"]).hexdigest() == file.sha256


def test_a_bucket_that_stays_away_is_named_and_gets_no_manifest(
    bucket: Bucket, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tee, "BACKOFF_S", 0.01)
    proxy.add(Fault("answer", path=SHARD, method="PUT", status=503, times=99))

    with pytest.raises(Unavailable, match=f"S3 answers 503 for bucket '{bucket.name}'"):
        built(f"{bucket.url}/m")

    assert "m/packager-tree.json" not in objects_in(bucket)
    assert "m/packager-tree.unfinished" in objects_in(bucket)


@pytest.mark.parametrize(
    ("status", "told", "hint"),
    [
        (403, "S3 refuses access to bucket", "s3:PutObject"),
        (507, "is full", "free some space"),
    ],
)
def test_what_does_not_pass_ends_the_build_at_once(
    bucket: Bucket, proxy: FaultProxy, status: int, told: str, hint: str
) -> None:
    proxy.add(Fault("answer", path=SHARD, method="PUT", status=status, times=99))

    with pytest.raises(PackagerError, match=told) as failed:
        built(f"{bucket.url}/m")

    assert hint in failed.value.hint
    assert len(proxy.requests("PUT", SHARD)) == 1
    assert "m/packager-tree.json" not in objects_in(bucket)


def test_an_object_that_changes_meanwhile_gets_no_manifest(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = TreeBucket._check_unchanged

    def meddled(self: TreeBucket) -> None:
        bucket.put("m/config.json", b"another build's")
        check(self)

    monkeypatch.setattr(TreeBucket, "_check_unchanged", meddled)

    with pytest.raises(OutputFailed, match=r"m/config.json' changed while the tree was written"):
        built(f"{bucket.url}/m")

    assert "m/packager-tree.json" not in objects_in(bucket)


def test_no_manifest_is_there_while_objects_change(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A server that looks for the manifest never loads half of one tree and half of another."""
    model = write_model(tmp_path / "model")
    built(f"{bucket.url}/m", model=model)
    write_model(tmp_path / "model", seed=3)
    seen: list[tuple[str, bool]] = []
    call = objects.WritableBucket.call

    def noted(self: objects.WritableBucket, operation: str, **request: Any) -> Any:
        if operation == "put_object":
            name = request["Key"].removeprefix("m/")
            seen.append((name, "m/packager-tree.json" in objects_in(bucket)))
        return call(self, operation, **request)

    monkeypatch.setattr(objects.WritableBucket, "call", noted)

    built(f"{bucket.url}/m", model=model)

    assert seen[0] == ("packager-tree.unfinished", True)
    assert seen[-1][0] == "packager-tree.json"
    assert {there for _, there in seen[1:]} == {False}
    assert len(seen) > 3


def test_every_object_is_sent_with_its_checksum(bucket: Bucket, proxy: FaultProxy) -> None:
    built(f"{bucket.url}/m")

    for key, data in objects_in(bucket).items():
        [sent] = [one for one in proxy.requests("PUT") if one.path.endswith(f"/{key}")]
        digest = hashlib.sha256(data)
        expected = base64.b64encode(digest.digest()).decode()
        assert sent.headers["x-amz-checksum-sha256"] == expected, key
        assert sent.headers["x-amz-meta-packager-sha256"] == digest.hexdigest()


def test_image_and_bucket_come_of_one_build(bucket: Bucket, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", hidden_size=1024, intermediate_size=2048)

    record = built(f"{bucket.url}/m", f"oci:{tmp_path}/image", model=model, base="scratch")
    again = built(f"{bucket.url}/m", f"oci:{tmp_path}/image", model=model, base="scratch")

    there = objects_in(bucket)
    for path in model.iterdir():
        assert there[f"m/{path.name}"] == path.read_bytes(), path.name
    weights = sum(path.stat().st_size for path in model.glob("*.safetensors"))
    assert weights < record.transfer.bytes_read < weights + 100_000
    assert (again.transfer.bytes_sent, again.digest) == (0, record.digest)


def test_a_model_of_a_bucket_is_read_once_for_image_and_tree(
    bucket: Bucket, proxy: FaultProxy, tmp_path: Path
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
    assert files_in(tmp_path / "tree") == {
        key.removeprefix("m/"): data
        for key, data in objects_in(bucket).items()
        if key.startswith("m/")
    }


def _is_large(seen: Any) -> bool:
    """Whether a request was for more than a header."""
    first, _, last = (
        seen.headers.get("range", "bytes=0-999999").removeprefix("bytes=").partition("-")
    )
    return int(last) - int(first) > 200_000


def test_what_is_written_is_encrypted_with_the_key_that_is_named(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACKAGER_S3_KMS_KEY", "alias/own")
    built(f"{bucket.url}/m")

    s3 = client(bucket)
    found = {key: s3.head_object(Bucket=bucket.name, Key=key) for key in objects_in(bucket)}
    assert {one.get("SSEKMSKeyId") for one in found.values()} == {"alias/own"}
    assert len(found) > 3
