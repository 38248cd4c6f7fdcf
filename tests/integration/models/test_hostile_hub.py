"""Hubs that send nonsense, or more than they list: refused at once, without the token."""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import huggingface_hub
import pytest

from packager.core.errors import ModelRefused, PackagerError, ProtocolFailed, Unavailable
from packager.core.remote.hub_session import get_object
from packager.models.hub import HubSource
from packager.models.hub_stream import HubStreamSource
from packager.models.reference import parse_model_reference
from packager.models.samples.load import load_samples
from tests.support.cases import cases
from tests.support.doubles.hostile import HostileServer, Reply, Request, endless, reply
from tests.support.doubles.models import write_model

COMMIT = "c" * 40
TOKEN = "hf_canary_a1b2c3d4"
OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = SimpleNamespace(**{**vars(time), "sleep": lambda seconds: None})
    monkeypatch.setattr("huggingface_hub.utils._http.time", at_once)  # between its tries
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    model = write_model(tmp_path / "model", shards=1)
    return {path.name: path.read_bytes() for path in model.iterdir()}


def siblings(files: Mapping[str, bytes]) -> list[dict[str, Any]]:
    return [
        {"rfilename": name, "size": len(data), "blobId": git_sha1(data)}
        for name, data in files.items()
    ]


def git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def head_of(length: int, digest: str) -> bytes:
    """Return what is sent before a file, or instead of it."""
    return reply(b"", Content_Length=str(length), ETag=f'"{digest}"', X_Repo_Commit=COMMIT)


def hub(
    files: Mapping[str, bytes],
    listing: object = None,
    instead: Mapping[str, Callable[[Request], Reply]] | None = None,
) -> Callable[[Request], Reply]:
    """Serve a model as a hub does; `instead` are answers for paths that hold a word."""
    if listing is None:
        listing = {"id": "acme/tiny", "sha": COMMIT, "siblings": siblings(files)}

    def answer(request: Request) -> Reply:
        path = urlsplit(request.path).path
        for word, told in (instead or {}).items():
            if word in path:
                return told(request)
        if path.startswith("/api/"):
            return reply(json.dumps(listing).encode())
        data = files[path.rpartition("/")[2]]
        head = head_of(len(data), git_sha1(data))
        return head if request.method == "HEAD" else head + data

    return answer


def facts(server: HostileServer, cache: Path, *, streams: bool = False) -> object:
    kind = HubStreamSource if streams else HubSource
    return kind(endpoint=server.url, token=TOKEN, cache_dir=cache / "hub").facts(
        parse_model_reference("acme/tiny")
    )


def test_a_hub_that_keeps_the_rules_is_believed(files: dict[str, bytes], tmp_path: Path) -> None:
    with HostileServer(hub(files)) as server:
        facts(server, tmp_path)


@cases("a_listing_of_a_wrong_type")
@pytest.mark.parametrize("streams", [False, True], ids=["download", "stream"])
def test_a_listing_of_wrong_types_is_refused(listing: str, streams: bool, tmp_path: Path) -> None:
    told = json.loads(listing.replace("COMMIT", COMMIT))
    with HostileServer(hub({}, told)) as server, pytest.raises(ProtocolFailed):
        facts(server, tmp_path, streams=streams)


@cases("no_description", body="", times=1, status=200, headers={}, forever=False)
def test_an_answer_that_is_no_description_of_a_model_is_refused(
    body: bytes,
    times: int,
    status: int,
    headers: dict[str, str],
    head: bytes | None,
    forever: bool,
    tmp_path: Path,
) -> None:
    """`head` is sent as it stands, and then the body for ever or not at all."""

    def told(request: Request) -> Reply:
        if head is not None:
            return endless(head, body * times) if forever else head
        data = gzip.compress(body * times) if "Content_Encoding" in headers else body * times
        filled = {name: text.replace("{path}", request.path) for name, text in headers.items()}
        return reply(data, status, **filled)

    with HostileServer(hub({}, instead={"/api/": told})) as server:
        with pytest.raises(PackagerError) as caught:
            facts(server, tmp_path)
        assert server.sent < 64 * MIB
    assert caught.value.exit_code in (66, 69, 76, 77)
    assert TOKEN not in said(caught.value)


def unending(files: Mapping[str, bytes], name: str) -> Callable[[Request], Reply]:
    """Serve one file, whose body goes on and on after it."""
    data = files[name]

    def answer(request: Request) -> Reply:
        if request.method == "HEAD":
            return head_of(len(data), git_sha1(data))
        return endless(OK + data, b"x" * MIB)

    return answer


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json", "model.safetensors"])
def test_a_file_that_goes_on_after_its_end_is_refused_and_fills_no_disk(
    name: str, files: dict[str, bytes], tmp_path: Path
) -> None:
    with HostileServer(hub(files, instead={f"/{name}": unending(files, name)})) as server:
        with pytest.raises(ModelRefused, match="is not what was listed: it has more than"):
            facts(server, tmp_path)

        assert server.sent < 32 * MIB
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 16 * MIB


def test_a_hub_that_drips_its_answer_is_given_up(tmp_path: Path) -> None:
    clock = iter(range(0, 100_000, 100))

    def drip(request: Request) -> Iterator[bytes]:
        yield OK
        for _ in range(100):
            server.wait(0.01)
            yield b" "

    with HostileServer(drip) as server, pytest.raises(Unavailable, match="not answered all"):
        get_object(f"{server.url}/api", headers={}, params={}, clock=lambda: float(next(clock)))


@pytest.mark.parametrize("status", [200, 302, 400, 401, 403, 404, 418, 429, 500])
@pytest.mark.parametrize("where", ["/api/", "/resolve/"])
def test_no_refusal_repeats_a_token_that_the_hub_sends_back(
    status: int, where: str, files: dict[str, bytes], tmp_path: Path
) -> None:
    def echo(request: Request) -> Reply:
        sent = request.header("Authorization")
        return reply(sent.encode(), status, X_Error_Message=sent, Location=f"http://{sent[7:]}/")

    server = HostileServer(hub(files, instead={where: echo}))
    with server, pytest.raises(PackagerError) as caught:
        facts(server, tmp_path)

    assert TOKEN in server.requests[0].head
    assert TOKEN not in f"{caught.value.message} {caught.value.hint}"
    assert caught.value.exit_code != 70


def said(error: PackagerError) -> str:
    return f"{error!r} {error.message} {error.hint}"


def test_an_endless_dataset_fills_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packager.models.samples.load._LONGEST_FILE", 3 * MIB)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))

    def answer(request: Request) -> Reply:
        if request.method == "HEAD":
            return head_of(5, "a" * 40)
        return endless(OK, b"x" * MIB)

    with HostileServer(answer) as server:
        api = functools.partial(huggingface_hub.HfApi, endpoint=server.url)
        monkeypatch.setattr("huggingface_hub.HfApi", api)
        with pytest.raises(ModelRefused, match="it has more than 3145728 bytes"):
            load_samples(f"hf://datasets/acme/texts@{COMMIT}/rows.jsonl")

        assert server.sent < 64 * MIB


@cases("a_head_that_breaks_the_rules", times=1)
def test_a_head_of_a_file_that_breaks_the_rules_is_refused_or_harmless(
    name: str, value: str, times: int, files: dict[str, bytes], tmp_path: Path
) -> None:
    (tmp_path / "cache").mkdir()

    def answer(request: Request) -> Reply:
        data = files[urlsplit(request.path).path.rpartition("/")[2]]
        right = {
            "Content_Length": str(len(data)),
            "ETag": f'"{git_sha1(data)}"',
            "X_Repo_Commit": COMMIT,
        }
        head = reply(b"", 302 if name == "Location" else 200, **{**right, name: value * times})
        return head if request.method == "HEAD" else head + data

    with HostileServer(hub(files, instead={"/resolve/": answer})) as server:
        try:
            facts(server, tmp_path / "cache")
        except PackagerError as error:
            assert error.exit_code in (65, 69, 74, 76)

    assert [path.name for path in tmp_path.iterdir() if path.name not in ("cache", "model")] == []
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["hub"]


def test_a_failed_download_leaves_no_other_running(files: dict[str, bytes], tmp_path: Path) -> None:
    """The client closes the connections of all threads when one of them fails."""

    def drip(request: Request) -> Reply:
        if request.method == "HEAD":
            return head_of(10 * MIB, "e" * 40)
        return dripping()

    def dripping() -> Iterator[bytes]:
        yield OK
        for _ in range(10_000):
            server.wait(0.02)
            yield b"x"

    def missing(request: Request) -> Reply:
        return reply(b"", 404, X_Error_Code="EntryNotFound")

    listed = [
        {**one, "size": 10 * MIB} if one["rfilename"] == "tokenizer.json" else one
        for one in siblings(files)
    ]
    listing = {"id": "acme/tiny", "sha": COMMIT, "siblings": listed}
    instead = {"/tokenizer.json": drip, "/config.json": missing}
    server = HostileServer(hub(files, listing, instead))
    with server, pytest.raises(PackagerError) as caught:
        facts(server, tmp_path)

    assert caught.value.exit_code == 66
    assert [one.name for one in threading.enumerate() if one.name.startswith("download")] == []
