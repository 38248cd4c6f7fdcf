"""A hub's files as segments: streamed, resumed, proven, and never with a token elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from packager.adapters.blobs import BlobReader
from packager.adapters.digest_index import fingerprint_of
from packager.adapters.remote.addresses import (
    HubAddress,
    S3Address,
    content_of,
    parse_hub,
    parse_s3,
)
from packager.adapters.remote.hub import HubReader
from packager.adapters.remote.resume import CHUNK, BrokenOff, read_resumed, retry_after_s
from packager.adapters.sources.hub import HubSource
from packager.adapters.sources.hub_stream import HubStreamSource
from packager.core.image import Blob, RemoteRange
from packager.core.model import ModelFiles
from packager.errors import ModelRefused, ProtocolFailed, Unavailable
from tests.doubles.fake_hub import FakeHub
from tests.doubles.models import write_model

SHARD = "model-00002-of-00003.safetensors"
COMMIT = "0123456789" * 4


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        yield hub


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", hidden_size=256, intermediate_size=512)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "hub-cache"


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def reader(hub: FakeHub, waits: list[float]) -> HubReader:
    return HubReader(endpoint=hub.url, token=hub.token, sleep=waits.append)


def stream(hub: FakeHub, cache: Path, *, headers_only: bool = False) -> ModelFiles:
    source = HubStreamSource(
        endpoint=hub.url, cache_dir=cache, token=hub.token, headers_only=headers_only
    )
    return source.facts("hf://org/name")


def content(found: ModelFiles, path: str) -> RemoteRange:
    (file,) = [file for file in found.files if file.path == path]
    assert isinstance(file.content, RemoteRange)
    return file.content


def test_a_streamed_model_is_the_one_that_would_be_downloaded(
    hub: FakeHub, cache: Path, model: Path, reader: HubReader
) -> None:
    hub.add("org/name", model)

    found = stream(hub, cache)

    down = HubSource(endpoint=hub.url, cache_dir=cache, token=hub.token).facts("org/name")
    assert (found.ref, found.config, found.tensors) == (down.ref, down.config, down.tensors)
    assert [file.path for file in found.files] == [file.path for file in down.files]
    for file in found.files:
        streamed = b"".join(reader.read(content(found, file.path)))
        assert streamed == (model / file.path).read_bytes()


def test_only_small_files_pass_through_the_cache(hub: FakeHub, cache: Path, model: Path) -> None:
    hub.add("org/name", model)

    stream(hub, cache)

    kept = [path.name for path in cache.rglob("*") if path.is_symlink()]
    assert sorted(kept) == [
        "config.json",
        "model.safetensors.index.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_small_files_are_checked_before_anything_is_streamed(
    hub: FakeHub, cache: Path, model: Path
) -> None:
    (model / "tokenizer.json").write_bytes(b"PK\x03\x04" + bytes(99))
    hub.add("org/name", model)

    with pytest.raises(ModelRefused, match=r"tokenizer\.json"):
        stream(hub, cache)


def test_connections_that_drop_are_taken_up_where_they_broke(
    hub: FakeHub, cache: Path, model: Path, reader: HubReader, waits: list[float]
) -> None:
    hub.add("org/name", model)
    shard = content(stream(hub, cache), SHARD)
    hub.seen.clear()
    hub.drops[SHARD] = [200_000, 100_000]

    streamed = b"".join(reader.read(shard))

    assert streamed == (model / SHARD).read_bytes()
    ranges = [seen.range for seen in hub.seen if seen.path.startswith("/blobs/")]
    last = shard.length - 1
    assert ranges == ["", f"bytes=200000-{last}", f"bytes=300000-{last}"]
    assert len(waits) == 2


def test_a_server_without_ranges_is_read_again_and_skipped(
    hub: FakeHub, cache: Path, model: Path, reader: HubReader
) -> None:
    hub.add("org/name", model)
    shard = content(stream(hub, cache), SHARD)
    hub.ranges = False
    hub.drops[SHARD] = [200_000]

    assert b"".join(reader.read(shard)) == (model / SHARD).read_bytes()


def test_a_busy_hub_is_given_the_time_it_asks_for(
    hub: FakeHub, cache: Path, model: Path, reader: HubReader, waits: list[float]
) -> None:
    hub.add("org/name", model)
    shard = content(stream(hub, cache), SHARD)
    hub.busy[SHARD] = ["7", "9"]

    assert b"".join(reader.read(shard)) == (model / SHARD).read_bytes()
    assert waits == [7, 9]


def test_a_hub_that_stays_busy_is_unavailable_in_the_end(
    hub: FakeHub, cache: Path, model: Path, reader: HubReader, waits: list[float]
) -> None:
    hub.add("org/name", model)
    shard = content(stream(hub, cache), SHARD)
    hub.busy[SHARD] = ["1"] * 99

    with pytest.raises(Unavailable, match="429"):
        b"".join(reader.read(shard))
    assert len(waits) == 5


def test_the_last_bytes_of_wrong_content_are_never_handed_out(
    hub: FakeHub, cache: Path, model: Path, reader: HubReader
) -> None:
    hub.add("org/name", model)
    shard = content(stream(hub, cache), SHARD)
    hub.damaged[SHARD] = 1
    taken = bytearray()

    with pytest.raises(ModelRefused, match=f"'{SHARD}' is not what was listed: its digest"):
        for chunk in reader.read(shard):
            taken += chunk
    assert len(taken) < shard.length


def test_small_files_are_held_against_their_git_objects(
    hub: FakeHub, cache: Path, model: Path, reader: HubReader
) -> None:
    hub.add("org/name", model)
    config = content(stream(hub, cache), "config.json")
    forged = RemoteRange(
        url=config.url.replace("git_sha1=", "git_sha1=00"), offset=0, length=config.length
    )

    assert b"".join(reader.read(config)) == (model / "config.json").read_bytes()
    with pytest.raises(ModelRefused, match="its digest"):
        b"".join(reader.read(forged))


def test_a_file_of_another_length_is_refused_before_a_byte(
    hub: FakeHub, cache: Path, model: Path, reader: HubReader
) -> None:
    hub.add("org/name", model)
    shard = content(stream(hub, cache), SHARD)
    size = shard.length + 5
    longer = shard.url.replace(f"size={shard.length}", f"size={size}")

    with pytest.raises(ModelRefused, match=f"it has {shard.length} bytes, not {size}"):
        next(reader.read(RemoteRange(url=longer, offset=0, length=size)))


def test_a_file_without_a_digest_is_not_streamed(hub: FakeHub, reader: HubReader) -> None:
    address = HubAddress(name="org/name", commit=COMMIT, path=SHARD, size=3)

    with pytest.raises(ProtocolFailed, match="no digest") as caught:
        next(reader.read(RemoteRange(url=address.url, offset=0, length=3)))
    assert "--model org/name" in caught.value.hint


def test_the_token_stays_with_the_hub(
    hub: FakeHub, cache: Path, model: Path, reader: HubReader
) -> None:
    hub.add("org/name", model, private=True)
    shard = content(stream(hub, cache), SHARD)
    hub.drops[SHARD] = [200_000]
    b"".join(reader.read(shard))

    storage = urlsplit(hub.storage_url).netloc
    elsewhere = [seen for seen in hub.seen if seen.host == storage]
    assert len(elsewhere) == 5  # three headers, one file in two parts
    assert {seen.authorization for seen in elsewhere} == {""}
    resolved = [seen for seen in hub.seen if "/resolve/" in seen.path]
    assert {seen.authorization for seen in resolved} == {f"Bearer {hub.token}"}


def test_a_plan_of_a_streamed_model_reads_headers_only(
    hub: FakeHub, cache: Path, model: Path
) -> None:
    hub.add("org/name", model)

    stream(hub, cache, headers_only=True)

    assert hub.asked("/tokenizer.json") == []
    assert len(hub.asked("GET /blobs/")) == 3


def test_a_read_of_a_part_is_that_part(
    hub: FakeHub, cache: Path, model: Path, reader: HubReader
) -> None:
    hub.add("org/name", model)
    shard = content(stream(hub, cache), SHARD)
    part = RemoteRange(url=shard.url, offset=1000, length=2000)

    blob = BlobReader((reader,)).chunks(Blob((part,)))

    assert b"".join(map(bytes, blob)) == (model / SHARD).read_bytes()[1000:3000]


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


def test_an_unchanged_shard_of_a_new_commit_is_known() -> None:
    newer = ON_HUB.replace("0123", "9123", 1)

    assert content_of(whole(newer)) == content_of(whole(ON_HUB)) == f"sha256:{SHA}"


@pytest.mark.parametrize(
    "segment",
    [
        whole(f"hf://org/name@main/m.safetensors?size=7&sha256={SHA}"),
        whole(f"hf://org/name@{COMMIT}/m.safetensors?size=7"),
        whole(f"hf://org/name@{COMMIT}/x@sha256:{SHA}"),
        whole(ON_HUB, offset=1, length=6),
        whole(ON_HUB, length=6),
        whole("s3://models/m.safetensors?size=7&modified=5"),
        whole("s3://models/m.safetensors?size=7&etag=W/%22ab%22&modified=5"),
        whole("registry://host/name:tag"),
        whole(f"else://host/name@sha256:{SHA}"),
    ],
)
def test_what_is_not_pinned_is_read_again(segment: RemoteRange) -> None:
    assert fingerprint_of(Blob((segment,))) is None


SMALL = f"hf://org/name@{COMMIT}/config.json?size=7&git_sha1={COMMIT}"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ON_HUB, ON_HUB.replace("sha256=a", "sha256=c")),
        (ON_HUB, IN_BUCKET),
        (SMALL, SMALL.replace("@0123", "@9123")),
        (SMALL, SMALL.replace("config", "other")),
        (SMALL, SMALL.replace("git_sha1=0", "git_sha1=1")),
        (IN_BUCKET, IN_BUCKET.replace("models", "others")),
        (IN_BUCKET, IN_BUCKET.replace("m.safe", "n.safe")),
        (IN_BUCKET, IN_BUCKET.replace("ab", "cd")),
        (IN_BUCKET, IN_BUCKET.replace("modified=5", "modified=6")),
    ],
)
def test_other_content_is_another_blob(one: str, other: str) -> None:
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
