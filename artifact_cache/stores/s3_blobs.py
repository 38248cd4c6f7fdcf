"""Blobs to and from a bucket: in parts, resumed, and compared with their digest.

Both ways many requests run at once.  With a directory for unfinished transfers,
a killed process's successor goes on where it stopped.
"""

from __future__ import annotations

from pathlib import Path

from artifact_cache.entry import Output
from artifact_cache.stores.s3_calls import Bucket
from artifact_cache.stores.s3_downloads import S3Downloads
from artifact_cache.stores.s3_uploads import S3Uploads
from artifact_cache.stores.transfers import Transfers

MIB = 1024 * 1024
RANGE_BYTES = 8 * MIB  # of a download; eight are in memory at once
PART_BYTES = 16 * MIB  # of an upload; eight are in memory at once
SINGLE_PUT_BYTES = 64 * MIB  # up to this, one request uploads a file straight from the disk


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
        self._prefix = prefix
        self._transfers = Transfers(partial)
        self._uploads = S3Uploads(
            bucket,
            self.key,
            self._transfers,
            part_bytes=part_bytes,
            single_put_bytes=single_put_bytes,
        )
        self._downloads = S3Downloads(bucket, self.key, self._transfers, range_bytes=range_bytes)

    def key(self, sha256: str) -> str:
        """Return the object's key of a blob."""
        return f"{self._prefix}cas/sha256/{sha256[:2]}/{sha256}"

    def upload(self, files: dict[str, tuple[Output, Path]], heal: dict[str, str]) -> None:
        """Write all files into the bucket. `heal` has ETags of objects known to be bad, by key.

        Raises `Unpublishable` when a file is not what its output says.
        """
        self._uploads.upload(files, heal)

    def is_in_ranges(self, output: Output) -> bool:
        """Report whether a download of this one takes several requests, at once."""
        return self._downloads.is_in_ranges(output)

    def download(self, output: Output, target: Path) -> None:
        """Download the blob to `target` and verify its digest. Raises `BadObject`."""
        self._downloads.download(output, target)

    def forget_old(self, now_s: float) -> None:
        """Remove unfinished transfers that nobody took up for days."""
        self._transfers.forget_old(now_s, self._uploads.abort_forgotten)
