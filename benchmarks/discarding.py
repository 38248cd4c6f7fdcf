"""A registry that counts what it is given and keeps manifests only.

For pushes larger than the disk.  It believes every digest, so it proves nothing
but memory and time of the client.  Prints its port, then serves until killed,
or until whoever started it has ended, which closes its stdin.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

PIECE = 1 << 20


class Discarding(BaseHTTPRequestHandler):
    """Just enough of the distribution protocol for one client."""

    protocol_version = "HTTP/1.1"
    blobs: ClassVar[dict[str, int]] = {}
    manifests: ClassVar[dict[str, bytes]] = {}
    uploads: ClassVar[dict[str, int]] = {}

    def log_message(self, *_: object) -> None:
        """Be silent."""

    def do_GET(self) -> None:
        """Give a manifest, or say how large a blob is."""
        name = self.path.rpartition("/")[2]
        if "/manifests/" in self.path and name in self.manifests:
            body = self.manifests[name]
            digest = "sha256:" + hashlib.sha256(body).hexdigest()
            media = "application/vnd.oci.image.manifest.v1+json"
            self._answer(200, body, {"Docker-Content-Digest": digest, "Content-Type": media})
        elif "/blobs/" in self.path and name in self.blobs:
            self._answer(200, b"", {"Docker-Content-Digest": name}, self.blobs[name])
        else:
            self._answer(200 if self.path == "/v2/" else 404)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        """Open an upload."""
        name = str(len(self.uploads))
        self.uploads[name] = 0
        self._answer(202, b"", {"Location": f"{urlsplit(self.path).path}{name}"})

    def do_PATCH(self) -> None:
        """Count a body, whole or in chunks."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            taken = 0
            while size := int(self.rfile.readline().split(b";")[0], 16):
                taken += self._pass(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            taken = self._pass(int(self.headers["Content-Length"]))
        self.uploads[self.path.rpartition("/")[2]] += taken
        self._answer(202, b"", {"Location": self.path})

    def do_PUT(self) -> None:
        """Store a manifest, or name an upload."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = urlsplit(self.path)
        name = parts.path.rpartition("/")[2]
        if "/manifests/" in parts.path:
            self.manifests[name] = body
            self.manifests["sha256:" + hashlib.sha256(body).hexdigest()] = body
        else:
            self.blobs[parse_qs(parts.query)["digest"][0]] = self.uploads[name] + len(body)
        self._answer(201)

    def do_DELETE(self) -> None:
        """Forget an upload."""
        self._answer(204)

    def _pass(self, size: int) -> int:
        left = size
        while left:
            left -= len(self.rfile.read(min(PIECE, left)))
        return size

    def _answer(
        self,
        status: int,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        size: int | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if size is None else size))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Discarding)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()  # to its end, which is that of whoever started this
