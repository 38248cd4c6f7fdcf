"""Model data of containers: taken out of buckets into folders of this machine.

Access is that of the server's own credentials.  Names in a bucket and in an archive are checked
before anything is written.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import tarfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packager.addons.server.endpoints.disk import DiskSpace
from packager.addons.server.sagemaker.hosting import ModelData
from packager.core.errors import ModelRefused, NotFound, PackagerError, Unavailable
from packager.core.references import BucketReference, parse_bucket_place
from packager.core.remote.addresses import S3Address
from packager.core.remote.s3 import S3Reader, s3_client, whole_object
from packager.core.units import GIB, MIB
from packager.models.paths import check_distinct, check_path
from packager.models.s3 import list_objects
from packager.models.walk import MAX_FILES

_AT_ONCE = 4  # files that are read
_MAX_HEADER = 32 * 1024  # bytes, with names and attributes; Python's time grows as its square
_LARGE_MEMBER = 16 * MIB  # of an archive: free disk is checked before each larger file
_MAX_RATIO = 200  # limit of unpacked to packed size, beyond the first GiB


def was_cancelled(message: str, *, hint: str = "") -> PackagerError:
    """Return an error: the endpoint is being deleted."""
    return PackagerError(message, hint=hint, code="Cancelled")


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a download ends: at a time of the monotonic clock, or when it is cancelled."""

    at_s: float
    seconds: int
    cancelled: threading.Event

    def check(self) -> None:
        """Raise where the download is to end."""
        if self.cancelled.is_set():
            raise was_cancelled("the download was ended")
        if time.monotonic() > self.at_s:
            raise Unavailable(
                f"the model data were not there after {self.seconds} s",
                hint="give it longer with ModelDataDownloadTimeoutInSeconds",
            )


FindPlace = Callable[[str], str | None]
"""Where data are that the server's operator has mapped: a bucket's place, or a directory."""


def fetch_data(
    data: ModelData,
    folder: Path,
    deadline: Deadline,
    client: Any = None,
    *,
    place: str | None = None,
) -> None:
    """Download model data into a folder; `place` overrides their own address.

    Raises `NotFound` for missing data, and `OutputFailed` before the disk is full.
    """
    folder.mkdir(parents=True, exist_ok=True)
    space = DiskSpace(folder)
    if place is not None and parse_bucket_place(place) is None:
        _copy(Path(place), folder, deadline, space)
        return
    data = data if place is None else replace(data, uri=place)
    _fetch(data, folder, deadline, space, client or s3_client())


def _copy(source: Path, folder: Path, deadline: Deadline, space: DiskSpace) -> None:
    """Copy a directory of this machine, links as the files that they lead to."""
    files = sorted(path for path in source.rglob("*") if path.is_file())
    space.check(sum(path.stat().st_size for path in files))
    for path in files:
        deadline.check()
        target = folder / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def _fetch(
    data: ModelData, folder: Path, deadline: Deadline, space: DiskSpace, client: Any
) -> None:
    place = parse_bucket_place(data.uri)
    if place is None:
        raise NotFound(f"{data.uri!r} is no address of a bucket", hint="write s3://BUCKET/PREFIX")
    is_prefix = data.kind == "prefix"
    prefix = f"{place.key.rstrip('/')}/" if is_prefix and place.key else place.key
    listed = list_objects(
        client,
        BucketReference(text=data.uri, source="s3", bucket=place.bucket, prefix=prefix),
    )
    reader = S3Reader(client)
    if not is_prefix:
        found = listed.get("")
        if found is None:
            raise NotFound(
                f"there is no object {data.uri!r}",
                hint="a prefix is given with S3DataType S3Prefix",
            )
        if data.kind == "archive":
            space.check(0)
            _unpack(_pieces(reader, found, deadline, space), found.size, folder, space)
        else:
            name = place.key.rpartition("/")[2]
            check_path(name)
            space.check(found.size)
            _write(reader, found, folder / name, deadline, space)
        return
    for path in listed:
        check_path(path)
    check_distinct(listed)
    space.check(sum(found.size for found in listed.values()))
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        tasks = [
            threads.submit(_write, reader, found, folder / path, deadline, space)
            for path, found in listed.items()
        ]
        try:
            for task in tasks:
                task.result()
        except BaseException:
            deadline.cancelled.set()
            raise


def open_to_all(folder: Path) -> None:
    """Make the files readable for every user of a container, whatever this process's umask is."""
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644 | (path.stat().st_mode & 0o111))


def _write(
    reader: S3Reader, found: S3Address, path: Path, deadline: Deadline, space: DiskSpace
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        for piece in _pieces(reader, found, deadline, space):
            stream.write(piece)


def _pieces(
    reader: S3Reader, found: S3Address, deadline: Deadline, space: DiskSpace
) -> Iterator[bytes]:
    deadline.check()
    for piece in reader.read(whole_object(found)):
        deadline.check()
        space.wrote(len(piece))
        yield piece


def _unpack(pieces: Iterator[bytes], size: int, folder: Path, space: DiskSpace) -> None:
    """Unpack a tar.gz while it downloads; write nothing outside the folder.

    Links are made last.  So nothing is ever written through one, whatever it leads to: Python's
    own filter resolves paths, and fails to where they are longer than the system's limit.
    """
    most = GIB + _MAX_RATIO * size
    total = count = 0
    links: list[tarfile.TarInfo] = []
    try:
        data = _Unzipped(_Stream(pieces))
        with tarfile.open(fileobj=data, mode="r|") as archive:
            for member in archive:
                total, count = total + member.size, count + 1
                if total > most or count > MAX_FILES:
                    raise ModelRefused(
                        "the archive of the model holds too much",
                        hint="give its files below a prefix, with S3DataType S3Prefix",
                    )
                if member.issym():
                    links.append(member)
                    continue
                space.wrote(member.size)
                if member.size > _LARGE_MEMBER:
                    space.check(member.size)
                with data.content():
                    archive.extract(member, folder, filter="data")
        for link in links:
            _make_link(tarfile.data_filter(link, str(folder)), folder)
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise ModelRefused(
            f"the archive of the model is no usable tar.gz: {error}",
            hint="`tar tzf` lists what a good one holds",
        ) from error


def _make_link(link: tarfile.TarInfo, folder: Path) -> None:
    """Make a link, itself not through another one; its target is resolved in the container."""
    place = folder / link.name
    inside = place.relative_to(folder).parts
    above = [folder.joinpath(*inside[:depth]) for depth in range(1, len(inside))]
    if ".." in inside or any(one.is_symlink() for one in above) or os.path.lexists(place):
        raise tarfile.ReadError(f"the link {link.name[:200]!r} is in the way of another file")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(link.linkname)


class _Unzipped(gzip.GzipFile):
    """An archive's bytes, of which a header may have only so many: it is read as a whole."""

    def __init__(self, stream: io.RawIOBase) -> None:
        super().__init__(fileobj=stream, mode="rb")
        self._left: int | None = _MAX_HEADER  # None: a file's content is being read

    @contextmanager
    def content(self) -> Iterator[None]:
        """Read without the limit of headers inside the block."""
        self._left = None
        try:
            yield
        finally:
            self._left = _MAX_HEADER

    def read(self, size: int | None = -1) -> bytes:
        """Return up to that many bytes; raises `tarfile.ReadError` within too long a header."""
        data = super().read(size)
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0:
                raise tarfile.ReadError("a header of it is too long")
        return data


class _Stream(io.RawIOBase):
    """Bytes that arrive in pieces, as a file that is read once."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return up to that many bytes; b"" at the end."""
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._rest = piece
        count = len(self._rest) if size < 0 else size
        data, self._rest = self._rest[:count], self._rest[count:]
        return data
