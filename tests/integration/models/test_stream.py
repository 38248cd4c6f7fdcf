"""A hub's files as segments: streamed, resumed, proven, and never with a token elsewhere."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from packager.core.errors import ModelRefused, ProtocolFailed, Unavailable
from packager.core.image import Blob, RemoteRange
from packager.core.remote.addresses import HubAddress
from packager.core.remote.hub import HubReader
from packager.images.blobs import BlobReader
from tests.support.model_places import SHARD, Place, content
from tests.support.model_places import place as place
from tests.unit.models.test_stream import COMMIT


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def reader(place: Place, waits: list[float]) -> HubReader:
    return HubReader(endpoint=place.hub.url, token=place.hub.token, sleep=waits.append)


@pytest.fixture
def shard(place: Place) -> RemoteRange:
    """The second shard of the published model, left where it is."""
    place.publish()
    return content(place.stream(), SHARD)


def test_a_streamed_model_is_what_is_downloaded(place: Place, reader: HubReader) -> None:
    place.publish()

    found = place.stream()

    down = place.facts()
    assert (found.ref, found.config, found.tensors) == (down.ref, down.config, down.tensors)
    assert [file.path for file in found.files] == [file.path for file in down.files]
    for file in found.files:
        streamed = b"".join(reader.read(content(found, file.path)))
        assert streamed == (place.model / file.path).read_bytes()


def test_only_small_files_pass_through_the_cache(place: Place) -> None:
    place.publish()

    place.stream()

    kept = [path.name for path in place.cache.rglob("*") if path.is_symlink()]
    assert sorted(kept) == [
        "config.json",
        "model.safetensors.index.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_connections_that_drop_are_taken_up_where_they_broke(
    place: Place, reader: HubReader, shard: RemoteRange, waits: list[float]
) -> None:
    place.hub.seen.clear()
    place.hub.drops[SHARD] = [200_000, 100_000]

    assert b"".join(reader.read(shard)) == (place.model / SHARD).read_bytes()
    ranges = [seen.range for seen in place.hub.seen if seen.path.startswith("/blobs/")]
    last = shard.length - 1
    assert ranges == ["", f"bytes=200000-{last}", f"bytes=300000-{last}"]
    assert len(waits) == 2


def test_a_server_without_ranges(place: Place, reader: HubReader, shard: RemoteRange) -> None:
    place.hub.ranges = False
    place.hub.drops[SHARD] = [200_000]

    assert b"".join(reader.read(shard)) == (place.model / SHARD).read_bytes()


def test_a_busy_hub_is_given_its_time(
    place: Place, reader: HubReader, shard: RemoteRange, waits: list[float]
) -> None:
    place.hub.busy[SHARD] = ["7", "9"]

    assert b"".join(reader.read(shard)) == (place.model / SHARD).read_bytes()
    assert waits == [7, 9]


def test_a_hub_that_stays_busy_is_unavailable_in_the_end(
    place: Place, reader: HubReader, shard: RemoteRange, waits: list[float]
) -> None:
    place.hub.busy[SHARD] = ["1"] * 99

    with pytest.raises(Unavailable, match="429"):
        b"".join(reader.read(shard))
    assert len(waits) == 5


def test_wrong_content_is_not_complete(place: Place, reader: HubReader, shard: RemoteRange) -> None:
    place.hub.damaged[SHARD] = 1
    taken = bytearray()

    with pytest.raises(ModelRefused, match=f"'{SHARD}' is not what was listed: its digest"):
        for chunk in reader.read(shard):
            taken += chunk
    assert len(taken) < shard.length


def test_small_files_are_held_against_their_git_objects(place: Place, reader: HubReader) -> None:
    place.publish()
    config = content(place.stream(), "config.json")
    forged = RemoteRange(
        url=config.url.replace("git_sha1=", "git_sha1=00"), offset=0, length=config.length
    )

    assert b"".join(reader.read(config)) == (place.model / "config.json").read_bytes()
    with pytest.raises(ModelRefused, match="its digest"):
        b"".join(reader.read(forged))


def test_a_file_of_another_length_is_refused(reader: HubReader, shard: RemoteRange) -> None:
    size = shard.length + 5
    longer = shard.url.replace(f"size={shard.length}", f"size={size}")

    with pytest.raises(ModelRefused, match=f"it has {shard.length} bytes, not {size}"):
        next(reader.read(RemoteRange(url=longer, offset=0, length=size)))


def test_a_file_without_a_digest_is_not_streamed(reader: HubReader) -> None:
    address = HubAddress(name="org/name", commit=COMMIT, path=SHARD, size=3)

    with pytest.raises(ProtocolFailed, match="no digest") as caught:
        next(reader.read(RemoteRange(url=address.url, offset=0, length=3)))
    assert "--model org/name" in caught.value.hint


def test_the_token_stays_with_the_hub(place: Place, reader: HubReader) -> None:
    place.publish(private=True)
    shard = content(place.stream(), SHARD)
    place.hub.drops[SHARD] = [200_000]
    b"".join(reader.read(shard))

    storage = urlsplit(place.hub.storage_url).netloc
    elsewhere = [seen for seen in place.hub.seen if seen.host == storage]
    assert len(elsewhere) == 5  # three headers, one file in two parts
    assert {seen.authorization for seen in elsewhere} == {""}
    resolved = [seen for seen in place.hub.seen if "/resolve/" in seen.path]
    assert {seen.authorization for seen in resolved} == {f"Bearer {place.hub.token}"}


def test_a_read_of_a_part_is_that_part(place: Place, reader: HubReader, shard: RemoteRange) -> None:
    part = RemoteRange(url=shard.url, offset=1000, length=2000)

    blob = BlobReader((reader,)).chunks(Blob((part,)))

    assert b"".join(map(bytes, blob)) == (place.model / SHARD).read_bytes()[1000:3000]
