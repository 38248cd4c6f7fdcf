"""Documents that have no model: their schema is the shape of what the code writes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from artifact_cache.explain import Difference, Explanation, Neighbour
from artifact_cache.stats import StatsLog
from packager.addons.deploy.compose.documents import servers_file
from packager.addons.deploy.compose.front import Servers
from packager.addons.deploy.wiring.deployments import (
    Whereabouts,
    deployment_documents,
    remember_deployment,
)
from packager.addons.nodes.mounts.mounts import ImageMount, _read_record, _write_record
from packager.addons.nodes.mounts.table import MountedAt
from packager.addons.nodes.slim.record import (
    SlimBase,
    SlimProof,
    attached_document,
    slim_document,
    slim_label,
)
from packager.addons.nodes.slim.rules import choose_rules
from packager.addons.nodes.slim.scan import scan_image
from packager.addons.server.refresh.journal import RefreshJournal
from packager.catalog.instances import find_instance
from packager.catalog.offer_file import Offer
from packager.catalog.price_file import load_prices, save_prices
from packager.cli.run.images import _requested
from packager.core.catalog import Price
from packager.core.image import BaseImage, Platform
from packager.core.recipe import Step
from packager.images.blobs import BlobReader
from packager.images.claims import Claim, ClaimKey, read_claims, write_claims
from packager.images.rootfs.reading import LayerReader
from packager.images.slim_label import slim_words
from packager.models.hub_cache import RepositoryCache
from packager.models.rules import ListedModelFile
from packager.optimize.cache.lookups import LastLookups
from packager.pipeline.record import make_labels
from tests.golden.cases import CASES
from tests.support.cache_entries import STEP_INPUT
from tests.support.deployments import deployment
from tests.support.document_kinds.kinds import DocumentKind, in_file, required, written
from tests.support.document_kinds.models import entry, failure
from tests.support.made_layers import base_of, file, layer_of, tar_of

_COMMIT = "c" * 40
_ISA = ("avx2", "avx512_bf16", "avx512bw", "avx512dq", "avx512f", "avx512vl")
_MOUNT = ImageMount(
    directory=Path("/models/tiny"), image="oci:out", digest="sha256:" + "a" * 64, layers="model"
)
_MOUNTED = MountedAt(directory="/models/tiny", kind="overlay", source="packager", device=(0, 42))


def _claims(_place: Path) -> bytes:
    digests = ("sha256:" + "c" * 64, "sha256:" + "d" * 64)
    claim = Claim(role="weights", content=digests[0], size=10240, digest=digests[1])
    return write_claims(ClaimKey(bytes(range(32))), "registry.example/team/model", [claim])


def _prices(place: Path) -> bytes:
    price = Price(
        instance="ml.g5.xlarge",
        usd_hour=1.408,
        region="us-east-1",
        basis="offer file",
        source="a page",
        date="2026-11-22",
    )
    save_prices("us-east-1", Offer(published="2026-11-22T00:00:00Z", prices=(price,)), place)
    return (place / "prices/us-east-1.json").read_bytes()


def _refresh(place: Path) -> bytes:
    journal = RefreshJournal(place)
    journal.add(1, "train", "done", {"head": "/turns/1/head"})
    line = json.loads((place / "journal.jsonl").read_bytes())
    return json.dumps({**line, "at": "2026-12-01T00:00:00Z"}).encode() + b"\n"


def _deployment(place: Path) -> bytes:
    where = Whereabouts(platform="kubernetes", namespace="ml", cluster="https://k8s.example:6443")
    environment = {"XDG_STATE_HOME": str(place)}
    remember_deployment(deployment(), where, environment, answered=True, bench="benchmark:a")
    (note,) = place.rglob("*.json")
    return note.read_bytes()


def _read_deployment(data: bytes, place: Path) -> object:
    note = place / "packager/deployments/note.json"
    note.parent.mkdir(parents=True)
    note.write_bytes(data)
    (found,) = deployment_documents({"XDG_STATE_HOME": str(place)})
    return required(found.read().nodes)


def _hub_notes(place: Path) -> bytes:
    cache = RepositoryCache(place, "org/name")
    files = {"config.json": ListedModelFile(size=5, git_sha1="b" * 40)}
    cache.remember_listing(_COMMIT, files)
    cache.remember_proofs(_COMMIT, {"config.json": [1, 2, 3, 4, 5]})
    return (place / f"models--org--name/packager/{_COMMIT}.json").read_bytes()


def _read_hub_notes(path: Path) -> object:
    cache = RepositoryCache(path.parents[2], "org/name")
    return cache.recall_listing(_COMMIT) and cache.recall_proofs(_COMMIT)


def _mount(place: Path) -> bytes:
    _write_record(place, _MOUNT, device=42, proven=True)
    (record,) = place.glob("*.json")
    return record.read_bytes()


def _read_mount(data: bytes, place: Path) -> object:
    _write_record(place, _MOUNT, device=42, proven=True)
    (record,) = place.glob("*.json")
    record.write_bytes(data)
    return required(_read_record(place, _MOUNTED).digest)


def _lookups(place: Path) -> bytes:
    made = entry()
    near = Neighbour(made, (Difference("/computed_on", "sm_90", "cpu"),))
    found = Explanation(key=made.key, hit=False, nearest=(near,), failure=failure())
    step = Step(
        name="quantize", tool="llmcompressor", gives="model", key=STEP_INPUT, labels={"a": "b"}
    )
    LastLookups(place, clock=lambda: 1795000000.0).remember(step, found)
    return (place / "lookups.json").read_bytes()


def _image_label(_place: Path) -> bytes:
    case = next(one for one in CASES if one.id == "llama-3-8b-g5-vllm-dflash")
    base = BaseImage(
        reference="registry.example/vllm:0.32.0",
        digest="sha256:" + "a" * 64,
        platform=Platform(),
        layers=(),
        config={},
    )
    labels = make_labels(replace(case.facts, base=base, packager_version="0.2.0"), case.plan)
    return labels["dev.packager.record"].encode()


def _slim() -> SlimBase:
    kernels = "opt/lib/python3.11/site-packages/vllm/_C_AVX2.abi3.so"
    members = [file(kernels, b"k" * 1_200_000), file("usr/share/man/man1/a", b"a")]
    base = base_of([layer_of(tar_of(members))])
    chosen = choose_rules([replace(find_instance("ml.c7i.4xlarge"), isa=_ISA)])
    chosen = replace(chosen, not_applied=(("cuda-headers", "not asked for"),))
    scan = scan_image(base, chosen, LayerReader(BlobReader().chunks).entries_of)
    return SlimBase(base=base, chosen=chosen, scan=scan)


def _slim_record(_place: Path) -> bytes:
    proof = SlimProof(model="tiny", answers=("a",), original_ready_s=13.0, slim_ready_s=12.5)
    return attached_document(slim_document(_slim(), "sha256:" + "d" * 64, proof=proof))


def _stats(place: Path) -> bytes:
    StatsLog(place / "stats").count("hit", tier="local", kind="neuron", size=5, seconds=1.5)
    return (place / "stats").read_bytes()


def _servers(_place: Path) -> bytes:
    return servers_file(8080, "/ping", ["vllm-a-0"], ["vllm-b-0"]).text.encode()


def _read_claims(data: bytes, _place: Path) -> object:
    return required(read_claims(data).claims)


def _read_requested(data: bytes, _place: Path) -> object:
    return required(_requested({"dev.packager.record": data.decode()}))


def _read_words(data: bytes, _place: Path) -> object:
    return required(slim_words(data.decode()))


_SLIM = "packager.addons.nodes.slim.record"
HANDMADE: tuple[DocumentKind, ...] = (
    written("claims", "packager.images.claims", _claims, _read_claims, "SCHEMA"),
    written(
        "prices",
        "packager.catalog.price_file",
        _prices,
        in_file("prices/us-east-1.json", lambda path: load_prices(path.parents[1])),
        "SCHEMA",
    ),
    written(
        "deployment-note",
        "packager.addons.deploy.wiring.deployments",
        _deployment,
        _read_deployment,
        "_SCHEMA",
    ),
    written(
        "hub-notes",
        "packager.models.hub_cache",
        _hub_notes,
        in_file(f"models--org--name/packager/{_COMMIT}.json", _read_hub_notes),
        "SCHEMA",
    ),
    written("mount", "packager.addons.nodes.mounts.mounts", _mount, _read_mount),
    written(
        "last-lookups",
        "packager.optimize.cache.lookups",
        _lookups,
        in_file("lookups.json", lambda path: LastLookups(path.parent).last()),
    ),
    written("image-label", "packager.pipeline.record", _image_label, _read_requested),
    written("slim-label", _SLIM, lambda _: slim_label(_slim()).encode(), _read_words, "SCHEMA"),
    # For people: packager reads the label alone.
    written("slim-record", _SLIM, _slim_record, lambda data, _: json.loads(data), "SCHEMA"),
    written(
        "compose-servers",
        "packager.addons.deploy.compose.documents",
        _servers,
        in_file("servers.json", lambda path: Servers(str(path)).named()),
    ),
    written(
        "draft-refresh",
        "packager.addons.server.refresh.journal",
        _refresh,
        in_file("journal.jsonl", lambda path: required(RefreshJournal(path.parent).turns())),
        "SCHEMA",
    ),
    written(
        "cache-statistics",
        "artifact_cache.stats",
        _stats,
        in_file("stats", lambda path: StatsLog(path).totals()),
    ),
)
