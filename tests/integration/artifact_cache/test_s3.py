"""The store in a bucket: a real server, and a proxy that breaks what is between."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from artifact_cache.entry import Entry, entry_bytes
from artifact_cache.errors import Corrupt, StoreUnavailable, Unpublishable
from artifact_cache.store import Capability, address_of
from artifact_cache.stores.s3 import S3Store
from tests.support.cache_buckets import HASTY, LIMITS, PART, RANGE, Place
from tests.support.cache_entries import CHECKPOINT, NEURON, VLLM, document, files_of
from tests.support.cache_stores import (
    TENSORS,
    built,
    damage,
    described,
    extracted,
    published,
    stored,
)
from tests.support.cases import cases
from tests.support.doubles.fault_proxy import Action, Fault, FaultProxy
from tests.support.running_jobs import until
from tests.support.store_contract import AtRest, DamageContract, StoreContract


@pytest.fixture
def proxy(server: str) -> Iterator[FaultProxy]:
    with FaultProxy(server.removeprefix("http://")) as made:
        yield made


def through(place: Place, proxy: FaultProxy, *faults: Fault, **options: Any) -> S3Store:
    """Return the store behind a line that has these faults once it works."""
    store = place.store(proxy.url, **options)
    store.capability()
    proxy.add(*faults)
    return store


def answer(method: str = "", status: int = 403, **more: Any) -> Fault:
    """Always give this answer instead of the server's."""
    return Fault("answer", method=method, status=status, **{"times": 99, "at": -1, **more})


def large(directory: Path, size: int) -> Entry:
    """Describe an artifact of one large file whose bytes do not repeat."""
    directory.mkdir(parents=True)
    (directory / "model.bin").write_bytes(bytes_of(size))
    return described(directory, CHECKPOINT)


def put_large(store: S3Store, directory: Path, size: int) -> Entry:
    entry = large(directory, size)
    assert store.put(entry, directory)
    return entry


def bytes_of(size: int) -> bytes:
    return array("Q", range(size // 8)).tobytes()


@dataclass
class InBucket:
    place: Place

    def change_blob(self, content: bytes, wrong: bytes | None) -> None:
        key = self.place.blob(content)
        self.place.remove(key) if wrong is None else self.place.damage(key, wrong)

    def read_entry(self) -> bytes:
        return self.place.read(self.place.keys("ac/")[0])

    def change_entry(self, data: bytes) -> None:
        self.place.damage(self.place.keys("ac/")[0], data)


class TestBucket(StoreContract, DamageContract):
    @pytest.fixture
    def store(self, place: Place) -> S3Store:
        return place.store()

    @pytest.fixture
    def at_rest(self, place: Place) -> AtRest:
        return InBucket(place)


def test_an_entry_says_in_which_bucket_it_was_found(place: Place, tmp_path: Path) -> None:
    published(place.store(), tmp_path / "a", CHECKPOINT)

    assert stored(place.store(), CHECKPOINT).tier == f"s3://{place.name}/p/v1/"


def test_the_layout_is_as_specified(place: Place, tmp_path: Path) -> None:
    entry = published(place.store(), tmp_path / "a", CHECKPOINT)

    digests = sorted(output.sha256 for output in entry.outputs)
    assert place.keys() == [
        "VERSION",
        f"ac/quantized-checkpoint/{entry.key[:2]}/{entry.key}.json",
        *(f"cas/sha256/{digest[:2]}/{digest}" for digest in digests),
    ]
    assert place.read("VERSION") == b'{"layout":1}\n'


def test_entries_are_paged(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = place.store()
    for seed in range(3):
        published(store, tmp_path / str(seed), document(seed))
    published(store, tmp_path / "b", VLLM)
    pages: list[int] = []
    call = store.bucket.call

    def two_a_page(operation: str, **request: object) -> object:
        if operation == "list_objects_v2":
            pages.append(1)
            request["MaxKeys"] = 2
        return call(operation, **request)  # type: ignore[arg-type]

    monkeypatch.setattr(store.bucket, "call", two_a_page)

    kinds = sorted(entry.kind for entry in store.list())
    assert kinds == [*["quantized-checkpoint"] * 3, "vllm-compile"]
    assert len(pages) == 2


def test_a_large_file_that_changed_leaves_no_upload_behind(place: Place, tmp_path: Path) -> None:
    store = place.store(partial=tmp_path / "partial")
    entry = large(tmp_path / "a", PART + RANGE)
    path = tmp_path / "a/model.bin"
    damage(path, path.read_bytes()[:-1] + b"!")

    with pytest.raises(Unpublishable):
        store.put(entry, tmp_path / "a")
    assert place.uploads() == []
    assert place.keys("cas/") == []
    assert list((tmp_path / "partial").iterdir()) == []


# --- damage at rest


def test_who_may_not_delete_can_still_heal(place: Place, proxy: FaultProxy, tmp_path: Path) -> None:
    published(place.store(), tmp_path / "a", CHECKPOINT)
    InBucket(place).change_blob(TENSORS, b"TENSORS" * 100)
    proxy.add(answer("DELETE"))
    store = place.store(proxy.url)

    with pytest.raises(Corrupt):
        extracted(store, CHECKPOINT, tmp_path / "out")
    assert store.get(address_of(CHECKPOINT)) is None
    assert len(place.keys("ac/")) == 1

    published(store, tmp_path / "b", CHECKPOINT)
    assert extracted(place.store(), CHECKPOINT, tmp_path / "again") == files_of(b"tensors")


@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_a_condition_that_nobody_set_cannot_fail(
    place: Place, proxy: FaultProxy, tmp_path: Path, method: str
) -> None:
    """A proxy that answers so ended the build with an exception of the store's own."""
    store = through(place, proxy, answer(method, 412))

    with pytest.raises(StoreUnavailable, match="it answers 412"):
        put_large(store, tmp_path / "a", PART)


def test_a_healed_blob_is_not_deleted_by_who_saw_the_bad_one(place: Place, tmp_path: Path) -> None:
    published(place.store(), tmp_path / "a", CHECKPOINT)
    key = place.blob(TENSORS)
    place.damage(key, b"TENSORS" * 100)
    late = place.store()
    set_aside = late._set_aside

    def after_the_healing(bad: str, etag: str) -> None:
        place.damage(key, TENSORS)
        set_aside(bad, etag)

    late._set_aside = after_the_healing  # type: ignore[method-assign]
    with pytest.raises(Corrupt):
        extracted(late, CHECKPOINT, tmp_path / "out")

    assert place.read(key) == TENSORS


def test_a_blob_is_no_larger_than_its_entry_says(place: Place, tmp_path: Path) -> None:
    """Not a byte of it is written: the size stands in the answer's head."""
    published(place.store(), tmp_path / "a", CHECKPOINT)
    InBucket(place).change_blob(b"{}", b"x" * 10 * RANGE)

    with pytest.raises(Corrupt, match="has not 2 bytes any more"):
        extracted(place.store(), CHECKPOINT, tmp_path / "out")
    assert not (tmp_path / "out/config.json").exists()


# --- damage on the way


@pytest.mark.parametrize("action", ["flip", "truncate", "reset", "drop"])
def test_broken_transfers(place: Place, proxy: FaultProxy, tmp_path: Path, action: Action) -> None:
    published(place.store(), tmp_path / "a", CHECKPOINT)
    path, times = ("cas/", 1) if action == "flip" else ("", 2)
    reader = through(place, proxy, Fault(action, method="GET", path=path, times=times))

    assert extracted(reader, CHECKPOINT, tmp_path / "out") == files_of(b"tensors")
    assert proxy.faults[0].hits == times


def test_a_broken_reader_does_not_empty_it(place: Place, proxy: FaultProxy, tmp_path: Path) -> None:
    """Damaged differently each time, it is not the bucket's fault."""
    put_large(place.store(), tmp_path / "a", 3 * RANGE)
    flips = [Fault("flip", method="GET", path="cas/", at=at) for at in range(9)]
    reader = through(place, proxy, *flips)

    with pytest.raises(StoreUnavailable, match="differently each time"):
        extracted(reader, CHECKPOINT, tmp_path / "out")

    assert len(place.keys("ac/")) == 1
    assert len(place.keys("cas/")) == 1


def test_a_large_blob_comes_in_ranges(place: Place, proxy: FaultProxy, tmp_path: Path) -> None:
    put_large(place.store(), tmp_path / "a", 12 * RANGE)
    cut = Fault("cut", method="GET", path="cas/", at=RANGE // 2, times=3)
    reader = through(place, proxy, cut)

    assert extracted(reader, CHECKPOINT, tmp_path / "out") == {"model.bin": bytes_of(12 * RANGE)}
    assert proxy.faults[0].hits == 3
    asked = [seen.headers["range"] for seen in proxy.requests("GET", "cas/")]
    assert len(asked) > len(set(asked)) == 12


# --- faults of the service


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(place: Place, proxy: FaultProxy, status: int) -> None:
    proxy.add(answer(status=status, times=3))

    assert place.store(proxy.url).capability() == Capability("read-write")


@pytest.mark.extended
@cases("slow", reason="")
def test_a_server_that_takes_more_time_than_there_is_is_given_up(
    place: Place, proxy: FaultProxy, fault: dict[str, Any], hasty: bool, reason: str
) -> None:
    proxy.add(Fault(**fault))
    started = time.monotonic()

    capability = place.store(proxy.url, limits=HASTY if hasty else LIMITS).capability()

    assert capability.mode == "off"
    assert reason in capability.reason
    assert time.monotonic() - started < 50  # each request alone would take longer


def test_a_server_that_is_not_there_turns_the_store_off(place: Place) -> None:
    store = place.store("http://127.0.0.1:9")

    assert store.capability() == Capability("off", "it does not answer")
    with pytest.raises(StoreUnavailable, match="does not answer"):
        store.get(address_of(CHECKPOINT))


def test_a_network_fault_ends_all_requests(place: Place, proxy: FaultProxy, tmp_path: Path) -> None:
    published(place.store(), tmp_path / "a", CHECKPOINT)
    store = through(place, proxy, Fault("reset", times=999))
    with pytest.raises(StoreUnavailable):
        store.get(address_of(CHECKPOINT))
    asked = len(proxy.exchanges)

    with pytest.raises(StoreUnavailable):
        store.get(address_of(NEURON))
    assert len(proxy.exchanges) == asked
    assert store.capability() == Capability("off", "it does not answer")


# --- rights


def test_who_may_not_write_may_read(place: Place, proxy: FaultProxy, tmp_path: Path) -> None:
    published(place.store(), tmp_path / "a", CHECKPOINT)
    proxy.add(answer("PUT"))
    store = place.store(proxy.url)

    assert store.capability() == Capability("read-only", "it refuses access (403)")
    assert extracted(store, CHECKPOINT, tmp_path / "out") == files_of(b"tensors")
    with pytest.raises(StoreUnavailable, match="refuses access"):
        store.put(built(tmp_path / "b", NEURON), tmp_path / "b")


def test_a_right_may_be_lost_later(place: Place, proxy: FaultProxy, tmp_path: Path) -> None:
    store = through(place, proxy, answer("PUT", path="cas/"))
    assert store.capability().mode == "read-write"

    with pytest.raises(StoreUnavailable, match="refuses access"):
        store.put(built(tmp_path / "a", NEURON), tmp_path / "a")
    assert store.capability() == Capability("read-only", "it refuses access (403)")


@cases("useless")
def test_a_useless_bucket_is_off(place: Place, proxy: FaultProxy, method: str, reason: str) -> None:
    proxy.add(answer(method))

    assert place.store(proxy.url).capability() == Capability("off", reason)


def test_a_bucket_that_does_not_exist_is_off(place: Place) -> None:
    place.name = "no-such-bucket-anywhere"

    assert place.store().capability() == Capability("off", "there is no such bucket")


def test_a_server_without_conditional_writes_is_only_read(place: Place, proxy: FaultProxy) -> None:
    """It would let a second entry replace the first."""
    proxy.add(answer("PUT", 200, headers={"ETag": '"x"'}))
    place.client.put_object(Bucket=place.name, Key="p/v1/VERSION", Body=b'{"layout":1}\n')

    assert place.store(proxy.url).capability() == Capability(
        "read-only", "the server ignores conditions of writes"
    )


def test_a_layout_of_another_version_is_not_touched(place: Place) -> None:
    place.client.put_object(Bucket=place.name, Key="p/v1/VERSION", Body=b'{"layout":2}\n')

    assert place.store().capability() == Capability("off", "another version laid it out")
    assert place.keys() == ["VERSION"]


def test_without_boto3_the_store_is_off(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)

    assert place.store().capability() == Capability(
        "off", "boto3 is not installed; `pip install 'boto3>=1.36'` does it"
    )


# --- writes whose answer is lost, and writers that meet


def test_a_lost_answer_is_no_second_entry(place: Place, proxy: FaultProxy, tmp_path: Path) -> None:
    store = through(place, proxy, Fault("drop", method="PUT", path="/ac/"))

    published(store, tmp_path / "a", CHECKPOINT)

    assert proxy.faults[0].hits == 1
    assert [seen.status for seen in proxy.requests("PUT", "/ac/")] == [0, 412]


def test_a_lost_answer_is_no_second_upload(place: Place, proxy: FaultProxy, tmp_path: Path) -> None:
    lost = Fault("drop", method="POST", path=r"uploadId=")
    store = through(place, proxy, lost, partial=tmp_path / "partial")

    put_large(store, tmp_path / "a", 2 * PART + RANGE)

    assert proxy.faults[0].hits == 1
    found = extracted(place.store(), CHECKPOINT, tmp_path / "out")
    assert found == {"model.bin": bytes_of(2 * PART + RANGE)}
    assert place.uploads() == []
    assert list((tmp_path / "partial").iterdir()) == []


def test_a_race_is_lost_with_an_answer(place: Place, proxy: FaultProxy, tmp_path: Path) -> None:
    first = built(tmp_path / "a", CHECKPOINT, b"first")
    second = built(tmp_path / "b", CHECKPOINT, b"second")
    store = through(place, proxy, Fault("drop", method="PUT", path="/ac/"))
    taken = store._taken
    looks: list[int] = []

    def then_another_comes(*arguments: object) -> bool | None:
        found = taken(*arguments)  # type: ignore[arg-type]
        if not looks:
            looks.append(1)
            assert place.store().put(first, tmp_path / "a")
        return found

    store._taken = then_another_comes  # type: ignore[method-assign]

    assert not store.put(second, tmp_path / "b")
    assert extracted(place.store(), CHECKPOINT, tmp_path / "out") == files_of(b"first")


@pytest.mark.capability("cache")
def test_of_many_writers_exactly_one_is_first(place: Place, tmp_path: Path) -> None:
    place.store().capability()
    for race in range(3):
        entries = [
            built(tmp_path / f"{race}-{number}", document(race), f"{number}".encode())
            for number in range(6)
        ]

        def put(number: int, entry: Entry, race: int = race) -> bool:
            return place.store().put(entry, tmp_path / f"{race}-{number}")

        with ThreadPoolExecutor(6) as pool:
            puts = list(pool.map(put, range(6), entries))

        won = [number for number, is_first in enumerate(puts) if is_first]
        assert len(won) == 1
        found = extracted(place.store(), document(race), tmp_path / f"out{race}")
        assert found == files_of(f"{won[0]}".encode())


WRITER = """
import sys
from pathlib import Path
from artifact_cache.entry import parse_entry
from tests.support.cache_buckets import Place
server, name, entry, directory, partial = sys.argv[1:]
place = Place.__new__(Place)
place.server, place.name = server, name
store = place.store(partial=Path(partial))
store.capability()
print(store.put(parse_entry(Path(entry).read_bytes()), Path(directory)), flush=True)
"""


def start_writer(
    place: Place, entry: Entry, directory: Path, partial: Path, url: str
) -> subprocess.Popen[str]:
    """Publish from a process of its own."""

    file = directory.with_suffix(".entry")
    file.write_bytes(entry_bytes(entry))
    arguments = [url, place.name, file, directory, partial]
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.extended
def test_a_killed_upload_is_taken_up_again(place: Place, proxy: FaultProxy, tmp_path: Path) -> None:
    partial = tmp_path / "partial"
    entry = large(tmp_path / "a", 10 * PART)
    proxy.add(Fault("stall", method="PUT", path="partNumber=10"))
    victim = start_writer(place, entry, tmp_path / "a", partial, proxy.url)
    parts = functools.partial(proxy.requests, "PUT", "partNumber=")
    until(lambda: sum(seen.status == 200 for seen in parts()) >= 9, within_s=120)
    time.sleep(0.3)  # until the last answer is written down
    victim.kill()
    victim.communicate()
    assert place.store().get(address_of(CHECKPOINT)) is None
    assert place.keys("cas/") == []

    with FaultProxy(place.server.removeprefix("http://")) as later:  # the first may still hear
        assert place.store(later.url, partial).put(entry, tmp_path / "a")

    sent_again = len(later.requests("PUT", "partNumber="))
    assert 1 <= sent_again <= 9  # eight may have been under way when it was killed
    found = extracted(place.store(), CHECKPOINT, tmp_path / "out")
    assert found == {"model.bin": bytes_of(10 * PART)}
    assert place.uploads() == []
    assert list(partial.iterdir()) == []


READER = """
import sys
from pathlib import Path
from artifact_cache.store import address_of
from tests.support.cache_buckets import Place
from tests.support.cache_entries import CHECKPOINT
server, name, into, partial = sys.argv[1:]
place = Place.__new__(Place)
place.server, place.name = server, name
place.store(partial=Path(partial)).get(address_of(CHECKPOINT)).extract(Path(into))
"""


def test_a_killed_download_is_continued(place: Place, proxy: FaultProxy, tmp_path: Path) -> None:
    partial = tmp_path / "partial"
    entry = put_large(place.store(), tmp_path / "a", 20 * RANGE)
    (tmp_path / "first").mkdir()
    proxy.add(Fault("delay", method="GET", path="cas/", skip=12, times=99))
    arguments = [proxy.url, place.name, str(tmp_path / "first"), str(partial)]
    victim = subprocess.Popen([sys.executable, "-c", READER, *arguments])
    part = partial / f"{entry.outputs[0].sha256}.part"
    until(lambda: part.exists() and part.stat().st_size >= 4 * RANGE, within_s=120)
    victim.kill()
    victim.wait()
    had = part.stat().st_size

    with FaultProxy(place.server.removeprefix("http://")) as later:  # the first may still hear
        found = extracted(place.store(later.url, partial), CHECKPOINT, tmp_path / "out")

    assert found == {"model.bin": bytes_of(20 * RANGE)}
    again = [seen for seen in later.exchanges if "range" in seen.headers]
    assert len(again) == -(-(20 * RANGE - had) // RANGE)
    assert list(partial.iterdir()) == []


def test_a_download_begins_anew_after_a_change(place: Place, tmp_path: Path) -> None:
    partial = tmp_path / "partial"
    entry = put_large(place.store(), tmp_path / "a", 4 * RANGE)
    part = partial / f"{entry.outputs[0].sha256}.part"
    etag = place.client.head_object(Bucket=place.name, Key=f"p/v1/{place.keys('cas/')[0]}")["ETag"]

    for number, remembered in enumerate(['"another"', etag]):
        partial.mkdir(exist_ok=True)
        part.write_bytes(b"x" * RANGE)
        part.with_name(f"{part.name}.json").write_text(json.dumps({"etag": remembered}))
        found = extracted(place.store(partial=partial), CHECKPOINT, tmp_path / f"out{number}")
        assert found == {"model.bin": bytes_of(4 * RANGE)}
        assert list(partial.iterdir()) == []


def test_transfers_nobody_takes_up_are_forgotten_after_days(place: Place, tmp_path: Path) -> None:
    partial = tmp_path / "partial"
    store: S3Store = place.store(partial=partial)
    partial.mkdir()
    begun = place.client.create_multipart_upload(Bucket=place.name, Key="p/v1/cas/x")
    (partial / "old.upload.json").write_text(
        f'{{"bucket": "{place.name}", "key": "p/v1/cas/x", "id": "{begun["UploadId"]}", '
        '"part_bytes": 1, "parts": {}}'
    )
    (partial / "old.part").write_bytes(b"x")
    (partial / "old.part.json").write_text("{}")
    for path in partial.iterdir():
        os.utime(path, (1, 1))
    (partial / "new.part").write_bytes(b"x")

    assert store.capability() == Capability("read-write")

    assert [path.name for path in partial.iterdir()] == ["new.part"]
    assert place.uploads() == []
