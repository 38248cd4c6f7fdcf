"""Downloads of blobs from a bucket: whole or in ranges, resumed, compared with their digest.

Many requests run at once, but bytes are hashed in order and memory stays bounded.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from artifact_cache.entry import Output
from artifact_cache.errors import StoreUnavailable
from artifact_cache.files import CHUNK, bounded_bytes, link_or_copy, sealed_mode
from artifact_cache.stores.s3_calls import AT_ONCE, Bucket, Conflict, Missing, Outcome, etag_of
from artifact_cache.stores.transfers import LONGEST_STATE, Transfers, etag_path
from artifact_cache.strict_json import parse_object

_TRIES = 3


class BadObject(Outcome):
    """The object under a digest is lost, or holds other bytes. `etag` is "" when it is lost."""

    def __init__(self, reason: str, etag: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.etag = etag


class S3Downloads:
    """Reads blobs from a bucket. Safe to use from several threads."""

    def __init__(
        self,
        bucket: Bucket,
        key_of: Callable[[str], str],
        transfers: Transfers,
        *,
        range_bytes: int,
    ) -> None:
        self._bucket = bucket
        self._key_of = key_of
        self._transfers = transfers
        self._range_bytes = range_bytes

    def is_in_ranges(self, output: Output) -> bool:
        """Report whether a download of this one takes several requests, at once."""
        return output.size > self._range_bytes

    def download(self, output: Output, target: Path) -> None:
        """Download the blob to `target` and verify its digest.

        Raises `BadObject` only when two downloads agree on the wrong bytes: else
        one machine with bad memory would throw away what is good for all others.
        """
        with self._draft(output, target) as (path, etag):
            seen: list[tuple[str, str]] = []
            for _ in range(_TRIES):
                found = self._download(output, path, etag)
                if found[1] == output.sha256:
                    _place(path, target, output)
                    return
                if found in seen:
                    raise BadObject("holds other bytes than were published", found[0])
                seen.append(found)
                etag = ""  # from the start: what was taken up may have been wrong
            os.truncate(path, 0)
        raise self._bucket.unavailable("bytes come out differently each time")

    def _download(self, output: Output, path: Path, known_etag: str) -> tuple[str, str]:
        """Append what is missing; return the object's ETag and the digest of all bytes."""
        key = self._key_of(output.sha256)
        for _ in range(_TRIES):
            try:
                if not self.is_in_ranges(output):
                    return self._download_whole(key, output.size, path)
                etag = self._sized_etag(key, output.size)
                if etag != known_etag:
                    with suppress(FileNotFoundError):
                        os.truncate(path, 0)
                    known_etag = etag
                self._remember_etag(path, etag)
                return etag, self._append(key, etag, output.size, path)
            except Missing:
                raise BadObject("is missing") from None
            except Conflict:  # replaced while we read
                known_etag = ""
        raise self._bucket.unavailable(f"blob {output.sha256[:12]} changes all the time")

    def _sized_etag(self, key: str, size: int) -> str:
        head = self._bucket.call("head_object", Key=key)
        if head.get("ContentLength") != size:
            raise BadObject(f"has not {size} bytes any more", etag_of(head))
        return etag_of(head)

    def _download_whole(self, key: str, size: int, path: Path) -> tuple[str, str]:
        def take(answer: dict[str, Any]) -> tuple[str, bytes]:
            if answer.get("ContentLength") != size:  # before a byte of it is read
                raise BadObject(f"has not {size} bytes any more", etag_of(answer))
            return etag_of(answer), answer["Body"].read()

        etag, data = self._bucket.call("get_object", size=size, take=take, Key=key)
        path.write_bytes(data)
        return etag, hashlib.sha256(data).hexdigest()

    def _append(self, key: str, etag: str, size: int, path: Path) -> str:
        hashed = hashlib.sha256()
        with path.open("ab+") as file:
            file.seek(0)
            while chunk := file.read(CHUNK):
                hashed.update(chunk)
            for data in self._ranges(key, etag, file.tell(), size):
                hashed.update(data)
                file.write(data)
                file.flush()  # so that a killed process leaves what it had
        return hashed.hexdigest()

    def _ranges(self, key: str, etag: str, first: int, size: int) -> Iterator[bytes]:
        """Yield the object's bytes in order, while the next ranges are on their way."""

        def fetch(start: int) -> bytes:
            wanted = min(self._range_bytes, size - start)
            whole = wanted == size  # of a whole object boto3 checks the checksum
            ranged: dict[str, Any] = (
                {} if whole else {"Range": f"bytes={start}-{start + wanted - 1}"}
            )
            data: bytes = self._bucket.call(
                "get_object",
                size=wanted,
                take=lambda answer: _body(answer, etag, wanted),
                Key=key,
                IfMatch=etag,
                **ranged,
            )
            return data

        coming: deque[Future[bytes]] = deque()
        with ThreadPoolExecutor(AT_ONCE, "s3-range") as pool:
            try:
                for start in range(first, size, self._range_bytes):
                    if len(coming) == AT_ONCE:
                        yield coming.popleft().result()
                    coming.append(pool.submit(fetch, start))
                while coming:
                    yield coming.popleft().result()
            finally:
                for future in coming:
                    future.cancel()

    @contextmanager
    def _draft(self, output: Output, target: Path) -> Iterator[tuple[Path, str]]:
        """Yield where the bytes gather, and the ETag that those that are there belong to."""
        if not self.is_in_ranges(output):  # not worth remembering
            yield target, ""
            return
        with self._transfers.owned(f"{output.sha256}.part") as owned:
            if owned is None:
                yield target, ""
                return
            etag_file = etag_path(owned.path)
            etag = ""
            with suppress(OSError, ValueError, LookupError, TypeError):
                etag = str(parse_object(bounded_bytes(etag_file, LONGEST_STATE))["etag"])
            try:
                yield owned.path, etag
            except BadObject:
                owned.forget()
                etag_file.unlink(missing_ok=True)
                raise
            etag_file.unlink(missing_ok=True)

    def _remember_etag(self, path: Path, etag: str) -> None:
        if self._transfers.directory is not None and path.parent == self._transfers.directory:
            etag_path(path).write_text(json.dumps({"etag": etag}))


def _body(answer: dict[str, Any], etag: str, wanted: int) -> bytes:
    """Read all of a range. Servers that ignore If-Match or Range exist."""
    if etag_of(answer) != etag:
        raise Conflict
    if answer.get("ContentLength") != wanted:
        raise StoreUnavailable("s3", "it does not know ranges")
    data: bytes = answer["Body"].read()
    return data


def _place(path: Path, target: Path, output: Output) -> None:
    """Move the finished file to its place and set its mode."""
    path.chmod(sealed_mode(output))
    if path == target:
        return
    try:
        path.rename(target)
    except OSError:  # another disk
        if link_or_copy(path, target, sealed_mode(output)) not in (None, output.sha256):
            raise
        path.unlink()
