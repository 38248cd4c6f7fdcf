"""`docker load` without a file: an archive that is made while the engine reads it.

Layers take turns, for an archive holds one file after the other.  What names
them, the configuration and `manifest.json`, comes last, when all digests are
known: so each layer is read once, and the engine names the image after it has
everything.
"""

from __future__ import annotations

import json
import queue
import tarfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from packager.core.errors import OutputFailed, PackagerError
from packager.core.ports import BlobWriter
from packager.images.writers import WriteBrokenOff

_BLOCK = 512
_WAITING = 8  # chunks between us and the connection
_CHECK_S = 0.2
_CANCEL_S = 5.0

Load = Callable[[Iterator[bytes]], Iterable[dict[str, Any]]]
Explain = Callable[[BaseException], PackagerError]


class ArchiveUpload:
    """An archive on its way into an engine. Starts with its first file."""

    def __init__(
        self, load: Load, *, explain: Explain, on_message: Callable[[dict[str, Any]], None]
    ) -> None:
        self._load = load
        self._explain = explain
        self._on_message = on_message
        self._turn = threading.Lock()
        self._chunks: queue.Queue[bytes | None] = queue.Queue(_WAITING)
        self._cancelled = threading.Event()
        self._ended = threading.Event()
        self._failure: PackagerError | None = None
        self._thread: threading.Thread | None = None
        self.bytes_sent = 0

    def file(self, name: str, size: int) -> ArchiveFile:
        """Block until no other file is being written, and open the next file of the archive."""
        self._turn.acquire()
        try:
            self._check()
        except BaseException:
            self._turn.release()
            raise
        return ArchiveFile(self, name, size)

    def add(self, name: str, data: bytes) -> None:
        """Append a small file."""
        file = self.file(name, len(data))
        file.write(memoryview(data))
        file.close()

    def finish(self) -> None:
        """Write the end of the archive and block until the engine has loaded it."""
        self.send(bytes(2 * _BLOCK))
        self._put(None)
        assert self._thread is not None
        self._thread.join()
        self._check()

    def cancel(self) -> None:
        """Break off: the engine forgets what it has received. Never raises."""
        self._cancelled.set()
        if self._thread is not None:
            self._thread.join(_CANCEL_S)

    def send(self, data: bytes) -> None:
        """Queue bytes for the connection; called by the file that holds the turn."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="engine-load", daemon=True)
            self._thread.start()
        self._put(data)
        self.bytes_sent += len(data)

    def release(self) -> None:
        """Release the turn, so that the next file can start."""
        self._turn.release()

    def _put(self, data: bytes | None) -> None:
        while True:
            self._check()
            if self._ended.is_set():
                raise self._explain(EOFError("the engine has stopped to read"))
            try:
                self._chunks.put(data, timeout=_CHECK_S)
                return
            except queue.Full:
                continue

    def _check(self) -> None:
        if self._failure:
            raise self._failure
        if self._cancelled.is_set():
            raise WriteBrokenOff("the archive for the Docker Engine was broken off")

    def _run(self) -> None:
        try:
            for message in self._load(self._body()):
                if "error" in message or "message" in message:
                    raise OutputFailed(
                        str(message.get("error") or message["message"]),
                        hint="`docker info` shows the state of the Docker Engine",
                    )
                self._on_message(message)
        except BaseException as error:
            if not self._cancelled.is_set():
                self._failure = self._explain(error)
        finally:
            self._ended.set()

    def _body(self) -> Iterator[bytes]:
        while not self._cancelled.is_set():
            try:
                chunk = self._chunks.get(timeout=_CHECK_S)
            except queue.Empty:
                continue
            if chunk is None:
                return
            yield chunk
        raise _BrokenOff


class ArchiveFile(BlobWriter):
    """The archive's current file. Its header is sent with the first byte."""

    def __init__(self, archive: ArchiveUpload, name: str, size: int) -> None:
        self._archive = archive
        self._name = name
        self._size = size
        self._sent = 0
        self._is_open = True

    def write(self, chunk: memoryview) -> None:
        """Append; an engine that is lost is `Unavailable`."""
        if not self._sent:
            self._archive.send(_header(self._name, self._size))
        self._sent += len(chunk)
        self._archive.send(bytes(chunk))

    def commit(self, digest: str) -> None:  # noqa: ARG002
        """Fill up the last block. The name that the digest gives comes at the end."""
        self.close()

    def close(self) -> None:
        """Fill up the last block, and let the next file begin."""
        try:
            if not self._sent:
                self._archive.send(_header(self._name, self._size))
            self._archive.send(bytes(-self._sent % _BLOCK))
        finally:
            self._release()

    def abort(self) -> None:
        """Discard the file; a file that was partly sent cancels the whole archive."""
        if self._sent and self._is_open:
            self._archive.cancel()
        self._release()

    def _release(self) -> None:
        if self._is_open:
            self._is_open = False
            self._archive.release()


class _BrokenOff(Exception):
    """Ends a request in the middle of its body."""


def archive_manifest(config: str, layers: Sequence[str], name: str) -> bytes:
    """Return `manifest.json`: the files of the image in the archive, and its name."""
    document = [{"Config": config, "RepoTags": [name], "Layers": list(layers)}]
    return json.dumps(document, separators=(",", ":")).encode()


def _header(name: str, size: int) -> bytes:
    """A header without owner and time, with GNU's way of writing large sizes."""
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(format=tarfile.GNU_FORMAT)
