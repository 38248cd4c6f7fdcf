"""Entries of the artifact cache in registries and layouts, and back."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from artifact_cache.store import CacheStore
from artifact_cache.stores.archive import Imported
from artifact_cache.trust import Trust, generate_key, load_signer, load_trusted_keys, trust_key
from packager.cli.plugins.contexts import ReadContext
from packager.cli.wiring.opened import open_image
from packager.core.errors import CachedFileChanged, NotFound, PackagerError
from packager.core.image import MEDIA_MANIFEST, Platform
from packager.images.blobs import BlobReader
from packager.images.oci import canonical_json
from packager.images.registry.clients import RegistryClients
from packager.images.registry.failures import ContentMismatch
from packager.images.registry.reader import RegistryReader
from packager.images.target import parse_target
from packager.optimize.cache.oci import export_entry, import_entry, tag_of
from tests.conftest import need
from tests.support.cache_entries import CHECKPOINT, NEURON, files_of
from tests.support.cache_opening import LocalStore
from tests.support.cache_stores import (
    TENSORS,
    built,
    damage_unseen,
    extracted,
    published,
    stored,
    the_blob,
)
from tests.support.cases import cases_of
from tests.support.doubles.registry import FakeRegistry, sha256
from tests.support.doubles.stores import MemoryStore
from tests.support.made_images import blob_in, hasty_clients, layout_sink, registry_sink
from tests.support.processes import run_program
from tests.support.refusals import raises_code

cases = cases_of(__file__)


@dataclass
class Exchange:
    """A store with an entry, a registry, and another store that takes what is there."""

    root: Path
    registry: FakeRegistry
    clients: RegistryClients = field(default_factory=hasty_clients)
    elsewhere: MemoryStore = field(default_factory=MemoryStore)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.store = LocalStore(self.root / "cache")
        published(self.store, self.root / "a", CHECKPOINT)
        self.entry = stored(self.store, CHECKPOINT).entry

    def scratch(self) -> Path:
        made = self.root / f"scratch{next(self.numbers)}"
        made.mkdir()
        return made

    def push(self, host: str = "", store: CacheStore | None = None, kind: Any = CHECKPOINT) -> str:
        """Export to a registry; give the reference by digest."""
        found, place = stored(store or self.store, kind), f"{host or self.registry.host}/team/cache"
        sink = registry_sink(f"{place}:{tag_of(found.entry)}", self.clients)
        return f"{place}@{export_entry(found, sink, self.scratch()).digest}"

    def push_out(self) -> str:
        """Export to a layout; give the name there."""
        place = self.root / "layout"
        export_entry(stored(self.store, CHECKPOINT), layout_sink(f"{place}:x"), self.scratch())
        return f"oci:{place}:x"

    def pull(self, reference: str) -> Imported:
        context = ReadContext(clients=lambda: self.clients)
        return import_entry(
            parse_target(reference),
            self.elsewhere,
            self.scratch(),
            open_image=lambda target: open_image(target, Platform(), context),
            reader=BlobReader([RegistryReader(clients=self.clients)]),
        )

    def arrived(self) -> dict[str, bytes]:
        return extracted(self.elsewhere, CHECKPOINT, self.root / "out")

    def manifest(self) -> dict[str, Any]:
        data = self.registry.manifests["team/cache", tag_of(self.entry)][1]
        return dict(json.loads(data))

    def nothing_came(self) -> bool:
        return self.elsewhere.entries == {} and self.elsewhere.blobs == {}


@pytest.fixture
def exchange(tmp_path: Path) -> Iterator[Exchange]:
    with FakeRegistry() as fake:
        yield Exchange(tmp_path, fake)


def test_the_artifact_is_as_specified(exchange: Exchange) -> None:
    exchange.push()

    manifest = exchange.manifest()
    kind = "application/vnd.packager.cache.entry.v1+json"
    assert manifest["artifactType"] == manifest["config"]["mediaType"] == kind
    types = {layer["mediaType"] for layer in manifest["layers"]}
    assert types == {"application/vnd.packager.cache.blob.v1"}
    assert [layer["annotations"] for layer in manifest["layers"]] == [
        {"org.opencontainers.image.title": name}
        for name in ("config.json", "kernel.so", "rank0/model.bin")
    ]
    entry = json.loads(exchange.registry.blobs["team/cache", manifest["config"]["digest"]])
    assert entry["key"] == exchange.entry.key


def test_the_same_entry_has_the_same_digest(exchange: Exchange) -> None:
    assert exchange.push() == exchange.push()
    patches = exchange.registry.requests("PATCH")
    assert len(patches) == 3  # three files, once; a document comes whole with its PUT


def test_an_entry_goes_through_a_layout(exchange: Exchange) -> None:
    assert exchange.pull(exchange.push_out()).published == (exchange.entry,)
    assert exchange.arrived() == files_of(b"tensors")


def test_an_entry_that_is_damaged_under_its_stamp_is_not_exported(exchange: Exchange) -> None:
    blob = the_blob(exchange.store.root)
    os.utime(blob, (1, 1))
    extracted(exchange.store, CHECKPOINT, exchange.root / "stamping")  # it was right then
    damage_unseen(blob)

    with pytest.raises(CachedFileChanged):
        exchange.push_out()

    assert not (exchange.root / "layout").exists()


def test_signatures_travel_with_the_entry(exchange: Exchange, tmp_path: Path) -> None:
    trust_key(tmp_path / "trusted", generate_key(tmp_path / "key"))
    signed = load_signer(tmp_path / "key").sign(built(tmp_path / "signed", NEURON))
    store = MemoryStore()
    assert store.put(signed, tmp_path / "signed")

    exchange.pull(exchange.push(store=store, kind=NEURON))

    found = stored(exchange.elsewhere, NEURON)
    Trust(load_trusted_keys(tmp_path / "trusted"), require_signed=True).check(found.entry)


def test_empty_files_and_twins_come_back(exchange: Exchange, tmp_path: Path) -> None:
    """Compilers mark what is done with an empty file, and ranks repeat each other's."""
    made = tmp_path / "twins"
    entry = built(made, CHECKPOINT)
    (made / "done").touch()
    (made / "rank1").mkdir()
    (made / "rank1/model.bin").write_bytes(TENSORS)
    model = next(one for one in entry.outputs if one.path == "rank0/model.bin")
    empty = sha256(b"").removeprefix("sha256:")
    done = model.model_copy(update={"path": "done", "sha256": empty, "size": 0})
    twin = model.model_copy(update={"path": "rank1/model.bin"})
    store = MemoryStore()
    store.put(entry.model_copy(update={"outputs": (*entry.outputs, done, twin)}), made)

    exchange.pull(exchange.push(store=store))

    assert exchange.arrived() == {**files_of(b"tensors"), "done": b"", "rank1/model.bin": TENSORS}


@cases("no_entries")
def test_what_is_no_entry_is_refused(exchange: Exchange, change: str, reason: str) -> None:
    exchange.push()
    manifest, registry = exchange.manifest(), exchange.registry
    layers = manifest["layers"]
    document = registry.put("team/cache", b'{"schema":1}')
    changes: dict[str, dict[str, Any]] = {
        "type": {"artifactType": "application/x"},
        "config": {"config": {**manifest["config"], "digest": document, "size": 12}},
        "layer missing": {"layers": layers[:-1]},
        "layer added": {"layers": [*layers, layers[0]]},
        "layer larger": {"layers": [{**layers[0], "size": layers[0]["size"] + 1}, *layers[1:]]},
    }
    data = canonical_json({**manifest, **changes[change]})
    digest = registry.put_manifest("team/cache", "changed", data, MEDIA_MANIFEST)

    with raises_code("NotAnEntry", match=reason):
        exchange.pull(f"{registry.host}/team/cache@{digest}")
    assert exchange.nothing_came()


def test_damaged_layers_are_never_published(exchange: Exchange) -> None:
    reference = exchange.push()
    exchange.registry.blobs["team/cache", sha256(TENSORS)] = b"TENSORS" * 100

    with pytest.raises(ContentMismatch):
        exchange.pull(reference)
    assert exchange.nothing_came()


def test_a_damaged_layout_is_never_published(exchange: Exchange, tmp_path: Path) -> None:
    target = exchange.push_out()
    blob = blob_in(tmp_path / "layout", sha256(TENSORS))
    blob.unlink()
    blob.write_bytes(b"TENSORS" * 100)

    with pytest.raises(PackagerError, match="holds other bytes"):
        exchange.pull(target)
    assert exchange.nothing_came()
    assert extracted(exchange.store, CHECKPOINT, tmp_path / "out") == files_of(b"tensors")


def test_a_missing_artifact_is_explained(exchange: Exchange) -> None:
    with pytest.raises(NotFound):
        exchange.pull(f"{exchange.registry.host}/team/cache:none")


@pytest.mark.live
def test_a_real_registry_and_skopeo_take_it(exchange: Exchange, registry: str) -> None:
    reference, copied = exchange.push(registry), f"oci:{exchange.root / 'copied'}:x"
    run_program(need("skopeo"), "copy", "--src-tls-verify=false", f"docker://{reference}", copied)

    assert exchange.pull(copied).published == (exchange.entry,)
    assert exchange.pull(reference).known == (exchange.entry,)
