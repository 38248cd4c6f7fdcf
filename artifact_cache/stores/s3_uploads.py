"""Uploads of blobs to a bucket: whole or in parts, and taken up where one was broken off.

What is there under a digest is compared by size and by the digest it was
stored with.  A bucket can lie about the latter, so readers compare the bytes,
and hand the ETag of a bad object to `heal`.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

from artifact_cache.entry import Output
from artifact_cache.errors import Unpublishable
from artifact_cache.files import open_regular, sha256_of
from artifact_cache.results import ignore
from artifact_cache.s3.buckets import strong_etag
from artifact_cache.s3.parts import DIGEST, MOST_PARTS, begin_upload, checksum, uploaded_parts
from artifact_cache.stores.s3_calls import AT_ONCE, Bucket, Conflict, Missing, etag_of
from artifact_cache.stores.transfers import Transfers

_TRIES = 3


class S3Uploads:
    """Writes blobs into a bucket. Safe to use from several threads."""

    def __init__(
        self,
        bucket: Bucket,
        key_of: Callable[[str], str],
        transfers: Transfers,
        *,
        part_bytes: int,
        single_put_bytes: int,
    ) -> None:
        self._bucket = bucket
        self._key_of = key_of
        self._transfers = transfers
        self._part_bytes = part_bytes
        self._single_put_bytes = single_put_bytes

    def upload(self, files: dict[str, tuple[Output, Path]], heal: dict[str, str]) -> None:
        """Write all files into the bucket. `heal` has ETags of objects known to be bad, by key.

        Raises `Unpublishable` when a file is not what its output says.
        """
        large = [one for one in files.values() if one[0].size > self._single_put_bytes]
        small = [one for one in files.values() if one[0].size <= self._single_put_bytes]
        with ThreadPoolExecutor(AT_ONCE, "s3-upload") as pool:
            for _ in pool.map(lambda one: self._put_whole(one[0], one[1], heal), small):
                pass
            for output, path in large:
                self._put_in_parts(output, path, heal, pool)

    def _put_whole(self, output: Output, path: Path, heal: dict[str, str]) -> None:
        key = self._key_of(output.sha256)
        if key not in heal and self._is_there(output):
            return
        if path.lstat().st_size != output.size or sha256_of(path) != output.sha256:
            raise Unpublishable(f"{output.path!r} changed while it was published")

        def write(**condition: Any) -> None:
            self._bucket.call(
                "put_object",
                size=output.size,
                body=lambda: os.fdopen(open_regular(path), "rb"),
                Key=key,
                Metadata={DIGEST: output.sha256},
                ChecksumSHA256=checksum(bytes.fromhex(output.sha256)),
                **condition,
            )

        self._write(output, heal.get(key), write)

    def _write(self, output: Output, bad: str | None, write: Callable[..., None]) -> None:
        """Write unless the right object is there; replace a wrong one, and only that one."""
        for _ in range(_TRIES):
            try:
                write(**({"IfMatch": bad} if bad else {"IfNoneMatch": "*"}))
                return
            except (Conflict, Missing):
                # Another's write, or our own whose answer was lost.
                found = self._head(output)
                if found is not None and self._fits(found, output) and etag_of(found) != bad:
                    return
                bad = etag_of(found) if found else None
        raise self._bucket.unavailable(f"blob {output.sha256[:12]} changes all the time")

    def _put_in_parts(
        self, output: Output, path: Path, heal: dict[str, str], pool: ThreadPoolExecutor
    ) -> None:
        key = self._key_of(output.sha256)
        if key not in heal and self._is_there(output):
            return

        def write(**condition: Any) -> None:
            with self._upload_state(output, key) as upload:
                parts = self._send_parts(output, path, key, upload, pool)
                request: dict[str, Any] = {"Key": key, "UploadId": upload["id"]}
                try:
                    self._bucket.call(
                        "complete_multipart_upload",
                        MultipartUpload={"Parts": parts},
                        **request,
                        **condition,
                    )
                except Conflict:
                    self._abort(key, upload["id"])
                    raise

        self._write(output, heal.get(key), write)

    def _send_parts(
        self,
        output: Output,
        path: Path,
        key: str,
        upload: dict[str, Any],
        pool: ThreadPoolExecutor,
    ) -> list[dict[str, Any]]:
        """Read the file once, hash all of it, send the parts that are not there."""
        hashed = hashlib.sha256()
        sending: deque[tuple[int, Future[dict[str, Any]]]] = deque()
        parts: dict[int, dict[str, Any]] = {}

        def collect() -> None:
            number, future = sending.popleft()
            parts[number] = upload["parts"][str(number)] = future.result()
            upload["save"]()

        def send(number: int, data: bytes) -> dict[str, Any]:
            answer = self._bucket.call(
                "upload_part",
                size=len(data),
                body=lambda: data,
                Key=key,
                UploadId=upload["id"],
                PartNumber=number,
                ChecksumCRC32=checksum(crc32(data).to_bytes(4, "big")),
            )
            return _part(number, answer)

        try:
            with os.fdopen(open_regular(path), "rb") as file:
                number = 0
                while data := file.read(upload["part_bytes"]):
                    number += 1
                    hashed.update(data)
                    if known := upload["parts"].get(str(number)):
                        parts[number] = known
                        continue
                    if len(sending) == AT_ONCE:
                        collect()
                    sending.append((number, pool.submit(send, number, data)))
            while sending:
                collect()
            if hashed.hexdigest() != output.sha256:
                raise Unpublishable(f"{output.path!r} changed while it was published")
        except Unpublishable:
            self._abort(key, upload["id"])
            raise
        finally:
            for _, future in sending:
                future.cancel()
        return [parts[number] for number in sorted(parts)]

    @contextmanager
    def _upload_state(self, output: Output, key: str) -> Iterator[dict[str, Any]]:
        """Begin an upload, or resume the one of a killed process.

        Without a directory, or while another process uploads the same from here,
        nothing is remembered, and the upload ends with this process.
        """
        with self._transfers.owned(f"{output.sha256}.upload.json") as owned:
            state = owned.read() if owned else {}
            ours = (state.get("bucket"), state.get("key")) == (self._bucket.name, key)
            known = self._known_parts(key, state) if ours else None
            if known is None:
                known = {}
                state = {
                    "bucket": self._bucket.name,
                    "key": key,
                    "id": self._begin(output, key),
                    "part_bytes": max(self._part_bytes, -(-output.size // MOST_PARTS)),
                }
            state["parts"] = known
            save = partial(owned.write, state) if owned else ignore
            save()
            try:
                yield {**state, "save": save}
            except (Conflict, Missing, Unpublishable):
                if owned:
                    owned.forget()
                raise
            except BaseException:
                if not owned:
                    self._abort(key, state["id"])
                raise
            if owned:
                owned.forget()

    def _begin(self, output: Output, key: str) -> str:
        upload = begin_upload(self._bucket.call, key, output.sha256, "CRC32")
        if not upload:
            raise self._bucket.unavailable("it does not answer as S3 does")
        return upload

    def _known_parts(self, key: str, state: dict[str, Any]) -> dict[str, Any] | None:
        """Return the parts that both we and the bucket know; None when the upload is gone."""
        try:
            there = uploaded_parts(self._bucket.call, Key=key, UploadId=state["id"])
        except Missing:
            return None
        return {
            number: part
            for number, part in state["parts"].items()
            if there.get(int(number)) == strong_etag(part["ETag"])
        }

    def _abort(self, key: str, upload: str) -> None:
        with suppress(Exception):  # the bucket's lifecycle rule is the second net
            self._bucket.call("abort_multipart_upload", Key=key, UploadId=upload)

    def _is_there(self, output: Output) -> bool:
        found = self._head(output)
        return found is not None and self._fits(found, output)

    def _head(self, output: Output) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self._bucket.call(
                "head_object", Key=self._key_of(output.sha256)
            )
        except Missing:
            return None
        return found

    def _fits(self, found: dict[str, Any], output: Output) -> bool:
        stored = found.get("Metadata", {}).get(DIGEST)
        return bool(found.get("ContentLength") == output.size and stored == output.sha256)

    def abort_forgotten(self, state: dict[str, Any]) -> None:
        """Abort an upload to this bucket that nobody resumed."""
        if state.get("bucket") == self._bucket.name:
            self._abort(state["key"], state["id"])


def _part(number: int, answer: dict[str, Any]) -> dict[str, Any]:
    checksums = {name: value for name, value in answer.items() if name == "ChecksumCRC32"}
    return {"PartNumber": number, "ETag": etag_of(answer), **checksums}
