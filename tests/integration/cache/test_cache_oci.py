"""Entries of the artifact cache in registries and layouts, and back."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from artifact_cache.store import StoredEntry, address_of
from artifact_cache.stores.archive import Imported
from artifact_cache.trust import Trust, generate_key, load_signer, load_trusted_keys, trust_key
from packager.cache.oci import NotAnEntry, export_entry, import_entry, tag_of
from packager.core.image import MEDIA_MANIFEST, Platform
from packager.errors import CachedFileChanged, NotFound, PackagerError
from packager.images.blobs import BlobReader
from packager.images.layout.sink import LayoutSink
from packager.images.oci import canonical_json
from packager.images.registry.clients import RegistryClients
from packager.images.registry.failures import ContentMismatch
from packager.images.registry.reader import RegistryReader
from packager.images.registry.sink import RegistrySink
from packager.images.registry.transport import Transport
from packager.images.target import parse_layout_target, parse_registry_target, parse_target
from packager.plugins.contexts import ReadContext
from packager.wiring.opened import open_image
from tests.conftest import need
from tests.support.cache_entries import CHECKPOINT, NEURON, files_of
from tests.support.cache_opening import LocalStore
from tests.support.doubles.registry import FakeRegistry, sha256
from tests.support.doubles.stores import MemoryStore
from tests.unit.artifact_cache.test_stores import built, extracted, published


@pytest.fixture
def clients() -> RegistryClients:
    return RegistryClients(
        find_credentials=lambda host: None, transport=Transport(sleep=lambda seconds: None)
    )


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with FakeRegistry() as made:
        yield made


@pytest.fixture
def stored(tmp_path: Path) -> StoredEntry:
    store = LocalStore(tmp_path / "cache")
    published(store, tmp_path / "a", CHECKPOINT)
    found = store.get(address_of(CHECKPOINT))
    assert found is not None
    return found


def scratch_in(tmp_path: Path, name: str) -> Path:
    (tmp_path / name).mkdir()
    return tmp_path / name


def pushed(
    stored: StoredEntry, host: str, clients: RegistryClients, tmp_path: Path, name: str = "push"
) -> str:
    """Export to a registry; give the reference by digest."""
    target = f"{host}/team/cache:{tag_of(stored.entry)}"
    sink = RegistrySink(parse_registry_target(target), clients=clients)
    ref = export_entry(stored, sink, scratch_in(tmp_path, name))
    return f"{host}/team/cache@{ref.digest}"


def pulled(
    reference: str, store: MemoryStore, clients: RegistryClients, tmp_path: Path, name: str = "pull"
) -> Imported:
    reader = BlobReader([RegistryReader(clients=clients)])
    into = scratch_in(tmp_path, name)
    context = ReadContext(clients=lambda: clients)
    return import_entry(
        parse_target(reference),
        store,
        into,
        open_image=lambda target: open_image(target, Platform(), context),
        reader=reader,
    )


def test_an_entry_goes_through_a_registry(
    stored: StoredEntry, fake: FakeRegistry, clients: RegistryClients, tmp_path: Path
) -> None:
    pushed(stored, fake.host, clients, tmp_path)
    tag = f"quantized-checkpoint-{stored.entry.key[:16]}"
    elsewhere = MemoryStore()

    done = pulled(f"{fake.host}/team/cache:{tag}", elsewhere, clients, tmp_path)

    assert done == Imported(published=(stored.entry,), known=())
    assert extracted(elsewhere, CHECKPOINT, tmp_path / "out") == files_of(b"tensors")


def test_the_artifact_is_as_specified(
    stored: StoredEntry, fake: FakeRegistry, clients: RegistryClients, tmp_path: Path
) -> None:
    pushed(stored, fake.host, clients, tmp_path)

    _, data = fake.manifests["team/cache", tag_of(stored.entry)]
    manifest = json.loads(data)
    kind = "application/vnd.packager.cache.entry.v1+json"
    assert manifest["artifactType"] == manifest["config"]["mediaType"] == kind
    assert {layer["mediaType"] for layer in manifest["layers"]} == {
        "application/vnd.packager.cache.blob.v1"
    }
    assert [layer["annotations"] for layer in manifest["layers"]] == [
        {"org.opencontainers.image.title": "config.json"},
        {"org.opencontainers.image.title": "kernel.so"},
        {"org.opencontainers.image.title": "rank0/model.bin"},
    ]
    entry = json.loads(fake.blobs["team/cache", manifest["config"]["digest"]])
    assert entry["key"] == stored.entry.key


def test_the_same_entry_has_the_same_digest(
    stored: StoredEntry, fake: FakeRegistry, clients: RegistryClients, tmp_path: Path
) -> None:
    first = pushed(stored, fake.host, clients, tmp_path)

    assert pushed(stored, fake.host, clients, tmp_path, "again") == first
    assert len(fake.requests("PATCH")) == 4  # three files and the document, once


def test_an_entry_goes_through_a_layout(
    stored: StoredEntry, clients: RegistryClients, tmp_path: Path
) -> None:
    target = f"oci:{tmp_path / 'layout'}:{tag_of(stored.entry)}"
    export_entry(stored, LayoutSink(parse_layout_target(target)), scratch_in(tmp_path, "push"))
    elsewhere = MemoryStore()

    assert pulled(target, elsewhere, clients, tmp_path).published == (stored.entry,)
    assert extracted(elsewhere, CHECKPOINT, tmp_path / "out") == files_of(b"tensors")


def test_an_entry_that_is_damaged_under_its_stamp_is_not_exported(
    stored: StoredEntry, tmp_path: Path
) -> None:
    store = LocalStore(tmp_path / "cache")
    blob = max(store.root.glob("cas/*/*/*"), key=lambda path: path.stat().st_size)
    os.utime(blob, (1, 1))
    scratch = scratch_in(tmp_path, "stamping")
    stored.extract(scratch)  # it was right then
    blob.chmod(0o644)
    blob.write_bytes(b"TENSORS" * 100)
    blob.chmod(0o444)
    os.utime(blob, (1, 1))

    with pytest.raises(CachedFileChanged):
        export_entry(
            stored,
            LayoutSink(parse_layout_target(f"oci:{tmp_path / 'out'}")),
            scratch_in(tmp_path, "push"),
        )

    assert not (tmp_path / "out").exists()


def test_signatures_travel_with_the_entry(
    fake: FakeRegistry, clients: RegistryClients, tmp_path: Path
) -> None:
    trust_key(tmp_path / "trusted", generate_key(tmp_path / "key"))
    signed = load_signer(tmp_path / "key").sign(built(tmp_path / "a", NEURON))
    store = MemoryStore()
    assert store.put(signed, tmp_path / "a")
    stored = store.get(address_of(NEURON))
    assert stored is not None
    elsewhere = MemoryStore()

    pulled(pushed(stored, fake.host, clients, tmp_path), elsewhere, clients, tmp_path)

    found = elsewhere.get(address_of(NEURON))
    assert found is not None
    Trust(load_trusted_keys(tmp_path / "trusted"), require_signed=True).check(found.entry)


def test_empty_files_and_twins_come_back(
    fake: FakeRegistry, clients: RegistryClients, tmp_path: Path
) -> None:
    """Compilers mark what is done with an empty file, and ranks repeat each other's."""
    entry = built(tmp_path / "a", CHECKPOINT)
    (tmp_path / "a/done").touch()
    (tmp_path / "a/rank1").mkdir()
    (tmp_path / "a/rank1/model.bin").write_bytes(b"tensors" * 100)
    model = next(one for one in entry.outputs if one.path == "rank0/model.bin")
    empty = sha256(b"").removeprefix("sha256:")
    done = model.model_copy(update={"path": "done", "sha256": empty, "size": 0})
    twin = model.model_copy(update={"path": "rank1/model.bin"})
    store = MemoryStore()
    outputs = (*entry.outputs, done, twin)
    store.put(entry.model_copy(update={"outputs": outputs}), tmp_path / "a")
    stored = store.get(address_of(CHECKPOINT))
    assert stored is not None
    elsewhere = MemoryStore()

    pulled(pushed(stored, fake.host, clients, tmp_path), elsewhere, clients, tmp_path)

    assert extracted(elsewhere, CHECKPOINT, tmp_path / "out") == {
        **files_of(b"tensors"),
        "done": b"",
        "rank1/model.bin": b"tensors" * 100,
    }


def changed_manifest(fake: FakeRegistry, reference: str, **changes: Any) -> str:
    """Put another manifest beside the one that was pushed."""
    manifest = json.loads(fake.manifests["team/cache", reference.partition("@")[2]][1])
    data = canonical_json({**manifest, **changes})
    digest = fake.put_manifest("team/cache", "changed", data, MEDIA_MANIFEST)
    return f"{fake.host}/team/cache@{digest}"


def test_what_is_no_entry_is_refused(
    stored: StoredEntry, fake: FakeRegistry, clients: RegistryClients, tmp_path: Path
) -> None:
    good = pushed(stored, fake.host, clients, tmp_path)
    layers = json.loads(fake.manifests["team/cache", good.partition("@")[2]][1])["layers"]
    document = fake.put("team/cache", b'{"schema":1}')
    config = {
        "mediaType": "application/vnd.packager.cache.entry.v1+json",
        "digest": document,
        "size": 12,
    }
    larger = {**layers[0], "size": layers[0]["size"] + 1}
    cases: dict[str, dict[str, Any]] = {
        "it is 'application/x'": {"artifactType": "application/x"},
        "its bytes have changed": {"config": config},
        "its layers are not the files": {"layers": layers[:-1]},
        "its layers are not the files ": {"layers": [*layers, layers[0]]},
        "its layers are not the files  ": {"layers": [larger, *layers[1:]]},
    }
    for number, (reason, changes) in enumerate(cases.items()):
        store = MemoryStore()
        with pytest.raises(NotAnEntry, match=reason.strip()):
            reference = changed_manifest(fake, good, **changes)
            pulled(reference, store, clients, tmp_path, f"pull{number}")
        assert store.entries == {}


def test_damaged_layers_are_never_published(
    stored: StoredEntry, fake: FakeRegistry, clients: RegistryClients, tmp_path: Path
) -> None:
    reference = pushed(stored, fake.host, clients, tmp_path)
    store = MemoryStore()
    fake.blobs["team/cache", sha256(b"tensors" * 100)] = b"TENSORS" * 100

    with pytest.raises(ContentMismatch):
        pulled(reference, store, clients, tmp_path)
    assert store.entries == {}
    assert store.blobs == {}


def test_a_damaged_layout_is_never_published(
    stored: StoredEntry, clients: RegistryClients, tmp_path: Path
) -> None:
    target = f"oci:{tmp_path / 'layout'}:x"
    export_entry(stored, LayoutSink(parse_layout_target(target)), scratch_in(tmp_path, "push"))
    name = sha256(b"tensors" * 100).removeprefix("sha256:")
    blob = tmp_path / "layout/blobs/sha256" / name
    blob.unlink()
    blob.write_bytes(b"TENSORS" * 100)
    store = MemoryStore()

    with pytest.raises(PackagerError, match="holds other bytes"):
        pulled(target, store, clients, tmp_path)
    assert store.entries == {}
    assert extracted(LocalStore(tmp_path / "cache"), CHECKPOINT, tmp_path / "out") == files_of(
        b"tensors"
    )


def test_a_missing_artifact_is_explained(
    fake: FakeRegistry, clients: RegistryClients, tmp_path: Path
) -> None:
    with pytest.raises(NotFound):
        pulled(f"{fake.host}/team/cache:none", MemoryStore(), clients, tmp_path)


@pytest.mark.live
def test_a_real_registry_and_skopeo_take_it(
    stored: StoredEntry, registry: str, clients: RegistryClients, tmp_path: Path
) -> None:
    reference = pushed(stored, registry, clients, tmp_path)
    subprocess.run(
        [
            need("skopeo"),
            "copy",
            "--src-tls-verify=false",
            f"docker://{reference}",
            f"oci:{tmp_path / 'copied'}:x",
        ],
        check=True,
        capture_output=True,
    )
    elsewhere = MemoryStore()

    assert pulled(f"oci:{tmp_path / 'copied'}:x", elsewhere, clients, tmp_path).published == (
        stored.entry,
    )
    assert pulled(reference, elsewhere, clients, tmp_path, "again").known == (stored.entry,)
