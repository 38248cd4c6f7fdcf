"""Uploads of objects as their bytes pass: small ones whole, large ones in parts.

A part is compared by sha256 with what an earlier, broken-off upload sent, and only sent where
it differs.  Parts of all files share a few buffers, so that memory does not grow with them.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from io import SEEK_CUR, SEEK_END, RawIOBase
from typing import Any

from artifact_cache.s3.buckets import strong_etag
from artifact_cache.s3.parts import MOST_PARTS, begin_upload, checksum, uploaded_parts
from packager.core.errors import PackagerError, ProtocolFailed
from packager.core.image import TreeFile
from packager.core.ports import BlobWriter
from packager.core.remote.s3_write import UploadGone, WritableBucket
from packager.core.units import MIB
from packager.images.trees.journal import TreeJournal

PART_BYTES = 5 * MIB  # the least that S3 takes: memory grows with it
_AT_ONCE = 4  # parts on their way, of all files together
_BUFFERS = _AT_ONCE + 1  # more than layers that are read at once: each may hold one half filled
_READ_BYTES = 64 * 1024  # boto3 reads a mebibyte at a time, which each thread's heap would keep

Done = Callable[[str, str], None]  # sha256 and ETag of a complete object


class ObjectUploads:
    """Uploads of one tree."""

    def __init__(self, bucket: WritableBucket, journal: TreeJournal) -> None:
        self.bucket = bucket
        self.journal = journal
        self.bytes_sent = 0
        self._counting = threading.Lock()
        self._room = threading.Semaphore(_BUFFERS)
        self._free: dict[int, list[bytearray]] = {}  # used again: new ones would leave holes
        self._pool: ThreadPoolExecutor | None = None

    def open(self, file: TreeFile, key: str, sha256: str, on_done: Done) -> ObjectUpload:
        """Open an upload; `sha256` is "" where it is not known yet."""
        return ObjectUpload(self, file, key, sha256, on_done)

    def submit(self, work: Callable[[], None]) -> Future[None]:
        """Run an upload of a part in another thread."""
        with self._counting:
            self._pool = self._pool or ThreadPoolExecutor(_AT_ONCE, "s3-part")
            return self._pool.submit(work)

    def take_buffer(self, size: int) -> bytearray:
        """Return a buffer; block while all are in use."""
        self._room.acquire()
        with self._counting:
            free = self._free.get(size)
            return free.pop() if free else bytearray(size)

    def give_back(self, buffer: bytearray) -> None:
        """Return a buffer, for another part."""
        with self._counting:
            self._free.setdefault(len(buffer), []).append(buffer)
        self._room.release()

    def count(self, sent: int) -> None:
        with self._counting:
            self.bytes_sent += sent

    def close(self) -> None:
        """Stop the threads."""
        with self._counting:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)


class ObjectUpload(BlobWriter):
    """Upload of one object, which is invisible before `commit`."""

    def __init__(
        self, uploads: ObjectUploads, file: TreeFile, key: str, sha256: str, on_done: Done
    ) -> None:
        self._uploads = uploads
        self._file = file
        self._key = key
        self._sha256 = sha256
        self._on_done = on_done
        least = -(-file.size // MOST_PARTS)
        self._part_bytes = max(PART_BYTES, -(-least // MIB) * MIB)
        self._buffer: bytearray | None = None
        self._filled = 0
        self._whole = bytearray()  # of a small file
        self._upload = ""  # its id, once there are parts
        self._number = 0
        self._known: dict[int, tuple[str, str]] = {}  # parts of an earlier try: ETag, sha256
        self._parts: dict[int, tuple[str, str]] = {}
        self._noting = threading.Lock()
        self._pending: list[Future[None]] = []

    def write(self, chunk: memoryview) -> None:
        """Buffer the next bytes; send each part that is full."""
        if self._file.size <= self._part_bytes:
            self._whole += chunk
            return
        while chunk:
            if self._buffer is None:
                self._buffer = self._uploads.take_buffer(self._part_bytes)
            count = min(len(chunk), len(self._buffer) - self._filled)
            self._buffer[self._filled : self._filled + count] = chunk[:count]
            self._filled += count
            chunk = chunk[count:]
            if self._filled == len(self._buffer):
                self._send_part()

    def commit(self, digest: str) -> None:
        """Send what is left, and make the object visible."""
        sha256 = digest.removeprefix("sha256:")
        if self._file.size <= self._part_bytes:
            data = bytes(self._whole)
            answer = self._uploads.bucket.put(self._key, data, sha256=sha256)
            self._uploads.count(len(data))
        else:
            if self._filled:
                self._send_part()
            self._wait()
            answer = self._complete()
        etag = strong_etag(answer.get("ETag"))
        self._uploads.journal.note_done(self._file.path, self._file.size, sha256, etag)
        self._on_done(sha256, etag)

    def abort(self) -> None:
        """Forget the bytes at hand; parts that were sent stay for the next try."""
        self._give_back()
        with suppress(Exception):
            self._wait()

    def _send_part(self) -> None:
        self._upload = self._upload or self._begin()
        self._raise_failed()
        assert self._buffer is not None
        self._number += 1
        number, buffer, size = self._number, self._buffer, self._filled
        self._buffer, self._filled = None, 0

        def work() -> None:
            try:
                self._part(number, memoryview(buffer)[:size])
            finally:
                self._uploads.give_back(buffer)

        self._pending.append(self._uploads.submit(work))

    def _give_back(self) -> None:
        if self._buffer is not None:
            self._uploads.give_back(self._buffer)
            self._buffer, self._filled = None, 0

    def _part(self, number: int, data: memoryview) -> None:
        """Send one part, unless an earlier try has sent the same."""
        hashed = hashlib.sha256(data)
        known = self._known.get(number)
        if known is None or known[1] != hashed.hexdigest():
            answer = self._call(
                "upload_part",
                PartNumber=number,
                Body=_ViewFile(data),
                ChecksumSHA256=checksum(hashed.digest()),
            )
            known = (strong_etag(answer.get("ETag")), hashed.hexdigest())
            self._uploads.count(len(data))
        with self._noting:
            self._parts[number] = known
            self._uploads.journal.note_upload(
                self._file.path, self._upload, self._part_bytes, {**self._known, **self._parts}
            )

    def _begin(self) -> str:
        """Resume the upload of an earlier try, or begin one."""
        found = self._uploads.journal.upload(self._file.path)
        if found is not None and found[1] == self._part_bytes:
            self._upload = found[0]
            with suppress(PackagerError):
                self._known = self._still_there(found[2])
                return self._upload
        identity = begin_upload(self._uploads.bucket.call, self._key, self._sha256, "SHA256")
        if not identity:
            raise ProtocolFailed(
                f"the answer for bucket {self._uploads.bucket.name!r} is none of S3",
                hint="check AWS_ENDPOINT_URL: a complete S3 must answer there",
            )
        self._uploads.journal.note_upload(self._file.path, identity, self._part_bytes, {})
        return identity

    def _still_there(self, parts: dict[int, tuple[str, str]]) -> dict[int, tuple[str, str]]:
        """Return the parts that both we and the bucket know."""
        there = uploaded_parts(self._call)
        return {number: part for number, part in parts.items() if there.get(number) == part[0]}

    def _complete(self) -> Any:
        parts = [
            {
                "PartNumber": number,
                "ETag": etag,
                "ChecksumSHA256": checksum(bytes.fromhex(sha256)),
            }
            for number, (etag, sha256) in sorted(self._parts.items())
        ]
        return self._call("complete_multipart_upload", MultipartUpload={"Parts": parts})

    def _call(self, operation: str, **request: Any) -> Any:
        try:
            return self._uploads.bucket.call(
                operation, Key=self._key, UploadId=self._upload, **request
            )
        except UploadGone:
            self._uploads.journal.forget(self._file.path)
            raise

    def _raise_failed(self) -> None:
        for future in [one for one in self._pending if one.done()]:
            self._pending.remove(future)
            future.result()

    def _wait(self) -> None:
        while self._pending:
            self._pending.pop(0).result()


class _ViewFile(RawIOBase):
    """A file whose bytes are a buffer: boto3 would copy bytes beside their request."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Copy the next bytes."""
        count = min(len(buffer), len(self._view) - self._position)
        buffer[:count] = self._view[self._position : self._position + count]
        self._position += count
        return count

    def read(self, size: int = -1) -> bytes:
        """Return at most the next `_READ_BYTES` bytes."""
        most = len(self._view) if size < 0 else min(size, _READ_BYTES)
        data = bytes(self._view[self._position : self._position + most])
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go elsewhere: a request is repeated from its begin."""
        start = {SEEK_CUR: self._position, SEEK_END: len(self._view)}.get(whence, 0)
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position
