"""A bucket, shared by everyone who may read it: `s3://BUCKET/PREFIX/v1/`.

    VERSION                      {"layout":1}
    ac/<kind>/ab/<key>.json      entry, created only where there is none
    cas/sha256/ab/<digest>       blob
    leases/<key>.json            who builds it now; only saves work

As in a directory, blobs come first and the entry last.  What is found broken is
deleted by its ETag, never what replaced it meanwhile, and remembered: the next
publisher overwrites just that, so healing needs no right to delete.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from artifact_cache.entry import MAX_STORED_BYTES, Entry, Output, entry_bytes, parse_entry
from artifact_cache.errors import CacheError, Corrupt, MalformedEntry, StoreUnavailable
from artifact_cache.files import said
from artifact_cache.s3.buckets import list_pages
from artifact_cache.store import Address, Capability, StoredEntry
from artifact_cache.stores.s3_calls import AT_ONCE, Bucket, Conflict, Missing, Refused, etag_of
from artifact_cache.stores.s3_downloads import BadObject, S3Downloads
from artifact_cache.stores.s3_uploads import S3Uploads
from artifact_cache.stores.transfers import Transfers

MIB = 1024 * 1024
LAYOUT = b'{"layout":1}\n'
_TRIES = 3


class S3Store:
    """Entries and blobs below a prefix of a bucket.

    `partial` is a directory of this machine where broken-off transfers of large
    blobs wait for the next process.  The first fault of the network turns the
    store off for the rest of the process.
    """

    def __init__(
        self,
        bucket: Bucket,
        prefix: str = "",
        *,
        partial: Path | None = None,
        part_bytes: int = 16 * MIB,  # of an upload; eight are in memory at once
        range_bytes: int = 8 * MIB,  # of a download; eight are in memory at once
        single_put_bytes: int = 64 * MIB,  # one request uploads a file straight from the disk
    ) -> None:
        self.prefix = f"{prefix.strip('/')}/v1/".lstrip("/")
        self.url = f"s3://{bucket.name}/{self.prefix}"
        self.bucket = bucket
        self._transfers = Transfers(partial)
        self._uploads = S3Uploads(
            bucket,
            self._blob_key,
            self._transfers,
            part_bytes=part_bytes,
            single_put_bytes=single_put_bytes,
        )
        self._downloads = S3Downloads(
            bucket, self._blob_key, self._transfers, range_bytes=range_bytes
        )
        self._capability: Capability | None = None
        self._opening = threading.Lock()
        self._bad: dict[str, str] = {}  # ETags of objects known to be bad, by key

    def capability(self) -> Capability:
        """Read once and try to write once; say later, too, when it was given up."""
        with self._opening:
            if self._capability is None:
                self._capability = self._open()
            if self.bucket.broken:
                return Capability("off", self.bucket.broken)
            return self._capability

    def get(self, address: Address) -> StoredEntry | None:
        """Find an entry; its files are compared while they come."""
        self._need("read")
        key = self._entry_key(address)
        found = self._read(key)
        if found is None or self._bad.get(key) == found[0]:
            return None
        etag, data = found
        try:
            entry = _parsed(data, address)
        except MalformedEntry as error:
            self._set_aside(key, etag)
            raise Corrupt(f"entry {address.key[:12]}", error.message) from error
        return StoredEntry(entry, partial(self._extract, key, etag, entry), self.url)

    def put(self, entry: Entry, directory: Path) -> bool:
        """Publish; only objects known to be bad are replaced."""
        self._need("write")
        address = Address(entry.kind, entry.key)
        key, data = self._entry_key(address), entry_bytes(entry)
        if (taken := self._taken(key, address, data)) is not None:
            return taken
        files = {output.sha256: (output, directory / output.path) for output in entry.outputs}
        try:
            self._uploads.upload(files, self._bad)
            return self._publish(key, address, data)
        except Refused as error:
            raise self._denied(error) from error
        except OSError as error:
            raise StoreUnavailable(self.url, said(error)) from error

    def list(self, kind: str | None = None) -> Iterator[Entry]:
        """Yield entries; those that cannot be read are left for `get` to judge."""
        self._need("read")
        start = f"{self.prefix}ac/{kind}/" if kind else f"{self.prefix}ac/"
        with ThreadPoolExecutor(AT_ONCE, "s3-list") as pool:
            for keys in self._keys(start):
                yield from (entry for entry in pool.map(self._listed, keys) if entry)

    def delete(self, address: Address) -> bool:
        """Remove the entry; its blobs stay, since others may share them."""
        self._need("write")
        key = self._entry_key(address)
        try:
            self.bucket.call("head_object", Key=key)
            self.bucket.call("delete_object", Key=key)
        except Missing:
            return False
        except Refused as error:
            raise StoreUnavailable(self.url, error.reason) from error
        self._bad.pop(key, None)
        return True

    # --- reading

    def _read(self, key: str) -> tuple[str, bytes] | None:
        """Return an entry's ETag and its bytes: at most one more than it may have."""
        try:
            found: tuple[str, bytes] = self.bucket.call(
                "get_object",
                size=MAX_STORED_BYTES,
                take=lambda answer: (
                    etag_of(answer),
                    answer["Body"].read(MAX_STORED_BYTES + 1),
                ),
                Key=key,
            )
        except Missing:
            return None
        except Refused as error:
            raise StoreUnavailable(self.url, error.reason) from error
        return found

    def _extract(self, key: str, etag: str, entry: Entry, into: Path) -> None:
        def take_out(output: Output) -> None:
            target = into / output.path
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._downloads.download(output, target)
            except BadObject as bad:
                self._set_aside(self._blob_key(output.sha256), bad.etag)
                self._set_aside(key, etag)
                name = f"blob {output.sha256[:12]} ({output.path})"
                raise Corrupt(name, bad.reason) from bad

        try:
            with ThreadPoolExecutor(AT_ONCE, "s3-download") as pool:
                small = [one for one in entry.outputs if not self._downloads.is_in_ranges(one)]
                for _ in pool.map(take_out, small):
                    pass
            for output in entry.outputs:
                if self._downloads.is_in_ranges(output):  # in parallel by itself
                    take_out(output)
        except Refused as error:
            raise StoreUnavailable(self.url, error.reason) from error
        except OSError as error:
            raise StoreUnavailable(self.url, said(error)) from error

    def _set_aside(self, key: str, etag: str) -> None:
        """Quarantine a bad object, as far as permitted, and never read it again."""
        if not etag:
            return
        self._bad[key] = etag
        if self.capability().mode == "read-write":
            with suppress(CacheError, Missing, Conflict, Refused):
                self.bucket.call("delete_object", Key=key, IfMatch=etag)

    def _listed(self, key: str) -> Entry | None:
        try:
            found = self._read(key)
            return parse_entry(found[1]) if found else None
        except MalformedEntry:
            return None

    def _keys(self, start: str) -> Iterator[Sequence[str]]:
        try:
            for page in list_pages(self.bucket.call, Prefix=start):
                yield [found["Key"] for found in page.get("Contents", ())]
        except LookupError as error:
            raise StoreUnavailable(self.url, "its listing does not go on") from error
        except (Missing, Refused) as error:
            raise StoreUnavailable(self.url, getattr(error, "reason", "it is gone")) from error

    # --- writing

    def _taken(self, key: str, address: Address, data: bytes) -> bool | None:
        """Report whether an entry is there: True for ours, False for another, None for none.

        An answer of the network can be lost after the write: then what is there
        is ours, and only its bytes tell.
        """
        found = self._read(key)
        if found is None or self._bad.get(key) == found[0]:
            return None
        if found[1] == data:
            return True
        try:
            _parsed(found[1], address)
        except MalformedEntry:
            self._bad[key] = found[0]
            return None
        except CacheError:  # of a newer version
            return False
        return False

    def _publish(self, key: str, address: Address, data: bytes) -> bool:
        for _ in range(_TRIES):
            bad = self._bad.get(key)
            condition: dict[str, Any] = {"IfMatch": bad} if bad else {"IfNoneMatch": "*"}
            try:
                self.bucket.call(
                    "put_object",
                    size=len(data),
                    body=lambda: data,
                    Key=key,
                    ContentType="application/json",
                    **condition,
                )
                return True
            except (Conflict, Missing):
                if (taken := self._taken(key, address, data)) is not None:
                    return taken
                if bad and self._bad.get(key) == bad:
                    del self._bad[key]  # the bad one has gone by itself
        raise StoreUnavailable(self.url, "the entry changes all the time")

    def _denied(self, error: Refused) -> StoreUnavailable:
        """Switch to read-only after a denied request."""
        self._capability = Capability("read-only", error.reason)
        return StoreUnavailable(self.url, error.reason)

    # --- opening

    def _open(self) -> Capability:
        """Compare the layout, and write it twice: the second time must be refused."""
        try:
            layout = self._layout()
            if layout not in (None, LAYOUT):
                return Capability("off", "another version laid it out")
            return self._try_to_write(layout is not None)
        except Refused as error:
            return Capability("off", error.reason)
        except StoreUnavailable as error:
            return Capability("off", self.bucket.broken or error.message)

    def _try_to_write(self, laid_out: bool) -> Capability:
        try:
            for expected in (True, False):
                written = self._write_layout()
                if written and (laid_out or not expected):
                    return Capability("read-only", "the server ignores conditions of writes")
        except Refused as error:
            if laid_out:
                return Capability("read-only", error.reason)
            return Capability("off", f"nothing is there yet, and {error.reason}")
        if self._layout() != LAYOUT:
            return Capability("off", "another version laid it out")
        self._transfers.forget_old(time.time(), self._uploads.abort_forgotten)
        return Capability("read-write")

    def _layout(self) -> bytes | None:
        try:
            layout: bytes = self.bucket.call(
                "get_object",
                take=lambda answer: answer["Body"].read(len(LAYOUT) + 1),
                Key=f"{self.prefix}VERSION",
            )
        except Missing:
            return None
        return layout

    def _write_layout(self) -> bool:
        try:
            self.bucket.call(
                "put_object",
                body=lambda: LAYOUT,
                Key=f"{self.prefix}VERSION",
                ContentType="application/json",
                IfNoneMatch="*",
            )
        except Conflict:
            return False
        return True

    def _need(self, right: str) -> None:
        capability = self.capability()
        if capability.mode == "off" or (right == "write" and capability.mode != "read-write"):
            raise StoreUnavailable(self.url, capability.reason)

    def _blob_key(self, sha256: str) -> str:
        return f"{self.prefix}cas/sha256/{sha256[:2]}/{sha256}"

    def _entry_key(self, address: Address) -> str:
        return f"{self.prefix}ac/{address.kind}/{address.key[:2]}/{address.key}.json"


def _parsed(data: bytes, address: Address) -> Entry:
    entry = parse_entry(data)
    if (entry.kind, entry.key) != (address.kind, address.key):
        raise MalformedEntry("it belongs to another address")
    return entry
