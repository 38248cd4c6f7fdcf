"""Layers read back by tarfile, which shares no code with our writer."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packager.core.errors import UsageError
from packager.core.image import Blob, FileRange, Inline, RemoteRange
from packager.images.tar import ALIGNMENT, TarEntry, make_tar
from tests.support.cases import cases


def content_of(blob: Blob) -> bytes:
    parts = []
    for segment in blob.segments:
        match segment:
            case Inline(data):
                parts.append(data)
            case FileRange(path=path, offset=offset, length=length):
                parts.append(Path(path).read_bytes()[offset : offset + length])
            case RemoteRange():
                raise AssertionError
    return b"".join(parts)


def read_back(blob: Blob) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(content_of(blob)), mode="r:") as archive:
        return {member.name: member for member in archive}


def inline(path: str, data: bytes = b"x", *, executable: bool = False) -> TarEntry:
    return TarEntry(path=path, content=Inline(data), executable=executable)


def test_every_parent_directory_is_in_the_layer() -> None:
    members = read_back(make_tar([inline("/opt/model/config.json")]))

    assert list(members) == ["opt", "opt/model", "opt/model/config.json"]
    assert members["opt"].isdir()
    assert members["opt"].mode == 0o755


def test_owner_time_and_mode_do_not_depend_on_the_machine() -> None:
    member = read_back(make_tar([inline("/a", executable=True)]))["a"]

    assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", "")
    assert (member.mtime, member.mode) == (0, 0o755)


def test_an_archive_ends_with_two_empty_blocks() -> None:
    data = content_of(make_tar([inline("/a", b"x" * 512)]))

    assert len(data) == 512 + 512 + 2 * 512  # header, file, end
    assert data[-1024:] == bytes(1024)


def test_order_of_the_input_does_not_matter() -> None:
    one, two = inline("/x/1", b"1"), inline("/x/2", b"2")

    assert content_of(make_tar([one, two])) == content_of(make_tar([two, one]))


def test_file_data_starts_on_a_page(tmp_path: Path) -> None:
    shard = tmp_path / "shard"
    shard.write_bytes(bytes(range(256)) * 100)

    members = read_back(
        make_tar(
            [TarEntry(path="/m/s", content=FileRange(path=str(shard), offset=0, length=25600))]
        )
    )

    assert members["m/s"].offset_data % ALIGNMENT == 0


def test_blob_size_is_known_before_reading() -> None:
    blob = make_tar([inline("/a/b/c", b"z" * 5000), inline("/a/d", b"")])

    assert blob.size == len(content_of(blob))
    assert blob.size % 512 == 0


def test_a_file_over_eight_gib_keeps_its_size() -> None:
    size = 9 * 1024**3
    blob = make_tar(
        [TarEntry(path="/big", content=FileRange(path="/nowhere", offset=0, length=size))]
    )
    head = blob.segments[0]
    assert isinstance(head, Inline)

    member = tarfile.TarInfo.frombuf(head.data[-512:], "utf-8", "strict")

    assert (member.name, member.size) == ("big", size)


@cases("path")
def test_unusual_paths_come_back(path: str) -> None:
    assert path.lstrip("/") in read_back(make_tar([inline(path, b"q" * 9000)]))


def test_a_path_that_climbs_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be placed"):
        make_tar([inline("/opt/../etc/passwd")])


@given(
    st.dictionaries(
        st.text(alphabet="abcdé /", min_size=1, max_size=150)
        .map(lambda text: "r/" + text.strip("/ ").replace("//", "/"))
        .filter(lambda text: "//" not in text and not text.endswith("/")),
        st.binary(max_size=9000),
        max_size=6,
    )
)
def test_whatever_goes_in_comes_out(files: dict[str, bytes]) -> None:
    names = set(files)
    if any(other.startswith(name + "/") for name in names for other in names):
        return
    blob = make_tar([inline("/" + path, data) for path, data in files.items()])

    with tarfile.open(fileobj=io.BytesIO(content_of(blob)), mode="r:") as archive:
        found = {
            member.name: archive.extractfile(member).read()  # type: ignore[union-attr]
            for member in archive
            if member.isfile()
        }
    assert found == files
