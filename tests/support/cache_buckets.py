"""A real S3 server on loopback, and stores in new buckets of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from artifact_cache.stores.s3 import S3Store
from artifact_cache.stores.s3_calls import Bucket, Limits
from tests.support.doubles.s3 import Bucket as MotoBucket
from tests.support.doubles.s3 import bucket_server

LIMITS = Limits(connect_s=30, silence_s=60, answer_s=90, deadline_s=180, attempts=4)
HASTY = Limits(connect_s=2, silence_s=2, answer_s=4, deadline_s=4, attempts=4)
PART = 5 * 1024 * 1024  # the least that servers take
RANGE = 1024 * 1024


class Place(MotoBucket):
    """A new bucket, and what is in it."""

    def __init__(self, server: str) -> None:
        super().__init__(server)
        self.server = server

    def store(self, url: str = "", partial: Path | None = None, limits: Limits = LIMITS) -> S3Store:
        """Open the bucket, by another address if one is given; parts and ranges are small."""
        bucket = Bucket(
            self.name,
            endpoint_url=url or self.server,
            region="us-east-1",
            limits=limits,
            sleep=lambda seconds: None,
        )
        return S3Store(
            bucket,
            "p",
            partial=partial,
            part_bytes=PART,
            range_bytes=RANGE,
            single_put_bytes=PART,
        )

    def keys(self, start: str = "") -> list[str]:
        """What is below the store's prefix."""
        start = f"p/v1/{start}"
        return [name.removeprefix("p/v1/") for name in self.names() if name.startswith(start)]

    def read(self, key: str) -> bytes:
        return self.get(f"p/v1/{key}")

    def damage(self, key: str, data: bytes) -> None:
        """Change an object and keep what it says about itself, as a bad disk would."""
        old = self.client.head_object(Bucket=self.name, Key=f"p/v1/{key}")
        self.client.put_object(
            Bucket=self.name, Key=f"p/v1/{key}", Body=data, Metadata=old["Metadata"]
        )

    def remove(self, key: str) -> None:
        self.delete(f"p/v1/{key}")

    def blob(self, content: bytes) -> str:
        """Find the blob with that content."""
        return next(key for key in self.keys("cas/") if self.read(key) == content)

    def uploads(self) -> list[str]:
        """Multipart uploads that were begun and neither finished nor aborted."""
        found = self.client.list_multipart_uploads(Bucket=self.name)
        return [one["UploadId"] for one in found.get("Uploads", ())]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Run one server for all tests of a module, and give its address."""
    with bucket_server() as url:
        yield url


@pytest.fixture
def place(server: str, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Make a bucket, with the credentials in the environment that open it."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDCANARY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-canary")
    return Place(server)
