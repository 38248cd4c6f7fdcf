"""Requests to one bucket: bounded in time, tried again where that may help, then given up.

A shared cache that hangs costs more than none.  Every request ends within its
limit, whatever the server does, and the first one that fails for good turns
the bucket off for the rest of the process: a build waits once, not per file.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from artifact_cache.distribution import install_command
from artifact_cache.errors import CacheError, StoreUnavailable
from artifact_cache.s3.buckets import strong_etag
from artifact_cache.s3.client import call_s3, connect_s3
from artifact_cache.s3.failures import S3Failure, failure_of
from artifact_cache.waits import TooLate, within

CONNECTIONS = 32
AT_ONCE = 8  # requests that move one blob, or blobs of one entry
SLOWEST_BYTES_S = 64 * 1024  # what is slower than this is not waited for
# What failures are told as; {} is the server's code.
_PASSES = {
    "met": "conditional writes meet, time and again",
    "busy": "it answers {}",
    "damaged": "bytes were damaged on the way",
    "silent": "it does not answer",
}
_REFUSALS = {
    "bucket": "there is no such bucket",
    "denied": "it refuses access ({})",
    "refused": "it answers {}",
    "condition": "it answers {}",  # to a request that has none
    "credentials": "there are no usable AWS credentials",
    "settings": "the AWS settings do not work",
}
_CONDITIONS = frozenset({"IfMatch", "IfNoneMatch"})
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Time limits in seconds, and the number of attempts."""

    connect_s: float = 3.0
    silence_s: float = 20.0  # between two bytes of an answer
    answer_s: float = 30.0  # for a whole request, plus the time its bytes may take
    deadline_s: float = 60.0  # for all tries of a request; then the bucket is given up
    attempts: int = 5


class Outcome(Exception):
    """Outcome of a request that failed."""


class Missing(Outcome):
    """The object does not exist."""


class Conflict(Outcome):
    """The condition of a write, or of a read, does not hold."""


class Refused(Outcome):
    """The credentials do not allow it, or there are none."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Passing(Outcome):
    """Transient failure that a retry may fix."""

    def __init__(self, reason: str, after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after_s = after_s


class Bucket:
    """One bucket, through boto3. Safe to use from several threads."""

    def __init__(
        self,
        name: str,
        *,
        endpoint_url: str | None = None,
        region: str | None = None,
        limits: Limits | None = None,
        client: Any | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name = name
        self.limits = limits or Limits()
        self.broken = ""  # why it was given up
        self._place = {"endpoint_url": endpoint_url, "region_name": region}
        self._client = client
        self._making = threading.Lock()
        self._sleep = sleep

    def call(
        self,
        operation: str,
        *,
        size: int = 0,
        body: Callable[[], BinaryIO | bytes] | None = None,
        take: Callable[[Any], Any] | None = None,
        **request: Any,
    ) -> Any:
        """Send one request with retries; return its response, or what `take` makes of it.

        `size` is how many bytes go or come; `body` opens them anew for each
        try.  Raises `Missing`, `Conflict`, `Refused` or `StoreUnavailable`.
        """
        started = time.monotonic()
        for attempt in range(1, self.limits.attempts + 1):
            if self.broken:
                raise self.unavailable(self.broken)
            try:
                return self._bounded(operation, size, body, take, request)
            except _Passing as passing:
                pause_s = max(passing.after_s, _pause_s(attempt))
                late_s = time.monotonic() - started + pause_s
                if attempt == self.limits.attempts or late_s > self.limits.deadline_s:
                    self.broken = self.broken or passing.reason
                    raise self.unavailable(passing.reason) from passing
                self._sleep(pause_s)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def unavailable(self, reason: str) -> StoreUnavailable:
        """Return the error for an unavailable bucket."""
        return StoreUnavailable(
            f"s3://{self.name}", reason, hint="`aws s3 ls` with the same settings shows more"
        )

    def _bounded(
        self,
        operation: str,
        size: int,
        body: Callable[[], BinaryIO | bytes] | None,
        take: Callable[[Any], Any] | None,
        request: dict[str, Any],
    ) -> Any:
        """Run one attempt in a thread that can be abandoned.

        Time-outs of sockets start anew with each byte, so a server that sends one
        now and then would never be given up otherwise.
        """
        limit_s = self.limits.answer_s + size / SLOWEST_BYTES_S
        try:
            return within(
                limit_s, lambda: self._once(operation, body, take, request), f"s3-{operation}"
            )
        except TooLate:
            raise _Passing("it answers too slowly") from None

    def _once(
        self,
        operation: str,
        body: Callable[[], BinaryIO | bytes] | None,
        take: Callable[[Any], Any] | None,
        request: dict[str, Any],
    ) -> Any:
        client = self._connected()
        opened = body() if body else None
        content = {} if opened is None else {"Body": opened}
        try:
            answer = call_s3(client, operation, Bucket=self.name, **request, **content)
            return take(answer) if take else answer
        except (Outcome, CacheError):
            raise
        except Exception as error:  # what botocore's parsers raise is not in its documentation
            is_conditional = not _CONDITIONS.isdisjoint(request)
            raise _outcome_of(failure_of(error), is_conditional) from error
        finally:
            if opened is not None and not isinstance(opened, bytes):
                opened.close()

    def _connected(self) -> Any:
        with self._making:
            if self._client is None:
                self._client = _connect(self._place, self.limits)
            return self._client


def _connect(place: Mapping[str, str | None], limits: Limits) -> Any:
    try:
        return connect_s3(
            connect_s=limits.connect_s,
            read_s=limits.silence_s,
            attempts=1,  # we try again ourselves
            connections=CONNECTIONS,
            **place,
        )
    except ImportError as error:
        how = install_command("boto3", "s3")
        raise Refused(f"boto3 is not installed; `{how}` does it") from error
    except Exception as error:
        raise _outcome_of(failure_of(error)) from error


def _outcome_of(failure: S3Failure | None, is_conditional: bool = False) -> Outcome:
    failure = failure or S3Failure(kind="foreign")
    if failure.kind == "condition" and is_conditional:
        return Conflict()
    if failure.kind == "missing":
        return Missing()
    if failure.kind in _PASSES:
        return _Passing(_PASSES[failure.kind].format(failure.shown), failure.after_s)
    refusal = _REFUSALS.get(failure.kind, "it does not answer as S3 does")
    return Refused(refusal.format(failure.shown))


def _pause_s(attempt: int) -> float:
    return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0**attempt) * random.random()


def etag_of(answer: dict[str, Any]) -> str:
    """Return the ETag; "", which matches nothing, where a server sends none."""
    return strong_etag(answer.get("ETag"))
