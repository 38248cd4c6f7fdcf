"""Model data of endpoints, out of moto's buckets into folders."""

from __future__ import annotations

import io
import itertools
import os
import tarfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from packager.addons.server.endpoints import disk, model_data
from packager.addons.server.endpoints.model_data import Deadline, fetch_data, open_to_all
from packager.addons.server.sagemaker.hosting import ModelData
from packager.core.errors import ModelRefused, NotFound, PackagerError, Unavailable
from packager.core.units import GIB
from tests.support.buckets import bucket as bucket
from tests.support.buckets import server as server
from tests.support.cases import cases
from tests.support.doubles.s3 import Bucket
from tests.support.places import files_below
from tests.support.refusals import raises_code


def fetch(uri: str, kind: str, folder: Path, *, most_s: float = 60.0) -> dict[str, bytes]:
    deadline = Deadline(time.monotonic() + most_s, int(most_s), threading.Event())
    fetch_data(ModelData(uri, "/opt/ml/model", kind), folder, deadline)  # type: ignore[arg-type]
    return files_below(folder)


def test_data_that_are_mapped_come_from_their_place(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put("own/config.json", b"{}")
    data = ModelData("s3://jumpstart-cache-prod-us-east-1/packager/m/", "/opt/ml/model", "prefix")
    (tmp_path / "here/sub").mkdir(parents=True)
    (tmp_path / "here/sub/config.json").write_text("1")
    deadline = Deadline(time.monotonic() + 60, 60, threading.Event())

    for name, place in (("a", f"{bucket.url}/own/"), ("b", str(tmp_path / "here"))):
        fetch_data(data, tmp_path / name, deadline, place=place)

    assert (tmp_path / "a/config.json").read_text() == "{}"
    assert (tmp_path / "b/sub/config.json").read_text() == "1"


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return data.getvalue()


def plain(name: str) -> tarfile.TarInfo:
    return tarfile.TarInfo(name)


def link(name: str, target: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    return member


@cases("fetched")
def test_data_are_files_in_a_folder(bucket: Bucket, tmp_path: Path, case: dict[str, Any]) -> None:
    for key, text in case.get("objects", {}).items():
        bucket.put(key, text.encode("latin-1"))
    if "archive" in case:
        members = (
            (link(one["name"], one["link"]) if "link" in one else plain(one["name"]), one)
            for one in case["archive"]
        )
        packed = archive(*((member, one.get("text", "").encode()) for member, one in members))
        bucket.put("m.tar.gz", packed)
    folder = tmp_path / "a/b/data"

    if "refused" in case:
        with pytest.raises((ModelRefused, NotFound), match=case["refused"]):
            fetch(f"{bucket.url}/{case['uri']}", case["kind"], folder)
    else:
        found = fetch(f"{bucket.url}/{case['uri']}", case["kind"], folder)
        assert found == {name: text.encode() for name, text in case["files"].items()}

    links = {str(one.relative_to(folder)): str(one.readlink()) for one in links_in(folder)}
    assert case.get("links", links) == links
    assert [one for one in tmp_path.rglob("escaped") if "data" not in one.parts] == []


def links_in(folder: Path) -> list[Path]:
    return [one for one in folder.rglob("*") if one.is_symlink()]


def test_a_header_that_does_not_end_is_not_read_into_memory(bucket: Bucket, tmp_path: Path) -> None:
    attributes = tarfile.TarInfo("attributes")
    attributes.type = tarfile.XHDTYPE
    bucket.put("m.tar.gz", archive((attributes, b"0" * 1024 * 1024)))

    with pytest.raises(ModelRefused, match="a header of it is too long"):
        fetch(f"{bucket.url}/m.tar.gz", "archive", tmp_path / "data")


def test_links_beyond_the_longest_path_stay_inside(bucket: Bucket, tmp_path: Path) -> None:
    """Python's filter follows links only as far as the system's longest path (CVE-2025-4517)."""
    members, path = [], ""
    for letter in (letters := "abcdefghijklmnop"):
        folder = tarfile.TarInfo(f"{path}{'d' * 247}")
        folder.type = tarfile.DIRTYPE
        members += [(folder, b""), (link(f"{path}{letter}", "d" * 247), b"")]
        path = f"{folder.name}/"
    deep = f"{'/'.join(letters)}/{'l' * 254}"
    members += [(link(deep, "../" * len(letters)), b""), (link("up", f"{deep}/../"), b"")]
    bucket.put("m.tar.gz", archive(*members, (plain("up/escaped"), b"x")))

    with pytest.raises(ModelRefused, match="in the way of another file"):
        fetch(f"{bucket.url}/m.tar.gz", "archive", tmp_path / "data")

    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_an_archive_that_unpacks_to_far_more_than_it_is_is_refused(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_data, "GIB", 1024)
    bucket.put("m.tar.gz", archive((plain("zeros"), bytes(8 * 1024 * 1024))))

    with pytest.raises(ModelRefused, match="holds too much"):
        fetch(f"{bucket.url}/m.tar.gz", "archive", tmp_path / "data")


def test_a_key_that_leaves_the_folder_is_refused(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put("m/../../escaped", b"x")

    with pytest.raises(PackagerError):
        fetch(f"{bucket.url}/m/", "prefix", tmp_path / "a/b/data")

    assert list(tmp_path.rglob("escaped")) == []


def test_a_download_ends_with_its_time(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put("m/a.bin", b"a")

    with pytest.raises(Unavailable, match="were not there after"):
        fetch(f"{bucket.url}/m/", "prefix", tmp_path / "data", most_s=-1)


def test_every_user_may_read_the_data(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put("m/sub/a.bin", b"a")
    before = os.umask(0o077)
    try:
        fetch(f"{bucket.url}/m/", "prefix", tmp_path / "data")
    finally:
        os.umask(before)

    open_to_all(tmp_path / "data")

    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "data").rglob("*")}
    assert modes == {"sub": 0o755, "a.bin": 0o644}
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o755


class _Usage(NamedTuple):
    total: int
    used: int
    free: int


def disk_of(monkeypatch: pytest.MonkeyPatch, *free: int) -> None:
    """Let others fill a disk of 100 GiB: what is free at each look; the last stays."""
    left = itertools.chain(free, itertools.repeat(free[-1]))
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda _: _Usage(100 * GIB, 0, next(left)))


def test_data_that_fit(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.put("m/tiny/b", b"b" * 2000)
    disk_of(monkeypatch, GIB + 2000)

    assert fetch(f"{bucket.url}/m/tiny/", "prefix", tmp_path) == {"b": b"b" * 2000}


@cases("disks", look_every=disk._LOOK_EVERY, reason="")
def test_data_that_are_larger_than_the_free_disk_are_given_up(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: dict[str, Any]
) -> None:
    """They are not begun where their size is known; `free` is what is free at each look."""
    bucket.put("m/tiny/b", b"b" * 2000)
    bucket.put("m/large.tar.gz", archive((plain("0"), b"b" * 3000)))
    bucket.put("m/many.tar.gz", archive(*((plain(name), b"b" * 900) for name in "012")))
    monkeypatch.setattr(disk, "_LOOK_EVERY", case["look_every"])
    monkeypatch.setattr(model_data, "_LARGE_MEMBER", 1000)
    disk_of(monkeypatch, *case["free"])

    with raises_code("DiskTooSmall", match=case["reason"] or None):
        fetch(f"{bucket.url}/{case['uri']}", case["kind"], tmp_path / "data")

    assert not case["reason"] or list((tmp_path / "data").iterdir()) == []
