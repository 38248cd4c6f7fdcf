"""Everything that reads a stranger's document, each with good ones to start from.

A target takes the damaged bytes and a directory of its own, and reads them as packager does.
It may return, or raise `PackagerError` with a documented status or an error of the artifact cache.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import struct
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import urllib3

from packager.core.image import Platform
from packager.images.registry.transport import Response, Transport
from packager.images.target import parse_layout_target, parse_registry_target, parse_target
from packager.models.reference import parse_model_reference
from tests.support import tars
from tests.support.doubles.models import write_model
from tests.support.doubles.raw_registry import INDEX, MANIFEST, descriptor
from tests.support.places import ROOT
from tests.support.stored_images import image

Read = Callable[[bytes, Path], None]


class Bug(AssertionError):
    """A command ended as only a bug may."""


# Documents that targets take, as they are written.
STATED: Mapping[str, list[str]] = tomllib.loads(
    Path(__file__).with_name("good.toml").read_text(encoding="utf-8")
)
WEIGHTS_INDEX = "model.safetensors.index.json"
ON_GPU = ("plan", "--model", "{model}", "--instance", "ml.g5.xlarge")


@dataclass(frozen=True)
class Target:
    """A reader, and documents that it takes beside those that are stated."""

    read: Read
    made: Callable[[], Iterable[bytes]] = tuple


def command(*arguments: str, allowed: Iterable[int] = ()) -> None:
    """Run the command line in this process; status 70 is what must not be."""
    from packager.cli.app import run

    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run(list(arguments))
    if status == 70 and 70 not in allowed:
        err.flush()
        raise Bug(err.buffer.getvalue().decode()[-2000:])  # type: ignore[attr-defined]


# Models


@cache
def model_dir() -> Path:
    return write_model(Path("model").absolute(), shards=2)


def model_file(name: str) -> bytes:
    return (model_dir() / name).read_bytes()


def shard_header() -> bytes:
    data = model_file("model-00001-of-00002.safetensors")
    return data[8 : 8 + struct.unpack("<Q", data[:8])[0]]


def nested_configuration() -> bytes:
    base = json.loads(model_file("config.json"))
    return json.dumps({**base, "text_config": base, "vision_config": {"depth": 3}}).encode()


def plan(model: Path) -> None:
    command("plan", "--model", str(model), "--instance", "ml.g5.xlarge", "--format", "json")


def plan_with(name: str) -> Read:
    """Plan a model, one file of which is this."""

    def read(data: bytes, place: Path) -> None:
        for file in model_dir().iterdir():
            if file.name != name:
                (place / file.name).hardlink_to(file)
        (place / name).write_bytes(data)
        plan(place)

    return read


def read_weights(header: bytes, place: Path) -> None:
    """Plan a model whose weights have this header, which says its own length rightly."""
    for file in model_dir().iterdir():
        if not file.name.startswith("model"):
            (place / file.name).hardlink_to(file)
    with (place / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + 4096)
    plan(place)


# Users' files


def by_command(names: str, *words: str) -> Read:
    """Write it to files of these names, in whose place a command has `{}`, and run that."""

    def read(data: bytes, place: Path) -> None:
        for name in names.split():
            (place / name).write_bytes(data)
            given = {"{}": str(place / name), "{model}": str(model_dir())}
            command(*(given.get(word, word) for word in words))

    return read


def by_reader(names: str, reader: Callable[[Path], object]) -> Read:
    """Write it to files of these names, and read each; what the last refuses is refused."""

    def read(data: bytes, place: Path) -> None:
        *others, last = names.split()
        for name in (*others, last):
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_bytes(data)
            with contextlib.nullcontext() if name == last else typed():
                reader(place / name)

    return read


def record(path: Path) -> None:
    from packager.pipeline.records import load_record

    load_record(path)


def samples(path: Path) -> None:
    from packager.models.samples.load import load_samples

    load_samples(str(path))


def offer(path: Path) -> None:
    from packager.catalog.price_refresh import refresh_prices

    refresh_prices("us-east-1", str(path), path.parent)


def prices(path: Path) -> None:
    from packager.catalog.price_file import load_prices

    load_prices(path.parent.parent)


def look_ups(path: Path) -> None:
    from packager.optimize.cache.lookups import LastLookups

    LastLookups(path.parent).last()


def grid_file(data: bytes, place: Path) -> None:
    from packager.addons.fleet.grid import expand, read_grid_or_plan
    from packager.core.warmup import Grid

    for name in ("grid.toml", "grid.json"):
        (place / name).write_bytes(data)
        with typed():
            found = read_grid_or_plan(str(place / name))
            if isinstance(found, Grid):
                for count, _ in enumerate(expand(found)):
                    if count > 100:
                        break


def offers() -> Iterator[bytes]:
    yield (ROOT / "tests/support/data/catalog/offer-us-east-1.json").read_bytes()


# Images


def in_layout(place: Path, index: bytes, blobs: Mapping[str, bytes]) -> Path:
    """Write a layout with these documents under the digests that name them."""
    root = place / "layout"
    (root / "blobs/sha256").mkdir(parents=True)
    (root / "oci-layout").write_bytes(b'{"imageLayoutVersion":"1.0.0"}')
    (root / "index.json").write_bytes(index)
    for digest, data in blobs.items():
        (root / "blobs/sha256" / digest.removeprefix("sha256:")).write_bytes(data)
    return root


def look_at(root: Path) -> None:
    """Open a layout in all the ways there are."""
    from packager.core.image import Descriptor, ImageSpec, RuntimeConfig
    from packager.images.layout.base import LayoutBase
    from packager.images.layout.sink import LayoutSink
    from packager.images.oci import scratch, seal
    from packager.optimize.cache.oci import entries_of_layout

    command("inspect", f"oci:{root}")
    command("diff", f"oci:{root}", f"oci:{root}", "--format", "json")
    with typed():
        entries_of_layout(parse_target(f"oci:{root}"))
    with typed():
        base = LayoutBase().facts(parse_layout_target(f"oci:{root}"), Platform())
        ours = RuntimeConfig(env={"A": "1"}, labels={"b": "c"}, port=8080)
        spec = ImageSpec(base=base, layers=base.layers, runtime=ours, created="")
        layers = ((one.media_type, one.digest, one.size) for one in base.layers)
        seal(spec, [Descriptor(media_type=m, digest=d, size=size) for m, d, size in layers])
    with typed():
        sink = LayoutSink(parse_layout_target(f"oci:{root}:other"))
        empty = scratch(Platform())
        sink.prepare(ImageSpec(base=empty, layers=(), runtime=RuntimeConfig(), created=""))
        sink.abandon()


def index_of(*documents: bytes, media_type: str = MANIFEST) -> bytes:
    listed = [descriptor(data, media_type) for data in documents]
    return json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": listed}).encode()


def blobs_of(*documents: bytes) -> dict[str, bytes]:
    from packager.images.oci import sha256

    blobs = {sha256(data): data for data in documents}
    for content in ("debian", "shard 1", "shard 2", "tokenizer", "eagle", "settings"):
        blobs[sha256(content.encode())] = content.encode()
    return blobs


def layout_index(data: bytes, place: Path) -> None:
    sealed = image().sealed
    look_at(in_layout(place, data, blobs_of(sealed.manifest, sealed.config, nested())))


def nested() -> bytes:
    amd64 = {"platform": {"os": "linux", "architecture": "amd64"}}
    entry = {**descriptor(image().sealed.manifest, MANIFEST), **amd64}
    return json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}).encode()


def indexes() -> Iterator[bytes]:
    named = json.loads(index_of(image().sealed.manifest))
    named["manifests"][0]["annotations"] = {
        "org.opencontainers.image.ref.name": "latest",
        "dev.packager.sparse-base": "registry://127.0.0.1:1/a/b",
    }
    yield json.dumps(named).encode()
    yield index_of(nested(), media_type=INDEX)


def layout_nested(data: bytes, place: Path) -> None:
    sealed = image().sealed
    blobs = blobs_of(sealed.manifest, sealed.config, data)
    look_at(in_layout(place, index_of(data, media_type=INDEX), blobs))


def layout_manifest(data: bytes, place: Path) -> None:
    look_at(in_layout(place, index_of(data), blobs_of(image().sealed.config, data)))


def manifest_with(config: bytes) -> bytes:
    manifest = json.loads(image().sealed.manifest)
    manifest["config"] = descriptor(config, manifest["config"]["mediaType"])
    return json.dumps(manifest).encode()


def layout_config(data: bytes, place: Path) -> None:
    written = manifest_with(data)
    look_at(in_layout(place, index_of(written), blobs_of(written, data)))


def image_configs() -> Iterator[bytes]:
    yield image().sealed.config
    full = json.loads(image().sealed.config)
    full["config"] |= {"ExposedPorts": {"80/tcp": {}}, "Volumes": {"/v": {}}, "User": "1000"}
    full["config"] |= {"WorkingDir": "/", "Entrypoint": ["a"], "Cmd": ["b"], "StopSignal": "TERM"}
    yield json.dumps({**full, "variant": "v8", "author": "me"}).encode()


def record_label(data: bytes, place: Path) -> None:
    config = json.loads(image().sealed.config)
    config["config"].setdefault("Labels", {})["dev.packager.record"] = data.decode(
        "utf-8", "replace"
    )
    layout_config(json.dumps(config).encode(), place)


def record_labels() -> Iterator[bytes]:
    labels = json.loads(image().sealed.config)["config"]["Labels"]
    yield labels["dev.packager.record"].encode()


def saved_archive(data: bytes, place: Path, *, config: bytes | None = None) -> None:
    found = config or image().sealed.config
    saved_stream(archive_of({"c.json": found, "l.tar": b"debian", "manifest.json": data}), place)


def archive_of(files: Mapping[str, bytes]) -> bytes:
    return tars.tar_of(*(tars.file(name, content) for name, content in files.items()))


def saved_config(data: bytes, place: Path) -> None:
    saved_archive(STATED["docker-save-manifest"][0].encode(), place, config=data)


def saved_stream(data: bytes, place: Path) -> None:
    from packager.images.daemon.base import _write_layout

    _write_layout([data], place / "engine", "docker:x")


def saved_streams() -> Iterator[bytes]:
    manifest = STATED["docker-save-manifest"][0].encode()
    yield archive_of({"c.json": b"{}", "manifest.json": manifest})


# Registries


class _Told(Transport):
    """A transport without a network: it gives the answers that it was told, one after another."""

    def __init__(self, answers: Iterable[tuple[int, Mapping[str, str], bytes]]) -> None:
        super().__init__(sleep=lambda seconds: None)
        self._answers = iter(answers)

    def _send(self, *arguments: Any, **options: Any) -> Response:
        url = arguments[1]
        status, headers, body = next(self._answers, (404, {}, b""))
        raw = urllib3.HTTPResponse(
            body=io.BytesIO(body), status=status, headers=headers, preload_content=False
        )
        return Response(raw, url)


def client_told(*answers: tuple[int, Mapping[str, str], bytes]) -> Any:
    from packager.images.registry.clients import RegistryClients

    return RegistryClients(transport=_Told(answers), find_credentials=lambda host: None)


def registry_base(*answers: bytes) -> None:
    """Read a base whose manifest is the first answer."""
    from packager.images.registry.base import RegistryBase

    manifest, *blobs = answers
    told = [(200, {"Content-Type": MANIFEST}, manifest), *((200, {}, one) for one in blobs)]
    RegistryBase(clients=client_told(*told)).facts(
        parse_registry_target("127.0.0.1:1/a/b:1"), Platform()
    )


def registry_manifest(data: bytes, _place: Path) -> None:
    registry_base(data, image().sealed.config, image().sealed.config)


def registry_config(data: bytes, _place: Path) -> None:
    registry_base(manifest_with(data), data)


def registry_answers(data: bytes, _place: Path) -> None:
    """Read it as tags, referrers, an error and a token."""
    from packager.images.registry.referrers import referrers

    digest = "sha256:" + "a" * 64
    for status, headers, read in (
        (200, {}, lambda client: client.list_tags("a/b")),
        (200, {"Content-Type": INDEX}, lambda client: referrers(client, "a/b", digest)),
        (500, {}, lambda client: client.get_manifest("a/b", "1")),
        (403, {}, lambda client: client.start_upload("a/b")),
    ):
        with typed():
            read(client_told(*[(status, headers, data)] * 6).at("127.0.0.1:1"))
    realm = {"WWW-Authenticate": 'Bearer realm="http://127.0.0.1:1/token"'}
    with typed():
        client_told((401, realm, b""), (200, {}, data)).at("127.0.0.1:1").list_tags("a/b")


def registry_header(data: bytes, _place: Path) -> None:
    """Read it as every header that we read."""
    text = data.decode("latin-1").replace("\r", "").replace("\n", "")[:65536]
    digest = "sha256:" + "a" * 64
    names = ("WWW-Authenticate", "Location", "Link", "Content-Length", "Content-Range")
    names += ("Docker-Content-Digest", "Retry-After", "Content-Type", "Range", "OCI-Subject")
    for status in (200, 202, 206, 302, 307, 401, 429):
        headers = {**dict.fromkeys(names, text), "OCI-Chunk-Min-Length": text}
        answers = [(status, headers, b"{}")] * 6
        for read in (
            lambda client: client.ping(),
            lambda client: client.head_manifest("a/b", "1"),
            lambda client: client.get_manifest("a/b", digest),
            lambda client: client.head_blob("a/b", digest),
            lambda client: list(client.read_blob("a/b", digest, offset=5, length=10)),
            lambda client: client.list_tags("a/b"),
            lambda client: client.list_referrers("a/b", digest),
            lambda client: client.start_upload("a/b"),
            lambda client: client.put_manifest("a/b", "1", b"{}", MANIFEST),
        ):
            with typed():
                read(client_told(*answers).at("127.0.0.1:1"))


def docker_login(data: bytes, place: Path) -> None:
    from packager.images.registry.credentials import find_credentials

    (place / "config.json").write_bytes(data)
    environment = {"HOME": str(place), "DOCKER_CONFIG": str(place), "PATH": str(place)}
    find_credentials("registry.example", environment)


# Hubs and buckets


def hub_notes(data: bytes, place: Path) -> None:
    from packager.models.hub_cache import RepositoryCache

    found = RepositoryCache(place, "a/b")
    commit = "a" * 40
    notes = place / "models--a--b/packager"
    notes.mkdir(parents=True)
    (notes / f"{commit}.json").write_bytes(data)
    (place / "models--a--b/refs").mkdir()
    (place / "models--a--b/refs/main").write_bytes(data)
    found.recall_listing(commit)
    found.recall_proofs(commit)
    found.recall_revision("main")
    found.remember_revision("main", commit)


def hub_listing(data: bytes, place: Path) -> None:
    """Read it as a hub's description of a model; offline, so that nothing is downloaded."""
    from packager.core.documents import NotStrict, parse_object
    from packager.core.remote.hub_session import not_a_hub
    from packager.models import hub

    def get_object(url: str, **_: Any) -> dict[str, Any]:
        try:
            return parse_object(data)
        except NotStrict as error:
            raise not_a_hub(str(error)) from error

    before, hub.get_object = hub.get_object, get_object
    try:
        hub.HubSource(endpoint="http://127.0.0.1:1", cache_dir=place).facts(
            parse_model_reference("acme/tiny")
        )
    finally:
        hub.get_object = before


def engine_image(data: bytes, place: Path) -> None:
    """Read it as what a Docker Engine says of an image."""
    from types import SimpleNamespace

    from packager.engines.without_draft import draft_of, environment_of
    from packager.images.daemon.base import DockerBase

    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(data)
        api = SimpleNamespace(inspect_image=lambda name: found, get_image=lambda name: [])
        with typed():
            DockerBase(cache_dir=place, connect=lambda: SimpleNamespace(api=api)).take_out(
                parse_target("docker:x")
            )
        config = found.get("Config") if isinstance(found, dict) else None
        if isinstance(config, dict):
            draft_of(config)
            environment_of(config)


def helper_answer(data: bytes, place: Path) -> None:
    """Read it as the answer of a credential helper."""
    from packager.images.registry.credentials import find_credentials

    (place / "answer").write_bytes(data)
    helper = place / "docker-credential-told"
    helper.write_text(f"#!/bin/sh\nexec cat {place / 'answer'}\n")
    helper.chmod(0o700)
    (place / "config.json").write_text('{"credsStore":"told"}')
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{place}:{before}"
    try:
        find_credentials("registry.example", {"HOME": str(place), "DOCKER_CONFIG": str(place)})
    finally:
        os.environ["PATH"] = before


def smoke_answer(data: bytes, _place: Path) -> None:
    """Read it as what a container answers to a smoke test."""
    from packager.cli.serving.smoke import _ask_chat, _ask_invocations, _model_name
    from packager.core.documents import NotStrict

    class Told:
        def request(self, *_: Any, **__: Any) -> urllib3.HTTPResponse:
            return urllib3.HTTPResponse(body=io.BytesIO(data), status=200, preload_content=False)

    http: Any = Told()
    for ask in (
        lambda: _model_name(http, "http://x"),
        lambda: _ask_chat(http, "http://x", "m", "p", 5),
        lambda: _ask_invocations(http, "http://x", "p", 5),
    ):
        with contextlib.suppress(NotStrict), typed():
            ask()


def bucket_listing(data: bytes, _place: Path) -> None:
    """Read it as what S3 lists."""
    from botocore.awsrequest import AWSResponse

    from packager.models.s3 import S3Source

    class Body(io.BytesIO):
        def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
            yield self.read()

    client = _bucket_client()

    def answer(request: Any, **_: Any) -> Any:
        headers = {"Content-Type": "application/xml", "Content-Length": str(len(data))}
        return AWSResponse(request.url, 200, headers, Body(data))

    client.meta.events.register_first("before-send.s3", answer, unique_id="told")
    try:
        S3Source(client=client, headers_only=True).facts(parse_model_reference("s3://bucket/model"))
    finally:
        client.meta.events.unregister("before-send.s3", answer, unique_id="told")


@cache
def _bucket_client() -> Any:
    import boto3
    from botocore.config import Config

    return boto3.Session(
        aws_access_key_id="x", aws_secret_access_key="y", region_name="eu-west-1"
    ).client("s3", config=Config(retries={"total_max_attempts": 1}))


# Servers


def server_answer(data: bytes, _place: Path) -> None:
    from packager.addons.bench.load.answers import AnswerFailed, AnswerReader
    from packager.cli.serving.acceptance import acceptance, speculates

    for kind in ("text/event-stream", "application/json", "application/jsonlines"):
        answer = AnswerReader(kind)
        with contextlib.suppress(AnswerFailed):
            answer.feed(data[:7], 1.0)
            answer.feed(data[7:], 2.0)
            answer.end(2.0)
        answer.text.encode()
    text = data.decode("utf-8", "replace")
    speculates(text)
    acceptance([text, text], [], [])


# The artifact cache


def cache_entry(data: bytes, _place: Path) -> None:
    from artifact_cache.entry import entry_bytes, parse_entry

    entry_bytes(parse_entry(data))


def cache_archive(data: bytes, place: Path) -> None:
    from artifact_cache.stores.archive import import_archive
    from tests.support.doubles.stores import MemoryStore

    import_archive(io.BytesIO(data), MemoryStore(), place)


@cache
def _stored() -> Any:
    from artifact_cache.entry import Writer
    from artifact_cache.store import address_of
    from tests.support.cache_entries import CHECKPOINT
    from tests.support.doubles.stores import MemoryStore
    from tests.unit.artifact_cache.test_stores import built

    entry = built(Path("built"), CHECKPOINT)
    always = Writer(nonce="0" * 32, builder_id="", version="")
    store = MemoryStore()
    store.put(entry.model_copy(update={"writer": always}), Path("built"))
    return store.get(address_of(CHECKPOINT))


def cache_archives() -> Iterator[bytes]:
    from artifact_cache.stores.archive import export_archive

    Path("scratch").mkdir()
    export_archive([_stored()], Path("a.tar"), Path("scratch"))
    yield Path("a.tar").read_bytes()


def cache_entries() -> Iterator[bytes]:
    from artifact_cache.entry import entry_bytes

    yield entry_bytes(_stored().entry)


CLAIM_KEY = bytes(32)
CLAIMED_IN = "registry.test/team/model"


def registry_claims(data: bytes, place: Path) -> None:
    """Read claims; a damaged document that is proven would be a layer of somebody's choice."""
    from packager.core.documents import NotStrict
    from packager.core.errors import ProtocolFailed
    from packager.images.claims import ClaimKey, judge, read_claims

    try:
        found = read_claims(data)
    except NotStrict as error:
        raise ProtocolFailed(str(error)) from error
    if judge(found, ClaimKey(CLAIM_KEY), CLAIMED_IN) == "proven" and found.claims != _claims():
        raise Bug("a changed document of claims is proven")


def claim_documents() -> Iterator[bytes]:
    from packager.images.claims import ClaimKey, write_claims

    yield write_claims(ClaimKey(CLAIM_KEY), CLAIMED_IN, _claims())


def _claims() -> tuple[Any, ...]:
    from packager.images.claims import Claim

    return tuple(
        Claim(role=role, content=f"sha256:{digit * 64}", size=size, digest=f"sha256:{size:064x}")
        for role, digit, size in (("model", "a", 10240), ("weights", "b", 4096))
    )


def key_file(data: bytes, place: Path) -> None:
    from artifact_cache.trust import load_signer, load_trusted_keys, trust_key

    (place / "keys").write_bytes(data)
    (place / "keys").chmod(0o600)
    for read in (load_signer, load_trusted_keys, lambda path: trust_key(path, data)):
        with typed():
            read(place / "keys")
    with typed():
        trust_key(place / "new", data)


@contextlib.contextmanager
def typed() -> Iterator[None]:
    """Let a typed refusal pass, so that the same document is read in the next way."""
    try:
        yield
    except BaseException as error:
        if not is_typed(error):
            raise


def is_typed(error: BaseException) -> bool:
    """Whether a failure is one that users can be told, with a documented status."""
    from artifact_cache.errors import CacheError
    from packager.core.errors import PackagerError

    if isinstance(error, PackagerError):
        return error.exit_code != 70
    return isinstance(error, CacheError)


TARGETS: Mapping[str, Target] = {
    "config.json": Target(plan_with("config.json"), lambda: [nested_configuration()]),
    "tokenizer_config.json": Target(plan_with("tokenizer_config.json")),
    "generation_config.json": Target(plan_with("generation_config.json")),
    "weights-index": Target(plan_with(WEIGHTS_INDEX), lambda: [model_file(WEIGHTS_INDEX)]),
    "weights-header": Target(read_weights, lambda: [shard_header()]),
    "request": Target(by_command("request.toml request.json", "plan", "--request", "{}")),
    "grid": Target(grid_file),
    "catalog": Target(by_command("catalog.toml", *ON_GPU, "--catalog", "{}")),
    "measured": Target(by_command("measured.json", *ON_GPU, "--measured", "{}")),
    "record": Target(by_reader("record.json", record)),
    "samples": Target(by_reader("samples.jsonl samples.json", samples)),
    "offer": Target(by_reader("offer.json", offer), offers),
    "prices": Target(by_reader("prices/us-east-1.json", prices)),
    "properties": Target(by_command("serving.properties", "migrate", "{}")),
    "layout-index": Target(layout_index, indexes),
    "layout-nested-index": Target(layout_nested, lambda: [nested()]),
    "layout-manifest": Target(layout_manifest, lambda: [image().sealed.manifest]),
    "layout-config": Target(layout_config, image_configs),
    "record-label": Target(record_label, record_labels),
    "docker-save-manifest": Target(saved_archive),
    "docker-save-config": Target(saved_config, image_configs),
    "docker-save-archive": Target(saved_stream, saved_streams),
    "registry-manifest": Target(registry_manifest, lambda: [image().sealed.manifest, nested()]),
    "registry-config": Target(registry_config, image_configs),
    "registry-answer": Target(registry_answers, lambda: [index_of(b"x")]),
    "registry-claims": Target(registry_claims, claim_documents),
    "registry-header": Target(registry_header, lambda: [b"Bearer" + b" " * 30_000 + b"!"]),
    "docker-login": Target(docker_login),
    "hub-notes": Target(hub_notes),
    "hub-listing": Target(hub_listing),
    "engine-image": Target(engine_image),
    "credential-helper": Target(helper_answer),
    "smoke-answer": Target(smoke_answer),
    "bucket-listing": Target(bucket_listing),
    "server-answer": Target(server_answer),
    "cache-entry": Target(cache_entry, cache_entries),
    "cache-archive": Target(cache_archive, cache_archives),
    "keys": Target(key_file),
    "look-ups": Target(by_reader("lookups.json", look_ups)),
}


def good_documents(name: str) -> list[bytes]:
    """Return the documents that a target takes, in one order in every run."""
    changes = (json.loads(text) for text in STATED["config.json"])
    base = json.loads(model_file("config.json"))
    stated = [json.dumps({**base, **change}) for change in changes]
    texts = stated if name == "config.json" else STATED.get(name, ())
    return sorted([*(text.encode() for text in texts), *TARGETS[name].made()])


def quiet_environment(place: Path) -> None:
    """Keep what the command line writes and finds below one directory."""
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        os.environ[name] = str(place)
    os.environ["PACKAGER_CACHE"] = f"dir:{place / 'cache'}"
    os.environ["DOCKER_CONFIG"] = str(place)
    os.environ["PACKAGER_DEBUG"] = "1"
    os.environ["HF_HUB_OFFLINE"] = "1"
