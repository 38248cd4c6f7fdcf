"""A server that answers each path with a document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.doubles.http import Handler, serving


@dataclass
class JsonServer:
    """Status and document by path, 404 elsewhere; what was asked, with the body."""

    answers: dict[str, tuple[int, Any]]
    asked: list[tuple[str, Any]] = field(default_factory=list)
    url: str = ""

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


class _Answer(Handler):
    def do_GET(self) -> None:
        double: JsonServer = self.server.double  # type: ignore[attr-defined]
        double.asked.append((self.path, json.loads(self.body() or b"null")))
        status, document = double.answers.get(self.path, (404, {"error": "no"}))
        self.say(status, body=json.dumps(document).encode())

    do_POST = do_GET


@contextmanager
def json_server(answers: dict[str, tuple[int, Any]]) -> Iterator[JsonServer]:
    """Serve documents while the block runs."""
    double = JsonServer(answers)
    with serving(_Answer, double) as server:
        double.url = server.url
        yield double
