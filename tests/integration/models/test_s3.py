"""Models in a bucket: pinned by ETag, read by range, refused when they change."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError
from urllib3 import HTTPResponse

from artifact_cache.opening import BadTier, parse_tier
from packager.core.errors import (
    AccessDenied,
    ModelRefused,
    NotFound,
    PackagerError,
    ProtocolFailed,
    Unavailable,
    UsageError,
)
from packager.core.image import RemoteRange
from packager.core.model import ModelFiles
from packager.core.remote.addresses import S3Address, parse_s3
from packager.core.remote.s3 import S3Reader, list_bucket, s3_client, whole_object
from packager.core.remote.s3_write import WritableBucket
from packager.images.target import bucket_of as target_place
from packager.images.target import parse_target
from packager.models.local import LocalSource
from packager.models.reference import bucket_of, parse_model_reference
from packager.models.s3 import S3Source
from tests.support.buckets import bucket as bucket
from tests.support.buckets import server as server
from tests.support.cases import cases_of, read_tables
from tests.support.doubles.fault_proxy import Fault, FaultProxy
from tests.support.doubles.hostile import HostileServer, Reply, Request, endless, reply
from tests.support.doubles.models import write_model
from tests.support.doubles.s3 import Bucket

TABLES = read_tables(__file__)

cases = cases_of(__file__)

CREDENTIALS: dict[str, str] = read_tables(__file__)["credentials"]
SHARD = "model-00002-of-00003.safetensors"


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


@cases("places")
def test_a_bucket_or_an_access_point_is_s3(place: str, bucket: str, prefix: str) -> None:
    found = bucket_of(parse_model_reference(place))

    assert (found.bucket, found.prefix) == (bucket, prefix)


@cases("no_places")
def test_what_is_no_bucket_is_refused_with_the_reason(place: str, why: str) -> None:
    for parse in (parse_model_reference, lambda text: target_place(parse_target(text, ("s3",)))):
        with pytest.raises(UsageError, match=why):
            parse(place)
    with pytest.raises(BadTier, match=why):
        parse_tier(place)


def test_an_access_point_is_asked_by_its_own_address(monkeypatch: pytest.MonkeyPatch) -> None:
    arn = "arn:aws:s3:eu-west-1:123456789012:accesspoint:models"
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    client, asked = s3_client(), []

    def answer(request: Any) -> AWSResponse:
        asked.append(request.url)
        body = HTTPResponse(BytesIO(listing_with()), preload_content=False)
        return AWSResponse(request.url, 200, {}, body)

    client._endpoint.http_session.send = answer
    assert [one.bucket for one in list_bucket(client, arn, "llama/")] == [arn]
    assert asked[0].partition("?")[0] == (
        "https://models-123456789012.s3-accesspoint.eu-west-1.amazonaws.com/"
    )
    assert parse_s3(next(list_bucket(client, arn, "llama/")).url).bucket == arn


@cases("prefixes")
def test_a_model_of_a_bucket_streams(bucket: Bucket, model: Path, prefix: str, name: str) -> None:
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
        assert b"".join(reader.read(content(found, file.path))) == (model / file.path).read_bytes()


def test_a_neighbouring_prefix_is_another_model(bucket: Bucket, model: Path) -> None:
    bucket.upload(model, "llama")
    bucket.put("llama-old/optimizer.json", b"{}")
    bucket.put("llama/", b"")

    paths = [
        file.path for file in S3Source().facts(parse_model_reference(f"{bucket.url}/llama")).files
    ]

    assert sorted(paths) == sorted(path.name for path in model.iterdir())


@pytest.mark.parametrize("change", ["replaced", "deleted"])
def test_a_changed_object_is_refused(bucket: Bucket, model: Path, change: str) -> None:
    bucket.upload(model, "llama")
    shard = content(S3Source().facts(parse_model_reference(f"{bucket.url}/llama")), SHARD)

    bucket.delete(f"llama/{SHARD}")
    if change == "replaced":
        bucket.put(f"llama/{SHARD}", (model / SHARD).read_bytes()[:-1] + b"!")

    with pytest.raises(ModelRefused, match="changed since it was listed"):
        b"".join(S3Reader().read(shard))


def test_a_change_during_a_break_is_refused(bucket: Bucket, model: Path, proxy: FaultProxy) -> None:
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

    assert b"".join(S3Reader(sleep=waits.append).read(shard)) == (model / SHARD).read_bytes()
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


def test_without_boto3_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    missing: Any = None
    monkeypatch.setitem(sys.modules, "boto3", missing)

    with pytest.raises(UsageError, match="boto3") as caught:
        S3Source().facts(parse_model_reference("s3://models/llama"))
    assert "pip install 'boto3>=1.36'" in caught.value.hint


ROW = TABLES["row"]


def listing_with(**fields: str) -> bytes:
    """Write a listing of one object, with some of its fields spelt otherwise."""
    row = "".join({**ROW, **fields}.values())
    return f"<ListBucketResult><Contents>{row}</Contents></ListBucketResult>".encode()


def read_from(server: HostileServer, patch: pytest.MonkeyPatch) -> None:
    """Read what a plan needs of a model in a bucket there."""
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": server.url}.items():
        patch.setenv(name, value)
    S3Source(headers_only=True).facts(parse_model_reference("s3://bucket/model"))


@cases("listings", fields={})
def test_a_listing_against_the_protocol_is_refused(
    answer: bytes | None, fields: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`answer` is all that is sent; else `fields` are spelt otherwise in a right listing."""
    told = reply(listing_with(**fields)) if answer is None else answer
    refusals = (ProtocolFailed, Unavailable, UsageError)
    with HostileServer(lambda request: told) as server, pytest.raises(refusals):
        read_from(server, monkeypatch)


@cases("refusals", text="")
def test_a_refusal_is_told_by_its_code(
    status: int, code: str, text: str, said: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = f"<Error><Code>{code}</Code><Message>{text}</Message></Error>".encode()
    with (
        HostileServer(lambda request: reply(body, status)) as server,
        pytest.raises(AccessDenied, match=said) as refused,
    ):
        read_from(server, monkeypatch)

    assert hint in refused.value.hint
    assert not text or text not in refused.value.message


@cases("settings", environment={}, config="", checksum=True, head="")
def test_the_users_settings_are_kept(
    environment: dict[str, str],
    config: str,
    checksum: bool,
    head: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with HostileServer(lambda request: reply(listing_with(), ETag='"e"')) as server:
        (tmp_path / "config").write_text(config.replace("{url}", server.url))
        usual = {**CREDENTIALS, "AWS_ENDPOINT_URL": server.url}
        for name, value in {**usual, "AWS_CONFIG_FILE": "config", **environment}.items():
            monkeypatch.setenv(name, value)
            if not value:
                monkeypatch.delenv(name)
        monkeypatch.chdir(tmp_path)
        bucket = WritableBucket("bucket")
        bucket.put("key", b"data")
        bucket.call("list_objects_v2")
    written, listed = server.requests

    assert (written.path, listed.path.partition("?")[0]) == ("/bucket/key", "/bucket")
    assert ("x-amz-checksum" in written.head.lower()) == checksum
    assert all(re.search(f"(?i){head}", one.head) for one in server.requests), listed.head


def test_a_profile_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "gone")
    with pytest.raises(UsageError, match=r"do not work: The config profile \(gone\)"):
        s3_client()


@cases("attempts", environment={}, config="")
def test_a_busy_server_is_asked_as_often_as_the_user_wants(
    environment: dict[str, str],
    config: str,
    asked: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "config").write_text(config)
    with HostileServer(lambda request: reply(status=503)) as server:
        usual = {**CREDENTIALS, "AWS_ENDPOINT_URL": server.url}
        for name, value in {**usual, "AWS_CONFIG_FILE": "config", **environment}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ClientError):
            s3_client().list_objects_v2(Bucket="bucket")

    assert len(server.requests) == asked


def test_names_of_hosts_are_used_where_the_user_wants_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text("[default]\ns3 =\n  addressing_style = virtual\n")
    told = {**CREDENTIALS, "AWS_CONFIG_FILE": str(tmp_path / "config")}
    for name, value in {**told, "AWS_ENDPOINT_URL": "http://s3.invalid"}.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(Unavailable, match=r"bucket\.s3\.invalid"):
        WritableBucket("bucket").call("list_objects_v2")


def test_an_etag_that_a_proxy_made_weak_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    file = S3Address(bucket="bucket", key="k", size=4, etag='"e"', modified_us=0)
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with HostileServer(lambda request: reply(b"data", ETag='W/"e"')) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        assert b"".join(S3Reader().read(whole_object(file))) == b"data"

    assert [one.header("If-Match") for one in server.requests] == ['"e"']


@pytest.mark.parametrize("status", [200, 307, 403, 404])
def test_an_endless_listing_is_not_read_on(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    head = f"HTTP/1.1 {status} Told\r\nConnection: close\r\n\r\n<a>".encode()
    with HostileServer(lambda request: endless(head, b"<b/>" * 65536)) as server:
        with pytest.raises(ProtocolFailed, match="more than 16777216 bytes"):
            read_from(server, monkeypatch)

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
        with pytest.raises(PackagerError) as caught:
            read_from(server, monkeypatch)

        assert server.sent < 128 * 1024 * 1024
    assert caught.value.exit_code in (65, 69, 76)
