"""Data in buckets is read as files of this machine are, against a real S3 server."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from packager.core.errors import NotFound, UsageError
from packager.core.samples import Sample
from packager.models.samples import buckets
from packager.models.samples.buckets import is_bucket_data
from packager.models.samples.load import BrokenSamples, load_samples
from tests.support.buckets import bucket as bucket
from tests.support.buckets import server as server
from tests.support.cases import cases
from tests.support.doubles.s3 import Bucket
from tests.support.refusals import raises_code


def _rows(*rows: object) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def _texts(reference: str) -> list[str | None]:
    return [sample.text for sample in load_samples(reference).samples]


def test_what_an_endpoint_captured_is_read_below_its_dates(bucket: Bucket) -> None:
    asked = json.dumps({"inputs": "Once"})
    captured = {"captureData": {"endpointInput": {"data": asked, "encoding": "JSON"}}}
    bucket.put("capture/endpoint/AllTraffic/2026/11/23/00/rows.jsonl", _rows(captured))

    assert load_samples(f"{bucket.url}/capture/").samples == (Sample(prompt="Once"),)


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


@cases("broken")
def test_a_broken_manifest_is_refused(bucket: Bucket, manifest: str, told: str) -> None:
    bucket.put("list.manifest", manifest.encode())

    with pytest.raises(UsageError, match="manifest") as caught:
        load_samples(f"manifest:{bucket.url}/list.manifest")
    assert told in caught.value.message


def test_an_object_that_a_manifest_names_must_be_there(bucket: Bucket) -> None:
    bucket.put("list.manifest", json.dumps([{"prefix": f"{bucket.url}/"}, "a.jsonl"]).encode())

    with pytest.raises(NotFound, match=r"there is no 's3://.*/a\.jsonl'"):
        load_samples(f"manifest:{bucket.url}/list.manifest")


def test_what_is_not_there_is_not_found(bucket: Bucket) -> None:
    with pytest.raises(NotFound, match="there is no data at"):
        load_samples(f"{bucket.url}/nothing/")
    with pytest.raises(NotFound, match="there is no bucket 'other-bucket'"):
        load_samples("s3://other-bucket/data/")


def test_broken_rows_name_the_object(bucket: Bucket) -> None:
    bucket.put("data/a\x1b.jsonl", b"{\n")

    with pytest.raises(BrokenSamples) as caught:
        load_samples(f"{bucket.url}/data/")
    assert r"a\x1b.jsonl, line 1" in caught.value.message


@cases("too_much")
def test_too_much_is_refused_before_any_is_fetched(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, limit: str, most: int, words: str
) -> None:
    monkeypatch.setattr(buckets, limit, most)
    bucket.put("data/a.jsonl", _rows({"text": "one"}))
    bucket.put("data/b.jsonl", _rows({"text": "two"}))

    with raises_code("TooMuchData", match=words):
        load_samples(f"{bucket.url}/data/")


def test_nothing_is_kept(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    bucket.put("data/a.jsonl", _rows({"text": "one"}))

    assert _texts(f"{bucket.url}/data/") == ["one"]
    assert list(tmp_path.iterdir()) == []


@cases("references")
def test_references_of_buckets_are_known(reference: str, found: bool) -> None:
    assert is_bucket_data(reference) is found
