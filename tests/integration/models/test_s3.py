"""Models in a bucket: pinned by ETag, read by range, refused when they change."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from packager.core.image import RemoteRange
from packager.core.model import ModelFiles
from packager.errors import (
    AccessDenied,
    ModelRefused,
    NotFound,
    PackagerError,
    ProtocolFailed,
    Unavailable,
    UsageError,
)
from packager.models.local import LocalSource
from packager.models.reference import parse_model_reference
from packager.models.s3 import S3Source
from packager.remote.s3 import S3Reader
from tests.support.doubles.fault_proxy import Fault, FaultProxy
from tests.support.doubles.hostile import HostileServer, Reply, Request, endless, reply
from tests.support.doubles.models import write_model
from tests.support.doubles.s3 import Bucket, bucket_server

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "x",
    "AWS_SECRET_ACCESS_KEY": "y",
    "AWS_DEFAULT_REGION": "eu-west-1",
}
SHARD = "model-00002-of-00003.safetensors"


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


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", hidden_size=256, intermediate_size=512)


@pytest.fixture
def proxy(bucket: Bucket, model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """A line to the server that can break."""
    bucket.upload(model, "llama")
    with FaultProxy(bucket.host) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        yield proxy


def ranges(proxy: FaultProxy) -> list[str]:
    """What was asked for of the model's second shard."""
    return [seen.headers.get("range", "") for seen in proxy.requests("GET", SHARD)]


def content(found: ModelFiles, path: str) -> RemoteRange:
    (file,) = [file for file in found.files if file.path == path]
    assert isinstance(file.content, RemoteRange)
    return file.content


@pytest.mark.parametrize("reference", ["s3://models", "s3://models/", "s3://my-models/a/b c/"])
def test_a_bucket_with_or_without_a_prefix_is_s3(reference: str) -> None:
    assert parse_model_reference(reference).source == "s3"


@pytest.mark.parametrize("reference", ["s3://", "s3:///x", "s3://Models_/x"])
def test_what_is_no_bucket_is_refused(reference: str) -> None:
    with pytest.raises(UsageError, match="neither"):
        parse_model_reference(reference)


@pytest.mark.parametrize(
    ("prefix", "name"),
    [("llama", "llama"), ("team/llama 3 (ü)", "llama-3-u"), ("", "")],
)
def test_a_model_in_a_bucket_is_streamed(
    bucket: Bucket, model: Path, prefix: str, name: str
) -> None:
    bucket.upload(model, prefix)

    found, local = (
        S3Source().facts(parse_model_reference(f"{bucket.url}/{prefix}")),
        LocalSource().facts(parse_model_reference(str(model))),
    )

    assert found.ref.source == "s3"
    assert found.ref.name == (name or bucket.url.removeprefix("s3://"))
    assert (found.config, found.tensors) == (local.config, local.tensors)
    assert [(f.path, f.role, f.size) for f in found.files] == [
        (f.path, f.role, f.size) for f in local.files
    ]
    reader = S3Reader()
    for file in found.files:
        streamed = b"".join(reader.read(content(found, file.path)))
        assert streamed == (model / file.path).read_bytes()


def test_a_neighbouring_prefix_is_another_model(bucket: Bucket, model: Path) -> None:
    bucket.upload(model, "llama")
    bucket.put("llama-old/optimizer.json", b"{}")
    bucket.put("llama/", b"")

    paths = [
        file.path for file in S3Source().facts(parse_model_reference(f"{bucket.url}/llama")).files
    ]

    assert sorted(paths) == sorted(path.name for path in model.iterdir())


def test_an_object_that_changed_since_it_was_listed_is_refused(bucket: Bucket, model: Path) -> None:
    bucket.upload(model, "llama")
    shard = content(S3Source().facts(parse_model_reference(f"{bucket.url}/llama")), SHARD)
    data = (model / SHARD).read_bytes()
    bucket.put(f"llama/{SHARD}", data[:-1] + b"!")

    with pytest.raises(ModelRefused, match="changed since it was listed"):
        b"".join(S3Reader().read(shard))


def test_an_object_that_is_gone_is_refused(bucket: Bucket, model: Path) -> None:
    bucket.upload(model, "llama")
    shard = content(S3Source().facts(parse_model_reference(f"{bucket.url}/llama")), SHARD)
    bucket.delete(f"llama/{SHARD}")

    with pytest.raises(ModelRefused, match="changed since it was listed"):
        b"".join(S3Reader().read(shard))


def test_an_object_that_changes_while_the_line_is_down_is_refused(
    bucket: Bucket, model: Path, proxy: FaultProxy
) -> None:
    shard = content(S3Source().facts(parse_model_reference(f"{bucket.url}/llama")), SHARD)
    proxy.add(Fault("truncate", path=SHARD, at=200_000))

    def change(_seconds: float) -> None:
        bucket.put(f"llama/{SHARD}", bytes(shard.length))

    with pytest.raises(ModelRefused, match="changed since it was listed"):
        b"".join(S3Reader(sleep=change).read(shard))


def test_a_read_goes_on_where_it_broke(bucket: Bucket, model: Path, proxy: FaultProxy) -> None:
    shard = content(S3Source().facts(parse_model_reference(f"{bucket.url}/llama")), SHARD)
    proxy.exchanges.clear()
    proxy.add(Fault("truncate", path=SHARD, at=200_000), Fault("truncate", path=SHARD, at=160_000))
    waits: list[float] = []

    streamed = b"".join(S3Reader(sleep=waits.append).read(shard))

    assert streamed == (model / SHARD).read_bytes()
    assert len(waits) == 2
    first, *later = ranges(proxy)
    starts = [int(wanted.removeprefix("bytes=").split("-")[0]) for wanted in later]
    assert first == ""
    assert 100_000 < starts[0] < 200_000 < starts[1] < 360_000


def test_a_broken_line_is_given_up(bucket: Bucket, model: Path, proxy: FaultProxy) -> None:
    shard = content(S3Source().facts(parse_model_reference(f"{bucket.url}/llama")), SHARD)
    proxy.add(Fault("truncate", path=SHARD, at=0, times=99))

    with pytest.raises(Unavailable):
        b"".join(S3Reader(sleep=lambda _: None).read(shard))


def test_wrong_bytes_fail_their_checksum(bucket: Bucket, model: Path, proxy: FaultProxy) -> None:
    shard = content(S3Source().facts(parse_model_reference(f"{bucket.url}/llama")), SHARD)
    proxy.add(Fault("flip", path=SHARD, at=-1))
    taken = bytearray()

    with pytest.raises(ModelRefused, match="checksum"):
        for chunk in S3Reader().read(shard):
            taken += chunk
    assert len(taken) < shard.length


def test_what_is_not_there_is_said(bucket: Bucket) -> None:
    with pytest.raises(NotFound, match="nothing below"):
        S3Source().facts(parse_model_reference(f"{bucket.url}/absent"))
    with pytest.raises(NotFound, match="'not-there'"):
        S3Source().facts(parse_model_reference("s3://not-there/absent"))


def test_missing_credentials_are_said(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))

    with pytest.raises(AccessDenied, match="no usable AWS credentials"):
        S3Source().facts(parse_model_reference(f"{bucket.url}/llama"))


def test_a_server_that_does_not_answer_is_unavailable(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")

    with pytest.raises(Unavailable, match="does not answer"):
        S3Source().facts(parse_model_reference(f"{bucket.url}/llama"))


def test_without_boto3_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    missing: Any = None
    monkeypatch.setitem(sys.modules, "boto3", missing)

    with pytest.raises(UsageError, match="boto3") as caught:
        S3Source().facts(parse_model_reference("s3://models/llama"))
    assert "packager[s3]" in caught.value.hint


TIME = "<LastModified>{}</LastModified>"
ROW = {
    "Key": "<Key>model/config.json</Key>",
    "LastModified": "<LastModified>2026-01-01T00:00:00.000Z</LastModified>",
    "ETag": "<ETag>&quot;abc&quot;</ETag>",
    "Size": "<Size>10</Size>",
}


def listing_with(**fields: str) -> bytes:
    """Write a listing of one object, with some of its fields spelt otherwise."""
    row = "".join({**ROW, **fields}.values())
    return f"<ListBucketResult><Contents>{row}</Contents></ListBucketResult>".encode()


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(reply(listing_with(LastModified="")), id="no-time"),
        pytest.param(reply(listing_with(ETag="")), id="no-etag"),
        pytest.param(reply(listing_with(Key="")), id="no-key"),
        pytest.param(reply(listing_with(Size="")), id="no-size"),
        pytest.param(reply(listing_with(Size="<Size>-5</Size>")), id="negative-size"),
        pytest.param(reply(listing_with(Size=f"<Size>{10**30}</Size>")), id="huge-size"),
        pytest.param(reply(b"<a" + b"<b>" * 5000), id="no-xml"),
        pytest.param(reply(b"", 307, Location="/bucket?list-type=2"), id="circle"),
        pytest.param(reply(listing_with(LastModified=TIME.format("1" * 40))), id="huge-time"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_a_listing_against_the_protocol_is_refused(
    told: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with HostileServer(lambda request: told) as server:
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": server.url}.items():
            monkeypatch.setenv(name, value)

        with pytest.raises((ProtocolFailed, Unavailable, UsageError)):
            S3Source(headers_only=True).facts(parse_model_reference("s3://bucket/model"))


@pytest.mark.parametrize("status", [200, 307, 403, 404])
def test_an_endless_listing_is_not_read_on(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    head = f"HTTP/1.1 {status} Told\r\nConnection: close\r\n\r\n<a>".encode()
    with HostileServer(lambda request: endless(head, b"<b/>" * 65536)) as server:
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": server.url}.items():
            monkeypatch.setenv(name, value)

        with pytest.raises(ProtocolFailed, match="more than 16777216 bytes"):
            S3Source(headers_only=True).facts(parse_model_reference("s3://bucket/model"))

        assert server.sent < 64 * 1024 * 1024


@pytest.mark.parametrize("status", [200, 403, 500])
def test_an_endless_object_is_not_read_on(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    head = f'HTTP/1.1 {status} Told\r\nETag: "abc"\r\nConnection: close\r\n\r\n'.encode()

    def answer(request: Request) -> Reply:
        if "list-type" in request.path:
            names = ("config.json", "tokenizer.json", "model.safetensors")
            keys = [f"<Key>model/{name}</Key>" for name in names]
            rows = "".join(
                f"<Contents>{''.join({**ROW, 'Key': key}.values())}</Contents>" for key in keys
            )
            return reply(f"<ListBucketResult>{rows}</ListBucketResult>".encode())
        return endless(head, b"x" * 65536)

    with HostileServer(answer) as server:
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": server.url}.items():
            monkeypatch.setenv(name, value)

        with pytest.raises(PackagerError) as caught:
            S3Source(headers_only=True).facts(parse_model_reference("s3://bucket/model"))

        assert server.sent < 128 * 1024 * 1024
    assert caught.value.exit_code in (65, 69, 76)
