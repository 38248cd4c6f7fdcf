"""Archives: the same bytes for the same entries, and nothing else is let in."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from artifact_cache.errors import Corrupt, StoreUnavailable
from artifact_cache.key import KeyDocument
from artifact_cache.store import CacheStore
from artifact_cache.stores.archive import (
    ArchiveLimits,
    BadArchive,
    Imported,
    _header,
    _parsed_header,
    export_archive,
    import_archive,
)
from tests.support.cache_entries import CHECKPOINT, NEURON, files_of
from tests.support.cache_opening import LocalStore
from tests.support.cache_stores import built, damage_unseen, extracted, published, stored, the_blob
from tests.support.cases import cases
from tests.support.doubles.stores import MemoryStore, ReadOnlyStore


def exported(
    store: CacheStore, file: Path, wanted: Iterable[KeyDocument] = (NEURON, CHECKPOINT)
) -> bytes:
    """Export entries in the order in which they are asked for."""
    scratch = file.with_name(f"{file.name}.scratch")
    scratch.mkdir()
    found = [stored(store, one) for one in wanted]
    assert export_archive(found, file, scratch) == file.stat().st_size
    return file.read_bytes()


def imported(
    data: bytes, store: CacheStore, tmp_path: Path, limits: ArchiveLimits | None = None
) -> Imported:
    scratch = tmp_path / f"scratch{os.urandom(4).hex()}"
    scratch.mkdir()
    return import_archive(io.BytesIO(data), store, scratch, limits=limits)


@pytest.fixture
def archive(root: Path, tmp_path: Path) -> bytes:
    store = LocalStore(root)
    published(store, tmp_path / "a", CHECKPOINT)
    published(store, tmp_path / "b", NEURON, b"other")
    return exported(store, tmp_path / "cache.tar")


@pytest.mark.parametrize("new_store", [LocalStore, lambda root: MemoryStore()])
def test_what_was_exported_is_found_elsewhere(
    archive: bytes, root: Path, tmp_path: Path, new_store: Callable[[Path], CacheStore]
) -> None:
    elsewhere = new_store(tmp_path / "elsewhere")

    done = imported(archive, elsewhere, tmp_path)

    assert [entry.kind for entry in done.published] == ["neuron", "quantized-checkpoint"]
    assert extracted(elsewhere, CHECKPOINT, tmp_path / "x") == files_of(b"tensors")
    assert extracted(elsewhere, NEURON, tmp_path / "y") == files_of(b"other")
    assert (tmp_path / "y/kernel.so").stat().st_mode & 0o777 == 0o555
    assert stored(elsewhere, NEURON).entry == stored(LocalStore(root), NEURON).entry
    again = imported(archive, elsewhere, tmp_path)
    assert (again.published, len(again.known)) == ((), 2)


def test_a_program_with_the_bytes_of_a_plain_file_stays_a_program(tmp_path: Path) -> None:
    store = MemoryStore()
    entry = built(tmp_path / "a", CHECKPOINT)
    (tmp_path / "a/twin").write_bytes((tmp_path / "a/kernel.so").read_bytes())
    twin = next(one for one in entry.outputs if one.path == "kernel.so").model_copy(
        update={"path": "twin", "mode": "0644"}
    )
    store.put(entry.model_copy(update={"outputs": (*entry.outputs, twin)}), tmp_path / "a")

    elsewhere = LocalStore(tmp_path / "elsewhere")
    imported(exported(store, tmp_path / "cache.tar", [CHECKPOINT]), elsewhere, tmp_path)
    extracted(elsewhere, CHECKPOINT, tmp_path / "out")

    assert (tmp_path / "out/kernel.so").stat().st_mode & 0o777 == 0o555
    assert (tmp_path / "out/twin").stat().st_mode & 0o777 == 0o444
    blobs = list((tmp_path / "elsewhere").glob("cas/*/*/*"))
    assert {path.stat().st_mode & 0o777 for path in blobs} == {0o444}


def test_the_same_entries_give_the_same_bytes(archive: bytes, tmp_path: Path) -> None:
    """In another order, through another store, at another time."""
    elsewhere = LocalStore(tmp_path / "elsewhere")
    imported(archive, elsewhere, tmp_path)
    old = os.umask(0o077)
    try:
        again = exported(elsewhere, tmp_path / "again.tar", [CHECKPOINT, NEURON])
    finally:
        os.umask(old)

    assert again == archive


def test_a_damaged_store_is_not_exported(root: Path, tmp_path: Path) -> None:
    """Not even where the disk was believed on the way out."""
    store = LocalStore(root)
    published(store, tmp_path / "a", CHECKPOINT)
    os.utime(the_blob(root), (1, 1))
    extracted(store, CHECKPOINT, tmp_path / "stamp")
    damage_unseen(the_blob(root))

    with pytest.raises((StoreUnavailable, Corrupt)):
        exported(store, tmp_path / "cache.tar", [CHECKPOINT])
    assert list(tmp_path.glob("*cache.tar")) == []


def test_a_file_that_cannot_be_written_is_explained(archive: bytes, tmp_path: Path) -> None:
    store = MemoryStore()
    imported(archive, store, tmp_path)

    with pytest.raises(StoreUnavailable, match="no such file or directory"):
        export_archive([stored(store, CHECKPOINT)], tmp_path / "nowhere/cache.tar", tmp_path)


def members(archive: bytes) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        found = []
        for member in tar:
            file = tar.extractfile(member)
            found.append((member, file.read() if file else b""))
        return found


def packed(found: list[tuple[tarfile.TarInfo, bytes]], form: int = tarfile.GNU_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as tar:
        for member, data in found:
            tar.addfile(member, io.BytesIO(data))
    return file.getvalue()


def test_packing_again_is_not_what_is_refused(archive: bytes, tmp_path: Path) -> None:
    """Else the tests below would show nothing."""
    assert packed(members(archive)) == archive


def with_last(archive: bytes, kind: bytes, **fields: Any) -> bytes:
    """The archive with another last member of the same name and no data."""
    found = members(archive)
    member = tarfile.TarInfo(found[-1][0].name)
    member.type, member.mode = kind, 0o444
    for name, value in fields.items():
        setattr(member, name, value)
    return packed([*found[:-1], (member, b"")])


def a_device(archive: bytes) -> bytes:
    device = tarfile.TarInfo("cas/zero")
    device.type, device.devmajor, device.devminor, device.mode = tarfile.CHRTYPE, 1, 5, 0o444
    return packed([*members(archive), (device, b"")])


def named(name: str) -> Callable[[bytes], bytes]:
    def change(archive: bytes) -> bytes:
        found = members(archive)
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(found[-1][1]), 0o444
        return packed([*found[:-1], (member, found[-1][1])])

    return change


def another_form(archive: bytes) -> bytes:
    found = members(archive)
    for member, _ in found:
        member.mtime = 1795000000.5  # which needs an extended header
    return packed(found, tarfile.PAX_FORMAT)


def a_sparse_file(archive: bytes) -> bytes:
    member = bytearray(archive)
    at = archive.rindex(b"cas/sha256/") + 156
    member[at : at + 1] = b"S"
    return bytes(member)


def resized(size: bytes) -> Callable[[bytes], bytes]:
    """Have the last blob say another size, with the checksum that belongs to it."""

    def change(archive: bytes) -> bytes:
        at = archive.rindex(b"cas/sha256/")
        header = bytearray(archive[at : at + 512])
        header[124:136] = size
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        return archive[:at] + bytes(header) + archive[at + 512 :]

    return change


def other_bytes(archive: bytes) -> bytes:
    found = members(archive)
    member, data = found[-1]
    return packed([*found[:-1], (member, bytes([data[0] ^ 1]) + data[1:])])


REFUSED: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda archive: b"",
    "no archive": lambda archive: b"\x1f\x8b" + archive,
    "cut": lambda archive: archive[:-10241],
    "cut in the padding": lambda archive: archive[:-1],
    "grown": lambda archive: archive + b"x",
    "two of them": lambda archive: archive + archive,
    "symbolic link": lambda archive: with_last(archive, tarfile.SYMTYPE, linkname="/etc/passwd"),
    "hard link": lambda archive: with_last(archive, tarfile.LNKTYPE, linkname="VERSION"),
    "device": a_device,
    "way out": named("../../etc/passwd"),
    "absolute": named("/etc/passwd"),
    "stranger": named("cas/sha256/00/README"),
    "extended headers": another_form,
    "sparse": a_sparse_file,
    "bomb": resized(b"77777777777\0"),
    "huge": resized(b"\x80" + b"\x7f" * 11),
    "negative": resized(b"\xff" * 12),
    "other bytes": other_bytes,
    "a blob short": lambda archive: packed(members(archive)[:-1]),
    "a blob too many": lambda archive: packed([*members(archive), members(archive)[-1]]),
    "an entry twice": lambda archive: packed(
        [*members(archive)[:2], members(archive)[1], *members(archive)[2:]]
    ),
    "an entry short": lambda archive: packed([members(archive)[0], *members(archive)[2:]]),
    "out of order": lambda archive: packed(
        [members(archive)[0], members(archive)[2], members(archive)[1], *members(archive)[3:]]
    ),
    "another version": lambda archive: archive.replace(b'{"archive":1}', b'{"archive":2}'),
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED.keys())
def test_what_an_export_does_not_write_is_refused(
    archive: bytes, tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    store = LocalStore(tmp_path / "elsewhere")

    with pytest.raises(BadArchive):
        imported(change(archive), store, tmp_path)
    assert list(store.list()) == []
    assert list((tmp_path / "elsewhere").glob("cas/sha256/*/*")) == []


def test_no_flipped_bit_goes_unnoticed(archive: bytes, tmp_path: Path) -> None:
    for at in range(0, len(archive), 97):
        flipped = bytearray(archive)
        flipped[at] ^= 1 << (at % 8)
        store = MemoryStore()
        with pytest.raises(BadArchive):
            imported(bytes(flipped), store, tmp_path)
        assert store.entries == {}


@cases("limits_hold")
def test_limits_hold(archive: bytes, tmp_path: Path, limits: ArchiveLimits) -> None:
    with pytest.raises(BadArchive):
        imported(archive, MemoryStore(), tmp_path, limits)


def test_an_archive_larger_than_the_disk_is_refused_before_it_is_read(
    archive: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "artifact_cache.stores.archive.shutil.disk_usage", lambda path: SimpleNamespace(free=100)
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    with pytest.raises(StoreUnavailable, match="bytes are needed and 100 are free"):
        import_archive(io.BytesIO(archive), MemoryStore(), scratch)
    assert list(scratch.iterdir()) == []


def test_a_store_that_is_read_only_takes_nothing(archive: bytes, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        imported(archive, ReadOnlyStore(MemoryStore()), tmp_path)


def test_sizes_beyond_8_gib_have_a_header() -> None:
    name = f"cas/sha256/{'ab'}/{'ab' * 32}"
    header = _header(name, 200 * 1024**3)

    assert _parsed_header(header) == (name, 200 * 1024**3)
    assert tarfile.TarInfo.frombuf(header, "ascii", "strict").size == 200 * 1024**3
