"""A read-only registry on loopback that serves one image from its segments.

It lets a Docker Engine pull an image that exists nowhere: layers are sent straight out of the
model's files, by the kernel where they are file ranges. The repository's name is random, so that
other users of the machine cannot guess it.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from packager.core.errors import PackagerError
from packager.core.files.opening import SourceChanged, open_range
from packager.core.image import Blob, FileRange, Inline, SealedImage, Segment
from packager.images.blobs import BlobReader

LOOPBACK = "127.0.0.1"
_MEDIA_BLOB = "application/octet-stream"
_STALL_TIMEOUT_S = 120.0
_PATH = re.compile(r"/v2/(?P<repository>.+)/(?P<kind>manifests|blobs)/(?P<pointer>[^/]+)")
_RANGE = re.compile(r"bytes=(\d{1,19})-(\d{0,19})", re.ASCII)


class EmbeddedRegistry:
    """Serves `image` while its `with` block runs."""

    def __init__(
        self, image: SealedImage, blobs: Mapping[str, Blob], reader: BlobReader, *, tag: str = ""
    ) -> None:
        self.repository = f"packager/{secrets.token_hex(16)}"
        self._manifest = image.manifest_descriptor
        self._manifest_bytes = image.manifest
        self._tag = tag
        self._blobs = {**blobs, image.config_descriptor.digest: Blob((Inline(image.config),))}
        self._reader = reader
        self._lock = threading.Lock()
        self._bytes_served = 0
        self._failure: PackagerError | None = None
        self._server: _Server | None = None

    def __enter__(self) -> EmbeddedRegistry:
        self._server = _Server((LOOPBACK, 0), _Handler)
        self._server.registry = self
        threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.05},
            name="embedded-registry",
            daemon=True,
        ).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    @property
    def name(self) -> str:
        """`HOST:PORT/REPOSITORY`, to be pulled from."""
        assert self._server is not None, "only inside the `with` block"
        return f"{LOOPBACK}:{self._server.server_address[1]}/{self.repository}"

    @property
    def bytes_served(self) -> int:
        """Bytes of bodies that have left, repeated requests included."""
        with self._lock:
            return self._bytes_served

    @property
    def failure(self) -> PackagerError | None:
        """Return why a blob could not be read; its client only saw the connection close."""
        with self._lock:
            return self._failure

    def find(self, path: str) -> tuple[Blob, str, str] | None:
        """Blob, media type and digest at a path; None if missing."""
        match = _PATH.fullmatch(path)
        if not match or match["repository"] != self.repository:
            return None
        pointer = match["pointer"]
        if match["kind"] == "manifests":
            if pointer != self._manifest.digest and (not self._tag or pointer != self._tag):
                return None
            blob = Blob((Inline(self._manifest_bytes),))
            return blob, self._manifest.media_type, self._manifest.digest
        found = self._blobs.get(pointer)
        return None if found is None else (found, _MEDIA_BLOB, pointer)

    def chunks(self, segment: Segment) -> Iterator[memoryview]:
        """The bytes of a segment that the kernel cannot send by itself."""
        return self._reader.chunks(Blob((segment,)))

    def served(self, count: int) -> None:
        """Count bytes that have left."""
        with self._lock:
            self._bytes_served += count

    def failed(self, error: PackagerError) -> None:
        """Store the first reason why a blob could not be read."""
        with self._lock:
            self._failure = self._failure or error


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    registry: EmbeddedRegistry

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that go away; own errors are kept in `failure`."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _STALL_TIMEOUT_S
    disable_nagle_algorithm = True  # or a body waits 40 ms for the acknowledgement of its head
    server: _Server

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def log_message(self, format: str, *args: object) -> None:
        """No-op: requests are not logged."""

    def _answer(self, *, with_body: bool) -> None:
        if self.path in ("/v2", "/v2/"):
            self._head(200, {"Content-Length": "2", "Content-Type": "application/json"})
            if with_body:
                self.wfile.write(b"{}")
            return
        found = self.server.registry.find(self.path.partition("?")[0])
        if found is None:
            self._head(404, {"Content-Length": "0"})
            return
        blob, media_type, digest = found
        headers = {
            "Content-Type": media_type,
            "Docker-Content-Digest": digest,
            "ETag": f'"{digest}"',
            "Accept-Ranges": "bytes",
        }
        wanted = _RANGE.fullmatch(self.headers.get("Range", ""))
        first, last = 0, blob.size - 1
        if wanted:
            first = int(wanted[1])
            last = min(last, int(wanted[2] or last))
            if first > last:
                headers["Content-Range"] = f"bytes */{blob.size}"
                self._head(416, {**headers, "Content-Length": "0"})
                return
            headers["Content-Range"] = f"bytes {first}-{last}/{blob.size}"
        self._head(206 if wanted else 200, {**headers, "Content-Length": str(last - first + 1)})
        if with_body:
            self._send(blob, first, last - first + 1)

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        self.send_header("Docker-Distribution-API-Version", "registry/2.0")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _send(self, blob: Blob, offset: int, length: int) -> None:
        """Send a part of a blob. Closing early is the only way left to say that it failed."""
        self.close_connection = True
        try:
            for segment in part_of(blob, offset, length):
                if isinstance(segment, FileRange):
                    self._send_file(segment)
                else:
                    for chunk in self.server.registry.chunks(segment):
                        self.connection.sendall(chunk)
                        self.server.registry.served(len(chunk))
        except PackagerError as error:
            self.server.registry.failed(error)
            return
        self.close_connection = self.headers.get("Connection", "").lower() == "close"

    def _send_file(self, segment: FileRange) -> None:
        """Send a file range with `sendfile`; the puller verifies the digest."""
        with open_range(segment) as file:
            sent = self.connection.sendfile(file, segment.offset, segment.length)
        self.server.registry.served(sent)
        if sent < segment.length:
            raise SourceChanged(segment.path)


def part_of(blob: Blob, offset: int, length: int) -> Iterator[Segment]:
    """The segments of `length` bytes of a blob from `offset`."""
    for segment in blob.segments:
        start, stop = min(offset, segment.length), min(offset + length, segment.length)
        if start < stop:
            yield _cut(segment, start, stop - start)
            length -= stop - start
        offset = max(0, offset - segment.length)


def _cut(segment: Segment, start: int, length: int) -> Segment:
    if isinstance(segment, Inline):
        return Inline(segment.data[start : start + length])
    return replace(segment, offset=segment.offset + start, length=length)
