"""A server that answers as vLLM does, with Python alone: an engine that starts in a blink.

It takes vLLM's command line, of which it reads the port and the name.  TINY_FAULT says how it
misbehaves, TINY_LONGEST how many tokens an answer has at most.  It runs in a container and
imports nothing of ours.
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
LONGEST = int(os.environ.get("TINY_LONGEST", "1000000"))
SLOW_S = 1.5  # of an answer to a request that asks for 7 tokens
TOKEN_S = 0.002  # of each token of a stream
CHAT, COMPLETIONS, INVOCATIONS = "/v1/chat/completions", "/v1/completions", "/invocations"


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
        if asked.get("model", MODEL) != MODEL:  # SageMaker's clients need not name it
            self.answer(404, {"error": {"message": "no such model"}})
        elif self.path == CHAT and FAULT == "no-template":
            self.answer(400, {"error": {"message": "the tokenizer has no chat template"}})
        elif asked.get("stream"):
            options = asked.get("stream_options") or {}
            counts = bool(options.get("include_usage"))
            self.stream(min(asked.get("max_tokens") or 4, LONGEST), counts=counts)
        elif self.path == INVOCATIONS:  # in OpenAI's words and in LMI's
            told = {"generated_text": "from a chat", "details": {"generated_tokens": 1}}
            self.answer(200, {**chat("from a chat"), **told})
        elif self.path == CHAT:
            self.answer(200, chat("from a chat"))
        elif self.path == COMPLETIONS:
            self.answer(200, {"choices": [{"text": "from a completion"}]})
        else:
            self.answer(404, {})

    def stream(self, tokens: int, *, counts: bool) -> None:
        """Answer in pieces of a token each, and tell how many there were where that is asked."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        pieces = [{"choices": [{"index": 0, "delta": {"content": "w "}}]}] * tokens
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        told = [{"choices": [], "usage": usage(tokens)}] if counts else []
        for piece in (*pieces, end, *told):
            time.sleep(TOKEN_S)
            self.wfile.write(f"data: {json.dumps(piece)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def answer(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def chat(text: str) -> dict[str, object]:
    """Return an answer to a chat."""
    return {"choices": [{"message": {"content": text}}], "usage": usage(1)}


def usage(tokens: int) -> dict[str, int]:
    """Return what an answer of so many tokens is said to have taken."""
    return {"prompt_tokens": 32, "completion_tokens": tokens, "total_tokens": 32 + tokens}


class Server(ThreadingHTTPServer):
    """Waits for running requests when it closes."""

    request_queue_size = 128  # connections at once, as engines take them

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
