"""A model server as SageMaker starts one: /ping and /invocations on port 8080.

It runs as the program of an image, with Python alone, and within a test; variables say how it
misbehaves, and so does the body of a request:

    READY_S=2    /ping answers 200 after so many seconds
    FAIL=1       it ends at its start
    PING_TO=URL  /ping redirects there
    {"redirect": "http://HOST/"}
    {"sleep": 1, "status": 400, "exit": 3, "size": 7, "stream": 5, "gap": 0.1, "cut": 2}
    ADAPTERS=1   POST /adapters and DELETE /adapters/NAME keep names, as vLLM does
    {"answer": {…}}, {"stream": 2, "events": ["…", "…"]}   what it answers
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

DATA = Path("/opt/ml")


class ModelServer(ThreadingHTTPServer):
    """Answers with what it was asked; waits for running requests when it closes."""

    daemon_threads = False
    request_queue_size = 128

    def __init__(self, host: str, port: int, environment: Mapping[str, str]) -> None:
        super().__init__((host, port), Handler)
        self.environment = environment
        self.adapters: dict[str, str] = {}  # name → folder
        self.ready_at = time.monotonic() + float(environment.get("READY_S", "0"))


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    server: ModelServer

    def do_GET(self) -> None:
        if "PING_TO" in self.server.environment:
            self.redirect(self.server.environment["PING_TO"])
            return
        self.answer(200 if time.monotonic() >= self.server.ready_at else 503, b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.partition("?")[0] == "/adapters":
            self.load_adapter(json.loads(body))
            return
        asked: dict[str, Any] = json.loads(body) if body[:1] == b"{" else {}
        time.sleep(asked.get("sleep", 0))
        if "exit" in asked:
            sys.stdout.write("RuntimeError: told to end\n")
            sys.stdout.flush()
            os._exit(asked["exit"])
        if "redirect" in asked:
            self.redirect(asked["redirect"])
        elif "status" in asked:
            self.answer(asked["status"], b'{"error":"a bad wish"}')
        elif "stream" in asked:
            self.stream(asked)
        elif "answer" in asked:
            self.answer(200, json.dumps(asked["answer"]).encode())
        elif "size" in asked:
            self.answer(200, b"x" * asked["size"])
        else:
            self.answer(200, json.dumps(self.seen(body)).encode())

    def load_adapter(self, asked: Mapping[str, str]) -> None:
        name, adapters = asked["name"], self.server.adapters
        is_served = "ADAPTERS" in self.server.environment
        status = 404 if not is_served else 400 if name in adapters else 200
        if status == 200:
            adapters[name] = asked["src"]
        self.answer(status, b'{"error":"already loaded"}')

    def do_DELETE(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        name = self.path.removeprefix("/adapters/")
        self.answer(404 if self.server.adapters.pop(name, None) is None else 200, b"{}")

    def redirect(self, url: str) -> None:
        self.send_response(302)
        self.send_header("Location", url)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def stream(self, asked: Mapping[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        events = asked.get("events", range(asked["stream"]))
        for number in range(asked["stream"]):
            piece = f"data: {events[number]}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
            if asked.get("cut") == number:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            time.sleep(asked.get("gap", 0))
        self.wfile.write(b"0\r\n\r\n")

    def seen(self, body: bytes) -> dict[str, Any]:
        files = sorted(path for path in DATA.rglob("*") if path.is_file()) if DATA.exists() else []
        return {
            "name": self.server.environment.get("NAME", ""),
            "arguments": sys.argv[1:],
            "headers": dict(self.headers),
            "body": body.decode(errors="replace"),
            "files": {str(path.relative_to(DATA)): path.read_text() for path in files},
            "is_read_only": bool(files) and not os.access(files[0].parent, os.W_OK),
        }

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if "X-Amzn-SageMaker-Custom-Attributes" in self.headers:
            self.send_header("X-Amzn-SageMaker-Custom-Attributes", "seen")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing of requests."""


def main() -> None:
    if os.environ.get("FAIL"):
        sys.stdout.write('Traceback (most recent call last):\n  File "m.py", line 1, in load\n')
        sys.stdout.write("ValueError: no such weight\n")
        sys.exit(3)
    server = ModelServer("0.0.0.0", 8080, os.environ)
    end = threading.Thread(target=server.shutdown)  # from another thread than it runs in
    signal.signal(signal.SIGTERM, lambda number, frame: end.start())
    sys.stdout.write("the model is ready\n")
    sys.stdout.flush()
    server.serve_forever(0.05)
    server.server_close()


if __name__ == "__main__":
    main()
