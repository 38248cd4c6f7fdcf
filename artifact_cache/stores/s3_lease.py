"""Lease in a bucket: which machine builds a key, in `leases/<key>.json`.

    {"nonce": "<32 hex>", "holder": "ci@org on host", "beat": 7}

The holder rewrites the object every now and then.  Others take it over when they
saw it unchanged for the whole duration on a clock of their own: clocks of two
machines are never compared.  Whoever loses it does not notice before the end,
and need not: the entry decides who was first.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from artifact_cache.errors import CacheError
from artifact_cache.store import Address
from artifact_cache.stores.s3_calls import Bucket, Conflict, Missing, Refused
from artifact_cache.strict_json import parse_object

LONGEST_LEASE = 4096
_FAULTS = (CacheError, Conflict, Missing, Refused)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The object as it was at one moment."""

    etag: str
    nonce: str
    holder: str


@dataclass(frozen=True, slots=True)
class _Ours:
    """The object as we wrote it last."""

    key: str
    nonce: str
    beat: int
    etag: str


class S3Lease:
    """Leases below `prefix`. A killed holder is taken over after `duration_s`."""

    def __init__(
        self,
        bucket: Bucket,
        prefix: str,
        *,
        holder: str = "",
        duration_s: float = 300.0,
        beat_s: float = 30.0,
        poll_s: float = 5.0,
    ) -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._holder = holder or "another machine"
        self._duration_s = duration_s
        self._beat_s = beat_s
        self._poll_s = poll_s

    @contextmanager
    def hold(
        self,
        address: Address,
        wait_s: float,
        on_wait: Callable[[str], None],
        is_published: Callable[[], bool],
    ) -> Iterator[bool]:
        """Acquire the lease, or go on without it when waiting longer is not worth it."""
        ours = None
        with suppress(*_FAULTS):
            ours = self._wait(address, wait_s, on_wait, is_published)
        if ours is None:
            yield False
            return
        over = threading.Event()
        beating = threading.Thread(target=self._beat, args=(ours, over), daemon=True)
        beating.start()
        try:
            yield True
        finally:
            over.set()  # the thread lets go of the lease; nobody waits for that
            beating.join(self._bucket.limits.connect_s)

    def _wait(
        self,
        address: Address,
        wait_s: float,
        on_wait: Callable[[str], None],
        is_published: Callable[[], bool],
    ) -> _Ours | None:
        ours = _Ours(f"{self._prefix}leases/{address.key}.json", secrets.token_hex(16), 0, "")
        until = time.monotonic() + wait_s
        last, since, is_announced = "", time.monotonic(), False
        while True:
            seen = self._look(ours.key)
            now = time.monotonic()
            if seen is None or (seen.etag == last and now - since >= self._duration_s):
                if taken := self._write(replace(ours, etag=seen.etag if seen else "")):
                    return taken
                continue
            if seen.etag != last:
                last, since = seen.etag, now
            if not is_announced:
                on_wait(seen.holder)
                is_announced = True
            if is_published() or now > until:
                return None
            time.sleep(self._poll_s)

    def _beat(self, ours: _Ours, over: threading.Event) -> None:
        with suppress(*_FAULTS):
            while not over.wait(self._beat_s):
                written = self._write(ours)
                if written is None:
                    return  # it was taken over
                ours = written
            self._bucket.call("delete_object", Key=ours.key, IfMatch=ours.etag)

    def _write(self, ours: _Ours) -> _Ours | None:
        """Write the next beat over the state we know; None when it is another by now."""
        condition: dict[str, Any] = {"IfMatch": ours.etag} if ours.etag else {"IfNoneMatch": "*"}
        body = {"nonce": ours.nonce, "holder": self._holder, "beat": ours.beat + 1}
        data = json.dumps(body).encode()
        try:
            answer = self._bucket.call("put_object", body=lambda: data, Key=ours.key, **condition)
        except (Conflict, Missing):
            seen = self._look(ours.key)
            if seen is None or seen.nonce != ours.nonce:
                return None
            # It is ours, and only the answer was lost.  How long ago nobody knows: renew it.
            return self._write(replace(ours, beat=ours.beat + 1, etag=seen.etag))
        return replace(ours, beat=ours.beat + 1, etag=str(answer.get("ETag", "")))

    def _look(self, key: str) -> _Seen | None:
        try:
            etag, data = self._bucket.call(
                "get_object",
                take=lambda answer: (
                    str(answer.get("ETag", "")),
                    answer["Body"].read(LONGEST_LEASE),
                ),
                Key=key,
            )
        except Missing:
            return None
        try:
            found = parse_object(data)
            return _Seen(etag, str(found["nonce"]), _printable(str(found["holder"])))
        except (ValueError, LookupError, TypeError):
            return _Seen(etag, "", "another machine")


def _printable(name: str) -> str:
    """Return a stranger's name without control characters."""
    return "".join(one for one in name if one.isprintable())[:200] or "another machine"
