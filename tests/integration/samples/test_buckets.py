"""Data in buckets is read as files of this machine are, against a real S3 server."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from packager.core.samples import Message, Sample
from packager.errors import NotFound, UsageError
from packager.samples import buckets
from packager.samples.buckets import TooMuchData, is_bucket_data
from packager.samples.load import BrokenSamples, load_samples
from tests.support.doubles.s3 import Bucket, bucket_server

CHAT = {
    "messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Yes?"}]
}
SHAREGPT = {
    "conversations": [{"from": "human", "value": "Hello"}, {"from": "gpt", "value": "Yes?"}]
}
COMPLETIONS = {"prompt": "Once", "completion": " upon a time"}
CAPTURED = {
    "captureData": {
        "endpointInput": {
            "data": base64.b64encode(
                json.dumps({"messages": CHAT["messages"][:1]}).encode()
            ).decode(),
            "encoding": "BASE64",
        },
        "endpointOutput": {
            "data": json.dumps({"choices": [{"message": CHAT["messages"][1]}]}),
            "encoding": "JSON",
        },
    }
}
HELLO = Sample(
    messages=(Message(role="user", content="Hello"), Message(role="assistant", content="Yes?"))
)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with bucket_server() as url:
        yield url


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    bucket = Bucket(server)
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    return bucket


def _rows(*rows: object) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def _texts(reference: str) -> list[str | None]:
    return [sample.text for sample in load_samples(reference).samples]


@pytest.mark.parametrize(
    ("row", "sample"),
    [
        (CHAT, HELLO),
        (SHAREGPT, HELLO),
        (COMPLETIONS, Sample(prompt="Once", completion=" upon a time")),
        (CAPTURED, HELLO),
    ],
    ids=["chat", "sharegpt", "completions", "captured"],
)
def test_every_format_is_read_from_a_bucket(bucket: Bucket, row: object, sample: Sample) -> None:
    bucket.put("capture/endpoint/AllTraffic/2026/11/23/00/rows.jsonl", _rows(row))

    assert load_samples(f"{bucket.url}/capture/").samples == (sample,)


def test_one_object_is_read_and_not_what_begins_like_it(bucket: Bucket) -> None:
    bucket.put("data/a.jsonl", _rows({"text": "one"}))
    bucket.put("data/a.jsonl.bak.jsonl", _rows({"text": "two"}))

    assert _texts(f"{bucket.url}/data/a.jsonl") == ["one"]


def test_a_prefix_is_a_directory_where_there_is_one(bucket: Bucket) -> None:
    bucket.put("data/b.jsonl", _rows({"text": "b"}))
    bucket.put("data/below/a.json", _rows({"text": "a"}))
    bucket.put("data-of-another.jsonl", _rows({"text": "other"}))
    bucket.put("data/README", b"not data")
    bucket.put("data/empty.jsonl", b"")

    assert _texts(f"{bucket.url}/data") == ["b", "a"]


def test_a_prefix_without_a_directory_is_the_beginning_of_keys(bucket: Bucket) -> None:
    bucket.put("data/train-1.jsonl", _rows({"text": "1"}))
    bucket.put("data/train-2.jsonl", _rows({"text": "2"}))
    bucket.put("data/test.jsonl", _rows({"text": "3"}))

    assert _texts(f"{bucket.url}/data/train") == ["1", "2"]


def test_a_whole_bucket_is_read(bucket: Bucket) -> None:
    bucket.put("a.jsonl", _rows({"text": "one"}))

    assert _texts(bucket.url) == ["one"]


def test_a_manifest_names_its_objects(bucket: Bucket) -> None:
    bucket.put("data/a.jsonl", _rows({"text": "one"}))
    bucket.put("data/b.jsonl", _rows({"text": "two"}))
    manifest = [{"prefix": f"{bucket.url}/data/"}, "b.jsonl"]
    bucket.put("list.manifest", json.dumps(manifest).encode())

    assert _texts(f"manifest:{bucket.url}/list.manifest") == ["two"]


@pytest.mark.parametrize(
    ("manifest", "told"),
    [
        (b"[", "is not a manifest"),
        (b"[]", "does not begin with an object that has a prefix"),
        (b'["a.jsonl"]', "does not begin with an object that has a prefix"),
        (b'[{"prefix": "/etc/"}, "passwd"]', "its prefix is not s3://BUCKET/PREFIX"),
        (b'[{"prefix": "s3://models/"}]', "there are not names of objects"),
        (b'[{"prefix": "s3://models/"}, 7]', "there are not names of objects"),
    ],
)
def test_a_broken_manifest_is_refused(bucket: Bucket, manifest: bytes, told: str) -> None:
    bucket.put("list.manifest", manifest)

    with pytest.raises(UsageError, match="manifest") as caught:
        load_samples(f"manifest:{bucket.url}/list.manifest")
    assert told in caught.value.message


def test_an_object_that_a_manifest_names_must_be_there(bucket: Bucket) -> None:
    bucket.put("list.manifest", json.dumps([{"prefix": f"{bucket.url}/"}, "a.jsonl"]).encode())

    with pytest.raises(NotFound, match=r"there is no 's3://.*/a\.jsonl'"):
        load_samples(f"manifest:{bucket.url}/list.manifest")


def test_a_place_without_data_is_not_found(bucket: Bucket) -> None:
    with pytest.raises(NotFound, match="there is no data at"):
        load_samples(f"{bucket.url}/nothing/")


def test_a_bucket_that_is_not_there_is_not_found(bucket: Bucket) -> None:
    with pytest.raises(NotFound, match="there is no bucket 'other-bucket'"):
        load_samples("s3://other-bucket/data/")


def test_broken_rows_name_the_object(bucket: Bucket) -> None:
    bucket.put("data/a\x1b.jsonl", b"{\n")

    with pytest.raises(BrokenSamples) as caught:
        load_samples(f"{bucket.url}/data/")
    assert r"a\x1b.jsonl, line 1" in caught.value.message


def test_too_many_objects_are_refused_before_one_is_fetched(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "MOST_OBJECTS", 1)
    bucket.put("data/a.jsonl", _rows({"text": "one"}))
    bucket.put("data/b.jsonl", _rows({"text": "two"}))

    with pytest.raises(TooMuchData, match="holds more than 1 objects"):
        load_samples(f"{bucket.url}/data/")


def test_too_many_bytes_are_refused_before_one_is_fetched(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "MOST_BYTES", 5)
    bucket.put("data/a.jsonl", _rows({"text": "one"}))

    with pytest.raises(TooMuchData, match="holds more than 5 B"):
        load_samples(f"{bucket.url}/data/")


def test_nothing_stays_on_this_machine(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    bucket.put("data/a.jsonl", _rows({"text": "one"}))

    assert _texts(f"{bucket.url}/data/") == ["one"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("reference", "found"),
    [("s3://b/c", True), ("manifest:s3://b/c", True), ("./s3", False), ("manifest:a", False)],
)
def test_references_of_buckets_are_known(reference: str, found: bool) -> None:
    assert is_bucket_data(reference) is found
