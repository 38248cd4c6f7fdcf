"""Reading the headers of a tar as it passes: what each entry is, and where its data lie.

The entries go to a receiver, in their order.  What container engines read differently, or not at
all, is refused: unknown types, names that lead out of the layer, a tar that is cut off or goes on
behind its end.  Everything raises `ValueError` with the reason, and so may the receiver.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from packager.images.rootfs import headers
from packager.images.rootfs.headers import BLOCK, TarHeader
from packager.images.rootfs.node import FileNode, NodeKind, Path

MAX_EXTENSION = 1024 * 1024  # bytes of a PAX header, a long name or a map of a sparse file
MAX_NAME = 255  # bytes between two slashes: Linux' limit
MAX_PATH = 4096  # bytes of a name or of a link's target: Linux' limit
MAX_ID = 2**32 - 2  # the id above is invalid: a mount shows it as the overflow id
MAX_MAJOR, MAX_MINOR = 2**12 - 1, 2**20 - 1  # of a device, in Linux
MAX_SECONDS = 2**63 - 1
_EXTENSIONS = (
    headers.PAX, headers.GLOBAL_PAX, headers.SOLARIS_PAX, headers.LONG_NAME, headers.LONG_LINK,
)  # fmt: skip
_KINDS: Mapping[bytes, NodeKind] = {
    headers.FILE: "file",
    headers.OLD_FILE: "file",
    headers.CONTIGUOUS: "file",
    headers.SPARSE: "file",
    headers.DIRECTORY: "directory",
    headers.SYMLINK: "symlink",
    headers.CHARACTER: "character",
    headers.BLOCK_DEVICE: "block",
    headers.FIFO: "fifo",
}
_SPARSE = b"GNU.sparse."


class Receiver(Protocol):
    """Receives a tar's entries in their order."""

    def add(self, path: Path, node: FileNode) -> None:
        """Add a file of any kind, or a mark of a removed one."""
        ...

    def link(self, path: Path, target: Path) -> None:
        """Add another name of a file."""
        ...


class ContentReceiver(Protocol):
    """Receives the content of some files, after their entries."""

    def keeps(self, path: Path, node: FileNode) -> bool:
        """Whether to keep the content of the file just added."""
        ...

    def content(self, path: Path, data: bytes) -> None:
        """Receive the content of the file that was added last."""
        ...


class TarReader:
    """Takes an uncompressed tar in order, in pieces of any size; passes its entries on.

    Sparse files, whose data are not the file's bytes, are refused unless `sparse` is set.
    """

    def __init__(
        self,
        receiver: Receiver,
        *,
        sparse: bool = False,
        contents: ContentReceiver | None = None,
    ) -> None:
        self._position = 0  # bytes that have passed
        self._wanted = BLOCK  # bytes of the header or extension that is being collected
        self._collected = bytearray()
        self._content = 0  # bytes of content and padding that are still to pass
        self._extension: TarHeader | None = None  # whose body is being collected
        self._pax: dict[bytes, bytes] = {}  # for the next entry
        self._long: dict[bytes, bytes] = {}  # GNU's long name and long link for the next entry
        self._zeros = 0  # blocks of zeros in a row: two end the tar
        self._receiver = receiver
        self._takes_sparse = sparse
        self._map: TarHeader | None = None  # of a sparse file, whose map continues
        self._map_blocks = 0
        self._contents = contents
        self._kept: tuple[Path, int] | None = None  # the file whose content is collected, its size
        self._kept_data = bytearray()

    def feed(self, data: bytes | memoryview) -> None:
        """Read the next bytes."""
        view = memoryview(data)
        while len(view):
            if self.is_ended:
                self._position += len(view)
                return
            if self._content:
                count = min(self._content, len(view))
                self._content -= count
                if self._kept is not None:
                    self._keep(*self._kept, view[:count])
            else:
                count = min(self._wanted - len(self._collected), len(view))
                self._collected += view[:count]
            self._position += count
            view = view[count:]
            if not self._content and len(self._collected) == self._wanted:
                self._take()

    @property
    def skippable(self) -> int:
        """Bytes of content that come next: `skip` may pass over them."""
        return self._content if self._kept is None else 0

    def skip(self, length: int) -> None:
        """Pass over bytes of content that are not at hand."""
        if not self.is_ended:
            if length > self._content:
                raise ValueError("a header of it is not at hand")
            self._content -= length
        self._position += length

    def finish(self) -> int:
        """Return the tar's size in bytes; raises where it ended within an entry."""
        is_within = self._content or self._collected or self._extension or self._pax or self._long
        if (is_within or self._map) and not self.is_ended:
            raise ValueError("its tar ends within an entry")
        return self._position

    @property
    def needed(self) -> int:
        """Bytes of the piece that comes next: of a header or extension, or of content."""
        return self._content or self._wanted - len(self._collected)

    @property
    def is_ended(self) -> bool:
        """Whether the two blocks of zeros have passed that end a tar."""
        return self._zeros == 2

    def _keep(self, path: Path, size: int, data: memoryview) -> None:
        self._kept_data += data
        if not self._content and self._contents is not None:
            self._contents.content(path, bytes(self._kept_data[:size]))
            self._kept = None
            self._kept_data.clear()

    def _take(self) -> None:
        block = bytes(self._collected)
        self._collected.clear()
        if self._extension is not None:
            self._take_extension(self._extension, block)
        elif self._map is not None:
            self._take_map(self._map, goes_on=bool(block[504]))
        elif block.count(0) == BLOCK:
            self._take_end()
        else:
            self._take_header(headers.parse_header(block), block)

    def _take_end(self) -> None:
        if self._pax or self._long:
            raise ValueError("its tar ends within an entry")
        self._zeros += 1

    def _take_header(self, header: TarHeader, block: bytes) -> None:
        if self._zeros:
            raise ValueError("its tar goes on behind a block of zeros")
        if header.size < 0:
            raise ValueError("a size in its tar is negative")
        if header.kind == headers.SPARSE and self._takes_sparse:
            self._take_map(header, goes_on=bool(block[482]))
            return
        if header.kind not in _EXTENSIONS:
            self._take_member(header)
            return
        if header.size > MAX_EXTENSION:
            raise ValueError("a header of its tar is over 1 MiB")
        self._extension = header
        self._wanted = -(-header.size // BLOCK) * BLOCK
        if not self._wanted:
            self._take_extension(header, b"")

    def _take_extension(self, header: TarHeader, body: bytes) -> None:
        self._extension = None
        self._wanted = BLOCK
        body = body[: header.size]
        if header.kind in (headers.LONG_NAME, headers.LONG_LINK):
            self._long[header.kind] = body.partition(b"\0")[0]
        elif header.kind != headers.GLOBAL_PAX:  # engines pass over global headers
            self._pax = headers.parse_pax(body)

    def _take_map(self, header: TarHeader, *, goes_on: bool) -> None:
        """Skip the map of GNU's old sparse format, which continues after its header."""
        self._map = header if goes_on else None
        self._map_blocks = self._map_blocks + 1 if goes_on else 0
        if self._map_blocks * BLOCK > MAX_EXTENSION:
            raise ValueError("the map of a sparse file in it does not end")
        if not goes_on:
            self._take_member(header)

    def _take_member(self, header: TarHeader) -> None:
        pax, long = self._pax, self._long
        self._pax, self._long = {}, {}
        is_sparse = header.kind == headers.SPARSE or any(name.startswith(_SPARSE) for name in pax)
        if is_sparse and not self._takes_sparse:
            raise ValueError("it holds a sparse file")
        name = long.get(headers.LONG_NAME) or pax.get(b"path") or header.name
        name = pax.get(_SPARSE + b"name") or name
        target = long.get(headers.LONG_LINK) or pax.get(b"linkpath") or header.link
        path = path_of(name)
        if header.kind == headers.HARD_LINK:
            self._receiver.link(path, path_of(target))
            return
        kind = _KINDS.get(header.kind)
        if kind is None:
            raise ValueError(f"it holds an entry of the unknown type {header.kind!r}")
        if header.kind == headers.OLD_FILE and name.endswith(b"/"):
            kind = "directory"  # as archives before POSIX wrote it
        stored = headers.pax_number(pax.get(b"size"), header.size) if kind == "file" else 0
        size = stored
        if is_sparse:
            stated = pax.get(_SPARSE + b"realsize") or pax.get(_SPARSE + b"size")
            size = max(0, headers.pax_number(stated, header.real_size))
        seconds, nanoseconds = divmod(headers.pax_time_ns(pax.get(b"mtime"), header.mtime), 10**9)
        if seconds > MAX_SECONDS:
            raise ValueError("a time in its tar is none")
        node = FileNode(
            kind=kind,
            mode=header.mode & 0o7777,
            uid=owner_of(headers.pax_number(pax.get(b"uid"), header.uid)),
            gid=owner_of(headers.pax_number(pax.get(b"gid"), header.gid)),
            mtime=seconds,
            mtime_ns=nanoseconds,
            size=size,
            offset=self._position if kind == "file" else 0,
            target=target_of(target) if kind == "symlink" else b"",
            device=_device(header.device) if kind in ("character", "block") else (0, 0),
            xattrs=headers.xattrs_of(pax),
        )
        self._receiver.add(path, node)
        self._content = -(-stored // BLOCK) * BLOCK
        if self._contents is not None and not is_sparse and self._contents.keeps(path, node):
            self._kept = path, size
            if not size:
                self._keep(path, size, memoryview(b""))


def path_of(name: bytes) -> Path:
    """Return the parts of a name below the layer's root; raise where it leads out of it."""
    parts = tuple(part for part in name.split(b"/") if part not in (b"", b"."))
    if b".." in parts or b"\0" in name:
        raise ValueError("a name in it leads out of the layer")
    if any(len(part) > MAX_NAME for part in parts) or len(name) > MAX_PATH:
        raise ValueError(f"a name in it is longer than {MAX_NAME} or {MAX_PATH} bytes")
    return parts


def target_of(target: bytes) -> bytes:
    """Return a symbolic link's target; raise if it is empty."""
    if not target or b"\0" in target or len(target) >= MAX_PATH:
        raise ValueError("a symbolic link in it leads nowhere")
    return target


def owner_of(number: int) -> int:
    """Return the number of a user or group; raise where Linux has none such."""
    if not 0 <= number <= MAX_ID:
        raise ValueError("an owner in it is none that Linux has")
    return number


def _device(device: tuple[int, int]) -> tuple[int, int]:
    if not (0 <= device[0] <= MAX_MAJOR and 0 <= device[1] <= MAX_MINOR):
        raise ValueError("a device in it is none that Linux has")
    return device
