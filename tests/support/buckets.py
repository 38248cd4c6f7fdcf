"""Fixtures of tests whose files lie in a bucket: one server a module, and a bucket a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.doubles.s3 import Bucket, bucket_server


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with bucket_server() as url:
        yield url


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """An empty bucket, and an AWS environment in which it is found."""
    bucket = Bucket(server)
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    return bucket
