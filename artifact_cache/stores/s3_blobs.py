"""Blobs to and from a bucket: in parts, resumed, and compared with their digest.

Both ways many requests run at once, but bytes are hashed in order and memory
stays bounded.  With a directory for unfinished transfers, a killed process's
successor goes on where it stopped:

    partial/<digest>.part          the first bytes of a download, locked while it runs
    partial/<digest>.part.json     the ETag they belong to
    partial/<digest>.upload.json   an upload's id and finished parts, locked while it runs

What is there under a digest is compared by size and by the digest it was
stored with.  A bucket can lie about the latter, so readers compare the bytes,
and hand the ETag of a bad object to `heal`.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import io
import json
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from artifact_cache.entry import Output
from artifact_cache.errors import StoreUnavailable, Unpublishable
from artifact_cache.files import (
    CHUNK,
    bounded_bytes,
    hand_over,
    open_regular,
    sealed_mode,
    sha256_of,
)
from artifact_cache.stores.s3_calls import Bucket, Conflict, Missing, Outcome
from artifact_cache.strict_json import parse_object

MIB = 1024 * 1024
RANGE_BYTES = 8 * MIB  # of a download; eight are in memory at once
PART_BYTES = 16 * MIB  # of an upload; eight are in memory at once
SINGLE_PUT_BYTES = 64 * MIB  # up to this, one request uploads a file straight from the disk
MOST_PARTS = 10_000
AT_ONCE = 8
FORGET_S = 3 * 86400  # an unfinished transfer that nobody took up
_DIGEST = "packager-sha256"  # in the object's metadata
_TRIES = 3
_LONGEST_STATE = 8 * MIB


class BadObject(Outcome):
    """The object under a digest is lost, or holds other bytes. `etag` is "" when it is lost."""

    def __init__(self, reason: str, etag: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.etag = etag


@dataclass(frozen=True, slots=True)
class _Owned:
    """A file of `partial/` that no other process has."""

    path: Path
    file: io.FileIO

    def read(self) -> dict[str, Any]:
        """Read what an upload left behind; anything odd counts as nothing."""
        try:
            state = parse_object(os.pread(self.file.fileno(), _LONGEST_STATE, 0) or b"{}")
            fine = isinstance(state["parts"], dict) and type(state["part_bytes"]) is int
            return state if fine and isinstance(state["id"], str) else {}
        except (OSError, ValueError, LookupError, TypeError):
            return {}

    def write(self, state: dict[str, Any]) -> None:
        """Remember an upload. A full disk costs the resume, not the upload."""
        data = json.dumps(state).encode()
        with suppress(OSError):
            os.pwrite(self.file.fileno(), data, 0)
            os.ftruncate(self.file.fileno(), len(data))

    def forget(self) -> None:
        """Remove it while it is ours."""
        with suppress(OSError):
            self.path.unlink()


class S3Blobs:
    """Moves blobs below `prefix`. Safe to use from several threads."""

    def __init__(
        self,
        bucket: Bucket,
        prefix: str,
        partial: Path | None = None,
        *,
        part_bytes: int = PART_BYTES,
        range_bytes: int = RANGE_BYTES,
        single_put_bytes: int = SINGLE_PUT_BYTES,
    ) -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._partial = partial
        self._part_bytes = part_bytes
        self._range_bytes = range_bytes
        self._single_put_bytes = single_put_bytes

    def key(self, sha256: str) -> str:
        """Say where a blob lies."""
        return f"{self._prefix}cas/sha256/{sha256[:2]}/{sha256}"

    def in_ranges(self, output: Output) -> bool:
        """Say whether a download of this one takes several requests, at once."""
        return output.size > self._range_bytes

    # --- up

    def upload(self, files: dict[str, tuple[Output, Path]], heal: dict[str, str]) -> None:
        """Have all files in the bucket. `heal` gives ETags of objects known to be bad, by key.

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
        key = self.key(output.sha256)
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
                Metadata={_DIGEST: output.sha256},
                ChecksumSHA256=base64.b64encode(bytes.fromhex(output.sha256)).decode(),
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
                if found is not None and self._fits(found, output) and _etag(found) != bad:
                    return
                bad = _etag(found) if found else None
        raise self._bucket.unavailable(f"blob {output.sha256[:12]} changes all the time")

    def _put_in_parts(
        self, output: Output, path: Path, heal: dict[str, str], pool: ThreadPoolExecutor
    ) -> None:
        key = self.key(output.sha256)
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
                ChecksumAlgorithm="CRC32",
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
        """Begin an upload, or take up the one that somebody was killed in.

        Without a directory, or while another process uploads the same from here,
        nothing is remembered, and the upload ends with this process.
        """
        with self._owned(f"{output.sha256}.upload.json") as owned:
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
            save = partial(owned.write, state) if owned else _remember_nothing
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
        answer = self._bucket.call(
            "create_multipart_upload",
            Key=key,
            Metadata={_DIGEST: output.sha256},
            ChecksumAlgorithm="CRC32",
        )
        if not answer.get("UploadId"):
            raise self._bucket.unavailable("it does not answer as S3 does")
        return str(answer["UploadId"])

    def _known_parts(self, key: str, state: dict[str, Any]) -> dict[str, Any] | None:
        """Parts that both we and the bucket remember alike; None when the upload is gone."""
        known: dict[str, Any] = {}
        marker = 0
        while True:
            try:
                answer = self._bucket.call(
                    "list_parts", Key=key, UploadId=state["id"], PartNumberMarker=marker
                )
            except Missing:
                return None
            for part in answer.get("Parts", ()):
                ours = state["parts"].get(str(part["PartNumber"]))
                if ours and ours["ETag"] == part["ETag"]:
                    known[str(part["PartNumber"])] = ours
            if not answer.get("IsTruncated"):
                return known
            marker = int(answer["NextPartNumberMarker"])

    def _abort(self, key: str, upload: str) -> None:
        with suppress(Exception):  # the bucket's lifecycle rule is the second net
            self._bucket.call("abort_multipart_upload", Key=key, UploadId=upload)

    def _is_there(self, output: Output) -> bool:
        found = self._head(output)
        return found is not None and self._fits(found, output)

    def _head(self, output: Output) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self._bucket.call("head_object", Key=self.key(output.sha256))
        except Missing:
            return None
        return found

    def _fits(self, found: dict[str, Any], output: Output) -> bool:
        stored = found.get("Metadata", {}).get(_DIGEST)
        return bool(found.get("ContentLength") == output.size and stored == output.sha256)

    # --- down

    def download(self, output: Output, target: Path) -> None:
        """Put the blob at `target`, its bytes compared with the digest.

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
        """Append what is missing; give the object's ETag and the digest of all bytes."""
        key = self.key(output.sha256)
        for _ in range(_TRIES):
            try:
                if not self.in_ranges(output):
                    return self._download_whole(key, output.size, path)
                etag = self._etag_of(key, output.size)
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

    def _etag_of(self, key: str, size: int) -> str:
        head = self._bucket.call("head_object", Key=key)
        if head.get("ContentLength") != size:
            raise BadObject(f"has not {size} bytes any more", _etag(head))
        return _etag(head)

    def _download_whole(self, key: str, size: int, path: Path) -> tuple[str, str]:
        def take(answer: dict[str, Any]) -> tuple[str, bytes]:
            if answer.get("ContentLength") != size:  # before a byte of it is read
                raise BadObject(f"has not {size} bytes any more", _etag(answer))
            return _etag(answer), answer["Body"].read()

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
        """Choose where the bytes gather, and say to which ETag those that are there belong."""
        if not self.in_ranges(output):  # not worth remembering
            yield target, ""
            return
        with self._owned(f"{output.sha256}.part") as owned:
            if owned is None:
                yield target, ""
                return
            etag_file = _etag_path(owned.path)
            etag = ""
            with suppress(OSError, ValueError, LookupError, TypeError):
                etag = str(parse_object(bounded_bytes(etag_file, _LONGEST_STATE))["etag"])
            try:
                yield owned.path, etag
            except BadObject:
                owned.forget()
                etag_file.unlink(missing_ok=True)
                raise
            etag_file.unlink(missing_ok=True)

    def _remember_etag(self, path: Path, etag: str) -> None:
        if self._partial is not None and path.parent == self._partial:
            _etag_path(path).write_text(json.dumps({"etag": etag}))

    # --- unfinished transfers

    @contextmanager
    def _owned(self, name: str) -> Iterator[_Owned | None]:
        """Own a file of `partial/` until the end; None when there is none to be had."""
        owned = None
        with suppress(OSError):
            owned = self._own(name)
        try:
            yield owned
        finally:
            if owned is not None:
                owned.file.close()

    def _own(self, name: str) -> _Owned | None:
        if self._partial is None:
            return None
        self._partial.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._partial / name
        while True:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            file = io.FileIO(os.open(path, flags, 0o600), "r+")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(file.fileno()), path.lstat()):
                    return _Owned(path, file)
            except FileNotFoundError:  # finished and moved away by the one before us
                pass
            except OSError:
                file.close()
                return None
            file.close()

    def forget_old(self, now_s: float) -> None:
        """Remove unfinished transfers that nobody took up for days."""
        if self._partial is None or not self._partial.is_dir():
            return
        for path in self._partial.iterdir():
            with suppress(OSError):
                if path.lstat().st_mtime > now_s - FORGET_S:
                    continue
                if path.name.endswith(".part.json"):
                    if not path.with_suffix("").exists():
                        path.unlink()
                    continue
                with self._owned(path.name) as owned:
                    if owned is None:
                        continue
                    state = owned.read() if path.suffix == ".json" else {}
                    if state.get("bucket") == self._bucket.name:
                        self._abort(state["key"], state["id"])
                    owned.forget()
                    _etag_path(path).unlink(missing_ok=True)


def _etag(answer: dict[str, Any]) -> str:
    """Give the ETag; "", which matches nothing, where a server sends none."""
    return str(answer.get("ETag", ""))


def _body(answer: dict[str, Any], etag: str, wanted: int) -> bytes:
    """Read all of a range. Servers that ignore If-Match or Range exist."""
    if _etag(answer) != etag:
        raise Conflict
    if answer.get("ContentLength") != wanted:
        raise StoreUnavailable("s3", "it does not know ranges")
    data: bytes = answer["Body"].read()
    return data


def _remember_nothing() -> None:
    """There is no place for it."""


def _part(number: int, answer: dict[str, Any]) -> dict[str, Any]:
    checksums = {name: value for name, value in answer.items() if name == "ChecksumCRC32"}
    return {"PartNumber": number, "ETag": _etag(answer), **checksums}


def _place(path: Path, target: Path, output: Output) -> None:
    """Give the finished file its place and mode."""
    path.chmod(sealed_mode(output))
    if path == target:
        return
    try:
        path.rename(target)
    except OSError:  # another disk
        if hand_over(path, target, sealed_mode(output)) not in (None, output.sha256):
            raise
        path.unlink()


def _etag_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")
