"""A proxy on loopback that breaks answers: cut after so many bytes, or with a wrong last byte.

It speaks one request a connection, which is enough for reading from S3.
"""

from __future__ import annotations

import socket
import socketserver
import threading
from types import TracebackType


class CuttingProxy:
    """Use as a context manager. Only answers to GETs of `path` are broken, when not short."""

    def __init__(self, host: str, port: int, path: str) -> None:
        self.cuts: list[int] = []  # bytes of the answer after which it breaks off, one each
        self.flips = 0  # how many answers get a wrong last byte
        self.ranges: list[str] = []  # of the requests for `path`
        self._server = _Server(("127.0.0.1", 0), _handler_for(self, (host, port), path))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> CuttingProxy:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


def _handler_for(
    proxy: CuttingProxy, upstream: tuple[str, int], path: str
) -> type[socketserver.StreamRequestHandler]:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            lines = []
            while (line := self.rfile.readline()) not in (b"", b"\r\n"):
                if not line.lower().startswith(b"connection:"):
                    lines.append(line)
            if not lines:
                return
            answer = self._ask(b"".join([*lines, b"Connection: close\r\n\r\n"]))
            if lines[0].startswith(f"GET {path} ".encode()):
                answer = self._broken(answer, lines)
            self.wfile.write(answer)

        def _ask(self, request: bytes) -> bytes:
            with socket.create_connection(upstream) as asked:
                asked.sendall(request)
                with asked.makefile("rb") as answer:
                    return answer.read()

        def _broken(self, answer: bytes, lines: list[bytes]) -> bytes:
            ranges = [line[7:].strip().decode() for line in lines if line[:6].lower() == b"range:"]
            proxy.ranges += ranges or [""]
            if len(answer) < 150_000:  # a header
                return answer
            if proxy.cuts:
                return answer[: proxy.cuts.pop(0)]
            if proxy.flips:
                proxy.flips -= 1
                return answer[:-1] + bytes([answer[-1] ^ 0xFF])
            return answer

    return Handler
