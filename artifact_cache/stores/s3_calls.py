"""Requests to one bucket: bounded in time, tried again where that may help, then given up.

A shared cache that hangs costs more than none.  Every request ends within its
limit, whatever the server does, and the first one that fails for good turns
the bucket off for the rest of the process: a build waits once, not per file.

Messages of boto3 are not passed on: they can hold addresses with signatures.
"""

from __future__ import annotations

import email.utils
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

from artifact_cache.aws import aws_client, aws_session, call_s3, s3_client_of
from artifact_cache.buckets import strong_etag
from artifact_cache.distribution import install_command
from artifact_cache.errors import CacheError, StoreUnavailable

CONNECTIONS = 32
AT_ONCE = 8  # requests that move one blob, or blobs of one entry
SLOWEST_BYTES_S = 64 * 1024  # what is slower than this is not waited for
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_TRANSIENT_CODES = frozenset({"SlowDown", "RequestTimeout", "InternalError", "Throttling"})
# AWS: two conditional writes met; the answer is to try again.
_MET = frozenset({"ConditionalRequestConflict", "OperationAborted"})
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
        self._settings = {"endpoint_url": endpoint_url, "region_name": region}
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
        outcome: list[Any] = []
        done = threading.Event()

        def work() -> None:
            try:
                outcome.append((self._once(operation, body, take, request), None))
            except BaseException as error:
                outcome.append((None, error))
            done.set()

        threading.Thread(target=work, name=f"s3-{operation}", daemon=True).start()
        if not done.wait(self.limits.answer_s + size / SLOWEST_BYTES_S):
            raise _Passing("it answers too slowly")
        value, error = outcome[0]
        if error is not None:
            raise error
        return value

    def _once(
        self,
        operation: str,
        body: Callable[[], BinaryIO | bytes] | None,
        take: Callable[[Any], Any] | None,
        request: dict[str, Any],
    ) -> Any:
        client = self._connected()
        from botocore import exceptions
        from urllib3.exceptions import HTTPError

        opened = body() if body else None
        content = {} if opened is None else {"Body": opened}
        try:
            answer = call_s3(client, operation, Bucket=self.name, **request, **content)
            return take(answer) if take else answer
        except (Outcome, CacheError):
            raise
        except exceptions.ClientError as error:
            raise _judged(error.response) from error
        except exceptions.FlexibleChecksumError as error:
            raise _Passing("bytes were damaged on the way") from error
        except (
            exceptions.NoCredentialsError,
            exceptions.PartialCredentialsError,
            exceptions.CredentialRetrievalError,
            exceptions.TokenRetrievalError,
            exceptions.SSOError,
        ) as error:
            raise Refused("there are no usable AWS credentials") from error
        except (
            exceptions.HTTPClientError,
            exceptions.ConnectionError,
            exceptions.IncompleteReadError,
            HTTPError,  # where botocore lets it through: in the body of an error
            OSError,
        ) as error:
            raise _Passing("it does not answer") from error
        except exceptions.BotoCoreError as error:
            raise Refused("the AWS settings do not work") from error
        except Exception as error:  # what botocore's parsers raise is not in its documentation
            raise Refused("it does not answer as S3 does") from error
        finally:
            if opened is not None and not isinstance(opened, bytes):
                opened.close()

    def _connected(self) -> Any:
        with self._making:
            if self._client is None:
                self._client = _connect(self._settings, self.limits)
            return self._client


def _connect(settings: dict[str, str | None], limits: Limits) -> Any:
    try:
        import boto3  # noqa: F401
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        how = install_command("boto3", "s3")
        raise Refused(f"boto3 is not installed; `{how}` does it") from error
    session = aws_session()

    def make(**own: Any) -> Any:
        config = Config(
            connect_timeout=limits.connect_s,
            read_timeout=limits.silence_s,
            max_pool_connections=CONNECTIONS,
            retries={"mode": "standard", "total_max_attempts": 1},  # we try again ourselves
            **own,
        )
        return aws_client("s3", session, config=config, **settings)

    try:
        return s3_client_of(make)
    except (BotoCoreError, ValueError) as error:
        raise Refused("the AWS settings do not work") from error


def _judged(answer: dict[str, Any]) -> Exception:
    code = str(answer.get("Error", {}).get("Code", ""))
    metadata = answer.get("ResponseMetadata", {})
    status = int(metadata.get("HTTPStatusCode", 0))
    if code in _MET:
        return _Passing("conditional writes meet, time and again")
    if status == 412 or code == "PreconditionFailed":
        return Conflict()
    if code == "NoSuchBucket":
        return Refused("there is no such bucket")
    if status == 404:
        return Missing()
    if status in _TRANSIENT or code in _TRANSIENT_CODES:
        after = metadata.get("HTTPHeaders", {}).get("retry-after")
        return _Passing(f"it answers {code or status}", _retry_after_s(after))
    if status in (401, 403):
        return Refused(f"it refuses access ({code or status})")
    return Refused(f"it answers {code or status}")


def _retry_after_s(value: str | None) -> float:
    """Read seconds or a date. Nonsense counts as none."""
    if not value:
        return 0.0
    try:
        if value.strip().isdecimal():
            return float(value)
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0


def _pause_s(attempt: int) -> float:
    return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0**attempt) * random.random()


def etag_of(answer: dict[str, Any]) -> str:
    """Return the ETag; "", which matches nothing, where a server sends none."""
    return strong_etag(answer.get("ETag"))
