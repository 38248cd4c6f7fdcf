"""A hub's files as segments: streamed, resumed, proven, and never with a token elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from packager.core.image import Blob, RemoteRange
from packager.core.model import ModelFiles
from packager.errors import ModelRefused, ProtocolFailed, Unavailable
from packager.images.blobs import BlobReader
from packager.models.hub import HubSource
from packager.models.hub_stream import HubStreamSource
from packager.models.reference import parse_model_reference
from packager.remote.addresses import (
    HubAddress,
)
from packager.remote.hub import HubReader
from tests.support.doubles.fake_hub import FakeHub
from tests.unit.models.test_stream import COMMIT
from tests.unit.models.test_stream import model as model

SHARD = "model-00002-of-00003.safetensors"


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        yield hub


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
    return source.facts(parse_model_reference("hf://org/name"))


def content(found: ModelFiles, path: str) -> RemoteRange:
    (file,) = [file for file in found.files if file.path == path]
    assert isinstance(file.content, RemoteRange)
    return file.content


def test_a_streamed_model_is_the_one_that_would_be_downloaded(
    hub: FakeHub, cache: Path, model: Path, reader: HubReader
) -> None:
    hub.add("org/name", model)

    found = stream(hub, cache)

    down = HubSource(endpoint=hub.url, cache_dir=cache, token=hub.token).facts(
        parse_model_reference("org/name")
    )
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
