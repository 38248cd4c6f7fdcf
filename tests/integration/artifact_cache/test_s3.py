"""The store in a bucket: a real server, and a proxy that breaks what is between."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest

from artifact_cache.entry import Entry, Writer
from artifact_cache.errors import Corrupt, NewerEntry, StoreUnavailable, Unpublishable
from artifact_cache.files import describe, seal
from artifact_cache.key import KeyDocument, key_of, plain
from artifact_cache.store import Capability, address_of
from artifact_cache.stores.s3 import S3Store
from tests.support.cache_buckets import HASTY, PART, RANGE, Place
from tests.support.cache_entries import CHECKPOINT, NEURON, NEWER, VLLM, document, files_of
from tests.support.doubles.fault_proxy import Fault, FaultProxy
from tests.unit.artifact_cache.test_stores import built, damage, extracted, published


@pytest.fixture
def proxy(server: str) -> Iterator[FaultProxy]:
    with FaultProxy(server.removeprefix("http://")) as made:
        yield made


def large(directory: Path, wanted: KeyDocument, size: int) -> Entry:
    """Describe an artifact of one large file whose bytes do not repeat."""
    directory.mkdir(parents=True)
    (directory / "model.bin").write_bytes(bytes_of(size))
    return Entry(
        key=key_of(wanted),
        keydoc=plain(wanted),
        outputs=describe(seal(directory, wanted.kind)),
        writer=Writer(nonce=os.urandom(16).hex(), builder_id="", version=""),
        built_at=1795000000,
        build_s=1,
    )


def bytes_of(size: int) -> bytes:
    return array("Q", range(size // 8)).tobytes()


# --- what every store promises


def test_what_was_put_comes_out_again(place: Place, tmp_path: Path) -> None:
    entry = published(place.store(), tmp_path / "a", CHECKPOINT)
    reader = place.store()

    stored = reader.get(address_of(CHECKPOINT))

    assert stored is not None
    assert stored.entry == entry
    assert stored.tier == f"s3://{place.name}/p/v1/"
    assert extracted(reader, CHECKPOINT, tmp_path / "out") == files_of(b"tensors")
    assert oct((tmp_path / "out/kernel.so").stat().st_mode)[-3:] == "555"
    assert oct((tmp_path / "out/config.json").stat().st_mode)[-3:] == "444"


def test_the_layout_is_as_specified(place: Place, tmp_path: Path) -> None:
    entry = published(place.store(), tmp_path / "a", CHECKPOINT)

    digests = sorted(output.sha256 for output in entry.outputs)
    assert place.keys() == [
        "VERSION",
        f"ac/quantized-checkpoint/{entry.key[:2]}/{entry.key}.json",
        *(f"cas/sha256/{digest[:2]}/{digest}" for digest in digests),
    ]
    assert place.read("VERSION") == b'{"layout":1}\n'


def test_an_unknown_address_is_a_miss(place: Place) -> None:
    store = place.store()
    assert store.get(address_of(CHECKPOINT)) is None
    assert not store.delete(address_of(CHECKPOINT))


def test_the_first_entry_stays(place: Place, tmp_path: Path) -> None:
    store = place.store()
    published(store, tmp_path / "a", CHECKPOINT, b"first")
    second = built(tmp_path / "b", CHECKPOINT, b"second")

    assert not store.put(second, tmp_path / "b")
    assert extracted(store, CHECKPOINT, tmp_path / "out") == files_of(b"first")


def test_entries_are_listed_by_kind_page_by_page(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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

    assert sorted(entry.kind for entry in store.list()) == [
        "quantized-checkpoint",
        "quantized-checkpoint",
        "quantized-checkpoint",
        "vllm-compile",
    ]
    assert len(pages) == 2
    assert [entry.kind for entry in store.list("vllm-compile")] == ["vllm-compile"]


def test_a_deleted_entry_is_a_miss(place: Place, tmp_path: Path) -> None:
    store = place.store()
    published(store, tmp_path / "a", CHECKPOINT)

    assert store.delete(address_of(CHECKPOINT))
    assert store.get(address_of(CHECKPOINT)) is None


def test_files_that_changed_since_they_were_described_are_refused(
    place: Place, tmp_path: Path
) -> None:
    store = place.store()
    entry = built(tmp_path / "a", CHECKPOINT)
    damage(tmp_path / "a/config.json", b"{...}")

    with pytest.raises(Unpublishable):
        store.put(entry, tmp_path / "a")
    assert store.get(address_of(CHECKPOINT)) is None


def test_a_large_file_that_changed_leaves_no_upload_behind(place: Place, tmp_path: Path) -> None:
    store = place.store(partial=tmp_path / "partial")
    entry = large(tmp_path / "a", CHECKPOINT, PART + RANGE)
    path = tmp_path / "a/model.bin"
    damage(path, path.read_bytes()[:-1] + b"!")

    with pytest.raises(Unpublishable):
        store.put(entry, tmp_path / "a")
    assert place.uploads() == []
    assert place.keys("cas/") == []
    assert list((tmp_path / "partial").iterdir()) == []


# --- damage at rest


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(b"TENSORS" * 100, id="other bytes"),
        pytest.param(b"tensors" * 99, id="cut"),
        pytest.param(b"", id="emptied"),
    ],
)
def test_a_damaged_blob_is_a_miss_and_the_next_publisher_heals_it(
    place: Place, tmp_path: Path, wrong: bytes
) -> None:
    published(place.store(), tmp_path / "a", CHECKPOINT)
    place.damage(place.blob(b"tensors" * 100), wrong)
    store = place.store()

    with pytest.raises(Corrupt, match=r"model\.bin"):
        extracted(store, CHECKPOINT, tmp_path / "out")

    assert store.get(address_of(CHECKPOINT)) is None
    assert place.keys("ac/") == []
    published(place.store(), tmp_path / "b", CHECKPOINT)
    assert extracted(place.store(), CHECKPOINT, tmp_path / "again") == files_of(b"tensors")


def test_who_may_not_delete_can_still_heal(place: Place, proxy: FaultProxy, tmp_path: Path) -> None:
    published(place.store(), tmp_path / "a", CHECKPOINT)
    place.damage(place.blob(b"tensors" * 100), b"TENSORS" * 100)
    proxy.add(Fault("answer", method="DELETE", status=403, times=99, at=-1))
    store = place.store(proxy.url)

    with pytest.raises(Corrupt):
        extracted(store, CHECKPOINT, tmp_path / "out")
    assert store.get(address_of(CHECKPOINT)) is None
    assert len(place.keys("ac/")) == 1

    published(store, tmp_path / "b", CHECKPOINT)
    assert extracted(place.store(), CHECKPOINT, tmp_path / "again") == files_of(b"tensors")


def test_a_healed_blob_is_not_deleted_by_who_saw_the_bad_one(place: Place, tmp_path: Path) -> None:
    published(place.store(), tmp_path / "a", CHECKPOINT)
    key = place.blob(b"tensors" * 100)
    place.damage(key, b"TENSORS" * 100)
    late = place.store()
    stored = late.get(address_of(CHECKPOINT))
    assert stored is not None
    set_aside = late._set_aside

    def after_the_healing(bad: str, etag: str) -> None:
        place.damage(key, b"tensors" * 100)
        set_aside(bad, etag)

    late._set_aside = after_the_healing  # type: ignore[method-assign]
    (tmp_path / "out").mkdir()
    with pytest.raises(Corrupt):
        stored.extract(tmp_path / "out")

    assert place.read(key) == b"tensors" * 100


def test_a_lost_blob_is_a_miss(place: Place, tmp_path: Path) -> None:
    published(place.store(), tmp_path / "a", CHECKPOINT)
    place.remove(place.blob(b"{}"))
    store = place.store()

    with pytest.raises(Corrupt, match="is missing"):
        extracted(store, CHECKPOINT, tmp_path / "out")
    assert store.get(address_of(CHECKPOINT)) is None
    published(store, tmp_path / "b", CHECKPOINT)
    assert extracted(place.store(), CHECKPOINT, tmp_path / "again") == files_of(b"tensors")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"schema":1}', id="incomplete"),
        pytest.param(b"x" * 2**21, id="huge"),
    ],
)
def test_a_broken_entry_is_a_miss_and_is_replaced(
    place: Place, tmp_path: Path, data: bytes
) -> None:
    published(place.store(), tmp_path / "a", CHECKPOINT)
    place.damage(place.keys("ac/")[0], data)
    store = place.store()

    assert list(store.list()) == []
    with pytest.raises(Corrupt):
        store.get(address_of(CHECKPOINT))
    assert store.get(address_of(CHECKPOINT)) is None
    published(store, tmp_path / "b", CHECKPOINT)
    assert len(list(store.list())) == 1


def test_a_publisher_replaces_a_broken_entry_that_it_never_read(
    place: Place, proxy: FaultProxy, tmp_path: Path
) -> None:
    published(place.store(), tmp_path / "a", CHECKPOINT)
    place.damage(place.keys("ac/")[0], b"{")

    published(place.store(), tmp_path / "b", CHECKPOINT)
    assert extracted(place.store(), CHECKPOINT, tmp_path / "out") == files_of(b"tensors")


def test_an_entry_of_a_newer_version_is_left_alone(place: Place, tmp_path: Path) -> None:
    store = place.store()
    published(store, tmp_path / "a", CHECKPOINT)
    key = place.keys("ac/")[0]
    place.damage(key, NEWER)

    with pytest.raises(NewerEntry):
        store.get(address_of(CHECKPOINT))
    assert not store.put(built(tmp_path / "b", CHECKPOINT), tmp_path / "b")
    assert place.read(key) == NEWER


def test_a_blob_is_no_larger_than_its_entry_says(
    place: Place, proxy: FaultProxy, tmp_path: Path
) -> None:
    """Not a byte of it is written: the size stands in the answer's head."""
    published(place.store(), tmp_path / "a", CHECKPOINT)
    place.damage(place.blob(b"{}"), b"x" * 10 * RANGE)

    with pytest.raises(Corrupt, match="has not 2 bytes any more"):
        extracted(place.store(), CHECKPOINT, tmp_path / "out")
    assert not (tmp_path / "out/config.json").exists()


# --- damage on the way


def test_bytes_damaged_once_on_the_way_are_fetched_again(
    place: Place, proxy: FaultProxy, tmp_path: Path
) -> None:
    published(place.store(), tmp_path / "a", CHECKPOINT)
    store = place.store(proxy.url)
    store.capability()
    proxy.add(Fault("flip", method="GET", path="cas/", at=0))

    assert extracted(store, CHECKPOINT, tmp_path / "out") == files_of(b"tensors")
    assert proxy.faults[0].hits == 1


def test_a_machine_that_damages_all_it_reads_does_not_empty_the_cache(
    place: Place, proxy: FaultProxy, tmp_path: Path
) -> None:
    """Damaged differently each time, it is not the bucket's fault."""
    store = place.store()
    entry = large(tmp_path / "a", CHECKPOINT, 3 * RANGE)
    assert store.put(entry, tmp_path / "a")
    reader = place.store(proxy.url)
    reader.capability()
    for at in range(9):
        proxy.add(Fault("flip", method="GET", path="cas/", at=at))

    with pytest.raises(StoreUnavailable, match="differently each time"):
        extracted(reader, CHECKPOINT, tmp_path / "out")

    assert len(place.keys("ac/")) == 1
    assert len(place.keys("cas/")) == 1


def test_a_large_blob_comes_in_ranges_and_goes_on_where_it_broke_off(
    place: Place, proxy: FaultProxy, tmp_path: Path
) -> None:
    entry = large(tmp_path / "a", CHECKPOINT, 12 * RANGE)
    assert place.store().put(entry, tmp_path / "a")
    reader = place.store(proxy.url)
    reader.capability()
    proxy.add(Fault("cut", method="GET", path="cas/", at=RANGE // 2, times=3))

    found = extracted(reader, CHECKPOINT, tmp_path / "out")

    assert found == {"model.bin": bytes_of(12 * RANGE)}
    assert proxy.faults[0].hits == 3
    asked = [seen.headers["range"] for seen in proxy.requests("GET", "cas/")]
    assert len(asked) > len(set(asked)) == 12


@pytest.mark.parametrize("action", ["truncate", "reset", "drop"])
def test_a_connection_that_breaks_is_tried_again(
    place: Place, proxy: FaultProxy, tmp_path: Path, action: str
) -> None:
    published(place.store(), tmp_path / "a", CHECKPOINT)
    reader = place.store(proxy.url)
    reader.capability()
    proxy.add(Fault(action, method="GET", times=2))  # type: ignore[arg-type]

    assert extracted(reader, CHECKPOINT, tmp_path / "out") == files_of(b"tensors")


# --- faults of the service


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(
    place: Place, proxy: FaultProxy, tmp_path: Path, status: int
) -> None:
    proxy.add(Fault("answer", status=status, times=3, at=-1))

    assert place.store(proxy.url).capability() == Capability("read-write")


def test_a_server_that_asks_for_more_time_than_there_is_is_given_up(
    place: Place, proxy: FaultProxy
) -> None:
    proxy.add(Fault("answer", status=503, headers={"Retry-After": "3600"}, times=99, at=-1))
    started = time.monotonic()

    capability = place.store(proxy.url).capability()

    assert (capability.mode, capability.reason) == ("off", "it answers 503")
    assert time.monotonic() - started < 50  # each request alone would take longer


def test_a_server_that_is_not_there_turns_the_store_off(place: Place) -> None:
    store = place.store("http://127.0.0.1:9")

    assert store.capability() == Capability("off", "it does not answer")
    with pytest.raises(StoreUnavailable, match="does not answer"):
        store.get(address_of(CHECKPOINT))


@pytest.mark.parametrize("action", ["dribble", "delay"])
def test_a_server_that_hardly_answers_is_given_up_in_time(
    place: Place, proxy: FaultProxy, action: str
) -> None:
    seconds = 0.5 if action == "dribble" else 60  # each byte comes in time, and no answer ever
    proxy.add(Fault(action, times=99, seconds=seconds))  # type: ignore[arg-type]
    started = time.monotonic()

    capability = place.store(proxy.url, limits=HASTY).capability()

    assert capability.mode == "off"
    assert time.monotonic() - started < 50  # each request alone would take longer


def test_after_a_fault_of_the_network_nothing_is_asked_any_more(
    place: Place, proxy: FaultProxy, tmp_path: Path
) -> None:
    published(place.store(), tmp_path / "a", CHECKPOINT)
    store = place.store(proxy.url)
    assert store.capability().mode == "read-write"
    proxy.add(Fault("reset", times=999))
    with pytest.raises(StoreUnavailable):
        store.get(address_of(CHECKPOINT))
    asked = len(proxy.exchanges)

    with pytest.raises(StoreUnavailable):
        store.get(address_of(NEURON))
    assert len(proxy.exchanges) == asked
    assert store.capability() == Capability("off", "it does not answer")


# --- rights


def test_who_may_not_write_has_a_store_to_read(
    place: Place, proxy: FaultProxy, tmp_path: Path
) -> None:
    published(place.store(), tmp_path / "a", CHECKPOINT)
    proxy.add(Fault("answer", method="PUT", status=403, times=99, at=-1))
    store = place.store(proxy.url)

    assert store.capability() == Capability("read-only", "it refuses access (403)")
    assert extracted(store, CHECKPOINT, tmp_path / "out") == files_of(b"tensors")
    with pytest.raises(StoreUnavailable, match="refuses access"):
        store.put(built(tmp_path / "b", NEURON), tmp_path / "b")


def test_a_right_that_is_lost_later_makes_the_store_read_only(
    place: Place, proxy: FaultProxy, tmp_path: Path
) -> None:
    store = place.store(proxy.url)
    assert store.capability().mode == "read-write"
    proxy.add(Fault("answer", method="PUT", path="cas/", status=403, times=99, at=-1))

    with pytest.raises(StoreUnavailable, match="refuses access"):
        store.put(built(tmp_path / "a", NEURON), tmp_path / "a")
    assert store.capability() == Capability("read-only", "it refuses access (403)")


def test_who_may_not_read_has_no_store(place: Place, proxy: FaultProxy) -> None:
    proxy.add(Fault("answer", status=403, times=99, at=-1))

    assert place.store(proxy.url).capability() == Capability("off", "it refuses access (403)")


def test_an_empty_bucket_that_may_not_be_written_to_is_off(place: Place, proxy: FaultProxy) -> None:
    proxy.add(Fault("answer", method="PUT", status=403, times=99, at=-1))

    assert place.store(proxy.url).capability() == Capability(
        "off", "nothing is there yet, and it refuses access (403)"
    )


def test_a_bucket_that_does_not_exist_is_off(place: Place) -> None:
    place.name = "no-such-bucket-anywhere"

    assert place.store().capability() == Capability("off", "there is no such bucket")


def test_a_server_without_conditional_writes_is_only_read(place: Place, proxy: FaultProxy) -> None:
    """It would let a second entry replace the first."""
    proxy.add(Fault("answer", method="PUT", status=200, headers={"ETag": '"x"'}, times=99, at=-1))
    place.client.put_object(Bucket=place.name, Key="p/v1/VERSION", Body=b'{"layout":1}\n')

    assert place.store(proxy.url).capability() == Capability(
        "read-only", "the server ignores conditions of writes"
    )


def test_a_layout_of_another_version_is_not_touched(place: Place) -> None:
    place.client.put_object(Bucket=place.name, Key="p/v1/VERSION", Body=b'{"layout":2}\n')

    assert place.store().capability() == Capability("off", "another version laid it out")
    assert place.keys() == ["VERSION"]


def test_without_boto3_the_store_is_off_and_says_what_to_do(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)

    assert place.store().capability() == Capability(
        "off", "boto3 is not installed; `pip install boto3` does it"
    )


# --- writes whose answer is lost, and writers that meet


def test_an_own_entry_whose_answer_was_lost_counts_as_published(
    place: Place, proxy: FaultProxy, tmp_path: Path
) -> None:
    store = place.store(proxy.url)
    store.capability()
    proxy.add(Fault("drop", method="PUT", path="/ac/"))

    published(store, tmp_path / "a", CHECKPOINT)

    assert proxy.faults[0].hits == 1
    assert [seen.status for seen in proxy.requests("PUT", "/ac/")] == [0, 412]


def test_an_own_blob_whose_answer_was_lost_counts_as_sent(
    place: Place, proxy: FaultProxy, tmp_path: Path
) -> None:
    store = place.store(proxy.url)
    store.capability()
    proxy.add(Fault("drop", method="PUT", path="/cas/", times=3))

    published(store, tmp_path / "a", CHECKPOINT)
    assert extracted(place.store(), CHECKPOINT, tmp_path / "out") == files_of(b"tensors")


def test_an_own_multipart_whose_last_answer_was_lost_counts_as_sent(
    place: Place, proxy: FaultProxy, tmp_path: Path
) -> None:
    store = place.store(proxy.url, tmp_path / "partial")
    store.capability()
    entry = large(tmp_path / "a", CHECKPOINT, 2 * PART + RANGE)
    proxy.add(Fault("drop", method="POST", path=r"uploadId="))

    assert store.put(entry, tmp_path / "a")

    assert proxy.faults[0].hits == 1
    found = extracted(place.store(), CHECKPOINT, tmp_path / "out")
    assert found == {"model.bin": bytes_of(2 * PART + RANGE)}
    assert place.uploads() == []
    assert list((tmp_path / "partial").iterdir()) == []


def test_an_answer_lost_while_another_was_first_is_a_lost_race(
    place: Place, proxy: FaultProxy, tmp_path: Path
) -> None:
    first = built(tmp_path / "a", CHECKPOINT, b"first")
    second = built(tmp_path / "b", CHECKPOINT, b"second")
    store = place.store(proxy.url)
    store.capability()
    taken = store._taken
    looks: list[int] = []

    def then_another_comes(*arguments: object) -> bool | None:
        found = taken(*arguments)  # type: ignore[arg-type]
        if not looks:
            looks.append(1)
            assert place.store().put(first, tmp_path / "a")
        return found

    store._taken = then_another_comes  # type: ignore[method-assign]
    proxy.add(Fault("drop", method="PUT", path="/ac/"))

    assert not store.put(second, tmp_path / "b")
    assert extracted(place.store(), CHECKPOINT, tmp_path / "out") == files_of(b"first")


def test_of_many_writers_exactly_one_is_first(place: Place, tmp_path: Path) -> None:
    place.store().capability()
    for race in range(3):
        entries = [
            built(tmp_path / f"{race}-{number}", document(race), f"{number}".encode())
            for number in range(6)
        ]
        won: list[int] = []

        def put(
            number: int,
            race: int = race,
            entries: list[Entry] = entries,
            won: list[int] = won,
        ) -> None:
            if place.store().put(entries[number], tmp_path / f"{race}-{number}"):
                won.append(number)

        threads = [threading.Thread(target=put, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert len(won) == 1
        found = extracted(place.store(), document(race), tmp_path / f"out{race}")
        assert found == files_of(f"{won[0]}".encode())


WRITER = """
import sys, time
from pathlib import Path
from artifact_cache.entry import parse_entry
from tests.support.cache_buckets import Place
server, name, entry, directory, partial, start = sys.argv[1:]
place = Place.__new__(Place)
place.server, place.name = server, name
store = place.store(partial=Path(partial))
store.capability()
time.sleep(max(0.0, float(start) - time.time()))
print(store.put(parse_entry(Path(entry).read_bytes()), Path(directory)), flush=True)
"""


def start_writer(
    place: Place, entry: Entry, directory: Path, partial: Path, *, url: str = "", at: float = 0
) -> subprocess.Popen[str]:
    """Publish from a process of its own."""
    from artifact_cache.entry import entry_bytes

    file = directory.with_suffix(".entry")
    file.write_bytes(entry_bytes(entry))
    arguments = [url or place.server, place.name, file, directory, partial, str(at)]
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


def test_of_many_processes_exactly_one_is_first(place: Place, tmp_path: Path) -> None:
    at = time.time() + 3
    writers = []
    for number in range(4):
        directory = tmp_path / f"{number}"
        entry = built(directory, CHECKPOINT, f"{number}".encode())
        writers.append(start_writer(place, entry, directory, tmp_path / "partial", at=at))
    answers = [writer.communicate(timeout=300)[0].strip() for writer in writers]

    assert sorted(answers) == ["False", "False", "False", "True"]
    winner = answers.index("True")
    found = extracted(place.store(), CHECKPOINT, tmp_path / "out")
    assert found == files_of(f"{winner}".encode())


def test_an_upload_goes_on_where_a_killed_one_stopped(
    place: Place, proxy: FaultProxy, tmp_path: Path
) -> None:
    partial = tmp_path / "partial"
    entry = large(tmp_path / "a", CHECKPOINT, 10 * PART)
    proxy.add(Fault("stall", method="PUT", path="partNumber=10"))
    victim = start_writer(place, entry, tmp_path / "a", partial, url=proxy.url)
    deadline = time.monotonic() + 120
    while len([seen for seen in proxy.requests("PUT", "partNumber=") if seen.status == 200]) < 9:
        assert time.monotonic() < deadline
        time.sleep(0.02)
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


def test_a_download_goes_on_where_a_killed_one_stopped(
    place: Place, proxy: FaultProxy, tmp_path: Path
) -> None:
    partial = tmp_path / "partial"
    entry = large(tmp_path / "a", CHECKPOINT, 20 * RANGE)
    assert place.store().put(entry, tmp_path / "a")
    (tmp_path / "first").mkdir()
    proxy.add(Fault("delay", method="GET", path="cas/", skip=12, times=99))
    victim = subprocess.Popen(
        [
            sys.executable,
            "-c",
            READER,
            proxy.url,
            place.name,
            str(tmp_path / "first"),
            str(partial),
        ]
    )
    part = partial / f"{entry.outputs[0].sha256}.part"
    deadline = time.monotonic() + 120
    while not part.exists() or part.stat().st_size < 4 * RANGE:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    victim.kill()
    victim.wait()
    had = part.stat().st_size

    with FaultProxy(place.server.removeprefix("http://")) as later:  # the first may still hear
        found = extracted(place.store(later.url, partial), CHECKPOINT, tmp_path / "out")

    assert found == {"model.bin": bytes_of(20 * RANGE)}
    again = [seen for seen in later.exchanges if "range" in seen.headers]
    assert len(again) == -(-(20 * RANGE - had) // RANGE)
    assert list(partial.iterdir()) == []


def test_a_download_begins_anew_when_the_object_was_replaced_or_the_start_is_wrong(
    place: Place, tmp_path: Path
) -> None:
    partial = tmp_path / "partial"
    entry = large(tmp_path / "a", CHECKPOINT, 4 * RANGE)
    assert place.store().put(entry, tmp_path / "a")
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
