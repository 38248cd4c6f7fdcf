"""Limits for every answer that huggingface-hub's client takes.

The client reads bodies of errors and redirects whole, decompresses without a limit, and writes a
download to disk as long as bytes come.  A hook in its HTTP session limits all three, also in
sessions that the client creates later.  The HTTP library depends on huggingface-hub's version, so
it is not imported here.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Event
from typing import Any

from packager.core.documents import NotStrict, parse_object, shorten
from packager.core.errors import PackagerError, ProtocolFailed, Unavailable
from packager.core.remote.resume import CHUNK, STALL_S, wrong_content
from packager.core.remote.timely_streams import make_timely
from packager.core.text import remember_headers

TIMEOUT_S = 30.0  # to connect, and for each piece
LONGEST_ANSWER = 32 * 1024 * 1024  # bytes; the list of a model with 60 000 files has some 15 MB
ANSWER_S = 300.0  # for all of a document
_NAME = re.compile(r'(?:W/)?"?[A-Za-z0-9_+=:~-][A-Za-z0-9_+=:~.-]{0,199}"?', re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII)
_LONGEST_REDIRECT = 64 * 1024  # bytes; never read


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The file that is being downloaded in this context."""

    path: str
    size: int
    stop: Event  # set when it is no longer needed


_WANTED: ContextVar[_Wanted | None] = ContextVar("wanted", default=None)


def not_a_hub(what: str) -> ProtocolFailed:
    """Return an error: the answer does not come from a Hub API."""
    return ProtocolFailed(
        f"the hub's answer cannot be used: {what}",
        hint="check HF_ENDPOINT and the proxy: a complete hub must answer there",
        code="NotAHub",
    )


def limit_answers() -> None:
    """Install size limits into the HTTP sessions of huggingface-hub, present and future."""
    from huggingface_hub import set_client_factory
    from huggingface_hub.utils import _http

    make = _http._GLOBAL_CLIENT_FACTORY
    if isinstance(make, _LimitedClients):
        return
    set_client_factory(_LimitedClients(make))


@contextmanager
def downloading(path: str, size: int, stop: Event | None = None) -> Iterator[None]:
    """Refuse every body in the block that is longer than the file is listed to be.

    Once `stop` is set, the rest is abandoned.
    """
    before = _WANTED.set(_Wanted(path, size, stop or Event()))
    try:
        yield
    finally:
        _WANTED.reset(before)


def get_object(
    url: str,
    *,
    headers: Mapping[str, str],
    params: Mapping[str, str],
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Fetch a JSON object of a hub's API; raises what `hf_raise_for_status` does for an error."""
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        get_session,
        hf_raise_for_status,
    )

    limit_answers()
    sent = {**headers, "Accept-Encoding": "identity"}
    data = bytearray()
    started = clock()
    with get_session().stream(
        "GET", url, headers=sent, params=params, timeout=TIMEOUT_S
    ) as response:
        hf_raise_for_status(response)
        refuse_compressed(response)
        for piece in response.iter_raw():
            data += piece
            if len(data) > LONGEST_ANSWER:
                raise not_a_hub(f"it has more than {LONGEST_ANSWER} bytes")
            if clock() - started > ANSWER_S:
                raise Unavailable(
                    f"the hub has not answered all of a question in {ANSWER_S:.0f} s",
                    hint="run again later, or check the proxy",
                )
    try:
        return parse_object(bytes(data), max_bytes=LONGEST_ANSWER)
    except NotStrict as error:
        raise not_a_hub(str(error)) from error


class _LimitedClients:
    """Session factory that adds the limiting hook to the sessions of another factory."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __call__(self) -> Any:
        client = self._make()
        make_timely(client)
        client.event_hooks = {
            **client.event_hooks,
            "request": [*client.event_hooks.get("request", ()), _remember_credentials],
            "response": [*client.event_hooks.get("response", ()), _limit],
        }
        return client


def _remember_credentials(request: Any) -> None:
    """Keep the token of a request out of every text."""
    remember_headers(request.headers)


def _limit(response: Any) -> None:
    """Limit the size of a response body before it is read."""
    wanted = _WANTED.get()
    _refuse_paths(response.headers)
    if response.status_code >= 400:
        # Headers say what is wrong; the client would read, decompress and parse any body.
        response.headers.pop("Content-Encoding", None)
        response.stream = _limited(response.stream, 0, None)
    elif response.status_code >= 300:
        refuse_compressed(response)
        response.stream = _limited(response.stream, _LONGEST_REDIRECT, _redirect_too_long)
    elif wanted is not None:
        refuse_compressed(response)
        response.stream = _limited(
            response.stream, wanted.size, lambda: _longer_than_listed(wanted), wanted=wanted
        )


def _limited(
    stream: Any,
    limit: int,
    failure: Callable[[], PackagerError] | None,
    *,
    wanted: _Wanted | None = None,
) -> Any:
    """Wrap a body: after `limit` bytes it raises `failure`, or ends where there is none.

    A file that comes too slowly ends it as well.
    """
    kind: Any = type(stream)  # the client looks at the class

    class Limited(kind):  # type: ignore[misc]
        def __init__(self) -> None:
            """No-op: the wrapped session is set up already."""

        def __iter__(self) -> Iterator[bytes]:
            if not limit and failure is None:
                return
            left, came, waited_s = limit, 0, 0.0
            pieces = iter(stream)
            while True:
                asked_s = time.monotonic()
                piece = next(pieces, None)
                waited_s += time.monotonic() - asked_s
                if piece is None:
                    return
                left -= len(piece)
                if left < 0:
                    if failure is not None:
                        raise failure()
                    return
                if wanted is not None and wanted.stop.is_set():
                    raise Unavailable(
                        f"the download of {wanted.path!r} was given up",
                        hint="another file of the model failed: see what was told of it",
                    )
                came += len(piece)
                if came >= CHUNK:
                    came, waited_s = 0, 0.0
                elif wanted is not None and waited_s > STALL_S:
                    raise Unavailable(
                        f"{wanted.path!r} comes too slowly from the hub",
                        hint="run again: what has come is kept",
                    )
                yield piece

        def close(self) -> None:
            stream.close()

    return Limited()


def _refuse_paths(headers: Mapping[str, str]) -> None:
    """Refuse names that the client makes paths of, below its cache or, with `../`, beside it."""
    for name in ("ETag", "X-Linked-ETag", "X-Xet-Hash"):
        value = headers.get(name)
        if value is not None and _NAME.fullmatch(value) is None:
            raise not_a_hub(f"its {name} is {shorten(value)}")
    commit = headers.get("X-Repo-Commit")
    if commit is not None and _COMMIT.fullmatch(commit) is None:
        raise not_a_hub(f"its X-Repo-Commit is {shorten(commit)}")


def refuse_compressed(response: Any) -> None:
    """Refuse what would grow in memory; it was asked for as it is."""
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding.strip().lower() not in ("", "identity"):
        raise ProtocolFailed(
            "the hub sent an answer compressed, which was not requested",
            hint="a proxy between here and the hub may do that; bypass it",
        )


def _redirect_too_long() -> PackagerError:
    return not_a_hub("a redirect of it has a body that does not end")


def _longer_than_listed(wanted: _Wanted) -> PackagerError:
    return wrong_content(wanted.path, f"it has more than {wanted.size} bytes")
