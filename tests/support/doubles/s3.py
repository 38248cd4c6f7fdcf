"""A real S3 server on loopback, moto's, and buckets in it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from moto.moto_api._internal import moto_api_backend
from moto.server import ThreadedMotoServer

from tests.support.aws_clients import aws_client

_RUNNING: list[ThreadedMotoServer] = []


@contextmanager
def bucket_server() -> Iterator[str]:
    """Run the server and give its URL.

    moto keeps one state for all servers of a process, and beyond them: hundreds of megabytes.
    The last server to end forgets it.
    """
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    _RUNNING.append(server)
    try:
        yield "http://{}:{}".format(*server.get_host_and_port())
    finally:
        server.stop()
        _RUNNING.remove(server)
        if not _RUNNING:
            moto_api_backend.reset()


class Bucket:
    """A new bucket with a name of its own."""

    def __init__(self, server: str) -> None:
        self.name = f"models-{uuid.uuid4().hex[:12]}"
        self.url = f"s3://{self.name}"
        self.environment = {
            "AWS_ENDPOINT_URL": server,
            "AWS_ACCESS_KEY_ID": "AKIDCANARY",
            "AWS_SECRET_ACCESS_KEY": "secret-canary",
            "AWS_REGION": "eu-west-1",
            "AWS_DEFAULT_REGION": "eu-west-1",
        }
        self.host = urlsplit(server).netloc
        self.client = aws_client("s3", server)
        self.client.create_bucket(Bucket=self.name)

    def put(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=key, Body=data)

    def delete(self, key: str) -> None:
        self.client.delete_object(Bucket=self.name, Key=key)

    def get(self, key: str) -> bytes:
        data: bytes = self.client.get_object(Bucket=self.name, Key=key)["Body"].read()
        return data

    def names(self) -> list[str]:
        """Return the names of all objects, of up to 1,000."""
        found = self.client.list_objects_v2(Bucket=self.name)
        return [one["Key"] for one in found.get("Contents", ())]

    def upload(self, directory: Path, prefix: str) -> None:
        """Put the files of a directory, but none of those in its directories, below a prefix."""
        for path in filter(Path.is_file, directory.iterdir()):
            self.put(f"{prefix}/{path.name}" if prefix else path.name, path.read_bytes())
