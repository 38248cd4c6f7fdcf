"""A server that answers as vLLM does, with Python alone: an engine that starts in a blink.

It takes vLLM's command line, of which it reads the port and the name.  TINY_FAULT says how it
misbehaves.  It runs in a container and imports nothing of ours.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAULT = os.environ.get("TINY_FAULT", "")
SLOW_S = 1.5  # of an answer to a request that asks for 7 tokens
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def option(name: str, otherwise: str) -> str:
    """Return the word after an option of the command line."""
    words = sys.argv[1:]
    return words[words.index(name) + 1] if name in words else otherwise


MODEL = option("--served-model-name", "model")


class Handler(BaseHTTPRequestHandler):
    """Answers the requests that tests make."""

    def do_GET(self) -> None:
        if self.path == "/ping":
            self.answer(503 if FAULT == "never-ready" else 200, {})
        else:
            self.answer(200, {"object": "list", "data": [{"id": MODEL}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked.get("max_tokens") == 7:
            logging.info("a slow answer has begun")
            time.sleep(SLOW_S)
        if asked.get("max_tokens") == 13:
            logging.info("ERROR the worker died")
            os._exit(3)
        if asked.get("model") != MODEL:
            self.answer(404, {"error": {"message": "no such model"}})
        elif self.path == CHAT and FAULT == "no-template":
            self.answer(400, {"error": {"message": "the tokenizer has no chat template"}})
        elif self.path == CHAT:
            self.answer(200, {"choices": [{"message": {"content": "from a chat"}}]})
        elif self.path == COMPLETIONS:
            self.answer(200, {"choices": [{"text": "from a completion"}]})
        else:
            self.answer(404, {})

    def answer(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    """Waits for running requests when it closes."""

    daemon_threads = False


def main() -> None:
    logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)
    logging.info("loading shard 3 of 9")
    if FAULT == "start":
        logging.info("ERROR no such kernel")
        sys.exit(3)
    server = Server(("0.0.0.0", int(option("--port", "8080"))), Handler)
    end = threading.Thread(target=server.shutdown)  # from another thread than it runs in
    signal.signal(signal.SIGTERM, lambda number, frame: end.start())
    logging.info("ready")
    server.serve_forever(0.05)
    server.server_close()


if __name__ == "__main__":
    main()
