"""A hub's files as segments: streamed, resumed, proven, and never with a token elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from artifact_cache.waits import retry_after_s
from packager.core.errors import Unavailable
from packager.core.image import Blob, RemoteRange
from packager.core.remote.addresses import HubAddress, S3Address, content_of, parse_hub, parse_s3
from packager.core.remote.resume import CHUNK, BrokenOff, read_resumed
from packager.images.digest_index import fingerprint_of
from tests.support.cases import cases_of
from tests.support.doubles.models import write_model

cases = cases_of(__file__)

COMMIT = "0123456789" * 4


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", hidden_size=256, intermediate_size=512)


@pytest.mark.parametrize("path", ["model.safetensors", "a b/ü?#&%41=.json", "x@sha256:y"])
def test_addresses_are_read_as_they_were_written(path: str) -> None:
    on_hub = HubAddress(name="org/name", commit=COMMIT, path=path, size=7, sha256="ab" * 32)
    in_bucket = S3Address(bucket="models", key=path, size=7, etag='"ab-2"', modified_us=5)

    assert parse_hub(on_hub.url) == on_hub
    assert parse_s3(in_bucket.url) == in_bucket


def whole(url: str, *, offset: int = 0, length: int = 7) -> RemoteRange:
    return RemoteRange(url=url, offset=offset, length=length)


SHA = "ab" * 32
ON_HUB = f"hf://org/name@{COMMIT}/m.safetensors?size=7&sha256={SHA}"
IN_BUCKET = "s3://models/m.safetensors?size=7&etag=%22ab%22&modified=5"


@pytest.mark.parametrize("url", [ON_HUB, IN_BUCKET, f"registry://host/name@sha256:{SHA}"])
def test_a_pinned_file_is_known_again(url: str) -> None:
    assert fingerprint_of(Blob((whole(url),))) is not None
    assert fingerprint_of(Blob((whole(url),))) == fingerprint_of(Blob((whole(url),)))


def test_a_file_of_a_hub_and_one_of_a_bucket_differ() -> None:
    assert fingerprint_of(Blob((whole(ON_HUB),))) != fingerprint_of(Blob((whole(IN_BUCKET),)))


def test_an_unchanged_shard_of_a_new_commit_is_known() -> None:
    newer = ON_HUB.replace("0123", "9123", 1)

    assert content_of(whole(newer)) == content_of(whole(ON_HUB)) == f"sha256:{SHA}"


@cases("not_pinned", offset=0, length=7)
def test_what_is_not_pinned_is_read_again(url: str, offset: int, length: int) -> None:
    segment = whole(url.format(commit=COMMIT, sha=SHA), offset=offset, length=length)
    assert fingerprint_of(Blob((segment,))) is None


SMALL = f"hf://org/name@{COMMIT}/config.json?size=7&git_sha1={COMMIT}"


@cases("other_contents")
def test_other_content_is_another_blob(of: str, part: str, by: str) -> None:
    one = {"hub": ON_HUB, "bucket": IN_BUCKET, "small": SMALL}[of]
    other = one.replace(part, by)
    assert other != one
    assert fingerprint_of(Blob((whole(one),))) != fingerprint_of(Blob((whole(other),)))


def test_a_connection_that_only_trickles_is_dropped() -> None:
    now = 0.0

    def trickle(done: int) -> Iterator[bytes]:
        nonlocal now
        while True:
            now += 50
            yield b"x"

    with pytest.raises(Unavailable, match="too slowly"):
        list(read_resumed(trickle, CHUNK, what="it", sleep=lambda _: None, clock=lambda: now))


def test_progress_forgives_earlier_failures() -> None:
    """A 140 GB download over a poor line breaks more often than six times."""
    data = hashlib.shake_128(b"x").digest(12 * CHUNK)

    def one_chunk(done: int) -> Iterator[bytes]:
        yield data[done : done + CHUNK]
        raise BrokenOff(Unavailable("gone"))

    assert b"".join(read_resumed(one_chunk, len(data), what="it", sleep=lambda _: None)) == data


@pytest.mark.parametrize(
    ("header", "seconds"), [(None, 0), ("3", 3), ("soon", 0), ("Thu, 01 Jan 1970 00:00:00 GMT", 0)]
)
def test_retry_after_is_read_or_ignored(header: str | None, seconds: float) -> None:
    assert retry_after_s(header) == seconds
