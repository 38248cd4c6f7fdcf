"""Pushing: what is sent, what is not, and when the tag moves."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from packager.core.image import (
    BaseImage,
    Blob,
    ImageRef,
    ImageSpec,
    Inline,
    Layer,
    Platform,
    RuntimeConfig,
)
from packager.core.registry import RegistryTraits
from packager.errors import AccessDenied, ProtocolFailed, Unavailable, UsageError
from packager.images.blobs import BlobReader
from packager.images.digest_index import DigestIndex
from packager.images.oci import scratch
from packager.images.registry.base import RegistryBase
from packager.images.registry.clients import RegistryClients
from packager.images.registry.credential import Credentials
from packager.images.registry.failures import OverLimits, RepositoryMissing
from packager.images.registry.reader import RegistryReader, registry_blob
from packager.images.registry.sink import RegistrySink
from packager.images.registry.transport import Transport
from packager.images.target import parse_registry_target
from packager.images.tee import write_image
from tests.support.doubles.registry import USER, FakeRegistry, sha256

WEIGHTS = os.urandom(5_000_000)
CONFIG = b"settings" * 100


@pytest.fixture
def clients() -> RegistryClients:
    return RegistryClients(
        find_credentials=lambda host: None, transport=Transport(sleep=lambda seconds: None)
    )


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as fake:
        yield fake


def spec(base: BaseImage | None = None) -> ImageSpec:
    base = base or scratch(Platform())
    ours = (
        Layer(role="weights", blob=Blob((Inline(WEIGHTS[:99]), Inline(WEIGHTS[99:])))),
        Layer(role="config", blob=Blob((Inline(CONFIG),))),
    )
    return ImageSpec(
        base=base,
        layers=(*base.layers, *ours),
        runtime=RuntimeConfig(cmd=("serve",)),
        created="1970-01-01T00:00:00Z",
    )


def push(
    sink: RegistrySink, clients: RegistryClients, tmp_path: Path, image: ImageSpec | None = None
) -> ImageRef:
    written = write_image(
        image or spec(),
        [sink],
        reader=BlobReader([RegistryReader(clients=clients)]),
        index=DigestIndex(tmp_path / "index"),
        sleep=lambda seconds: None,
    )
    return written.refs[0]


def test_an_image_is_pushed_and_named(
    registry: FakeRegistry, clients: RegistryClients, tmp_path: Path
) -> None:
    target = f"{registry.host}/team/model:1"
    sink = RegistrySink(parse_registry_target(target), clients=clients)

    ref = push(sink, clients, tmp_path)

    assert (ref.target, ref.name) == (target, target)
    assert registry.manifests["team/model", "1"] == registry.manifests["team/model", ref.digest]
    assert registry.blobs["team/model", sha256(WEIGHTS)] == WEIGHTS
    config = sum(map(len, registry.blobs.values())) - len(WEIGHTS) - len(CONFIG)
    assert sink.bytes_sent == len(WEIGHTS) + len(CONFIG) + config


def test_latest_is_the_tag_when_none_is_given(
    registry: FakeRegistry, clients: RegistryClients, tmp_path: Path
) -> None:
    sink = RegistrySink(parse_registry_target(f"{registry.host}/model"), clients=clients)

    assert push(sink, clients, tmp_path).name == f"{registry.host}/model:latest"


def test_the_tag_moves_after_everything_else(
    registry: FakeRegistry, clients: RegistryClients, tmp_path: Path
) -> None:
    push(
        RegistrySink(parse_registry_target(f"{registry.host}/model:1"), clients=clients),
        clients,
        tmp_path,
    )

    written = [seen.path for seen in registry.seen if seen.method in ("PATCH", "PUT", "POST")]
    assert written[-1] == "/v2/model/manifests/1"
    assert written[-2].startswith("/v2/model/manifests/sha256:")


def test_a_blob_that_got_lost_keeps_the_tag_from_moving(
    registry: FakeRegistry, clients: RegistryClients, tmp_path: Path
) -> None:
    sink = RegistrySink(parse_registry_target(f"{registry.host}/model:1"), clients=clients)
    publish = sink.publish

    def lose_a_layer_first(image, blobs):  # type: ignore[no-untyped-def]
        del registry.blobs["model", sha256(CONFIG)]
        return publish(image, blobs)

    sink.publish = lose_a_layer_first  # type: ignore[method-assign]
    with pytest.raises(ProtocolFailed, match=f"has lost blob {sha256(CONFIG)}"):
        push(sink, clients, tmp_path)

    assert registry.manifests == {}


def test_a_manifest_that_comes_back_otherwise_keeps_the_tag_from_moving(
    clients: RegistryClients, tmp_path: Path
) -> None:
    with FakeRegistry(damage_manifests=True) as registry:
        target = parse_registry_target(f"{registry.host}/models/tiny:1")
        with pytest.raises(ProtocolFailed):
            push(RegistrySink(target, clients=clients), clients, tmp_path)

        assert registry.tagged("models/tiny", "1") == ""


def test_a_blob_of_a_wrong_size_is_refused(
    registry: FakeRegistry, clients: RegistryClients, tmp_path: Path
) -> None:
    registry.blobs["model", sha256(CONFIG)] = b"short"
    layer = Layer(role="config", blob=Blob((Inline(CONFIG),)), digest=sha256(CONFIG))

    with pytest.raises(ProtocolFailed, match="with 5 bytes instead of 800"):
        RegistrySink(parse_registry_target(f"{registry.host}/model:1"), clients=clients).writer(
            layer
        )


def test_pushing_again_sends_nothing(
    registry: FakeRegistry, clients: RegistryClients, tmp_path: Path
) -> None:
    image = ImageSpec(
        base=scratch(Platform()),
        layers=(Layer(role="weights", blob=Blob((Inline(WEIGHTS),)), digest=sha256(WEIGHTS)),),
        runtime=RuntimeConfig(),
        created="1970-01-01T00:00:00Z",
    )
    push(
        RegistrySink(parse_registry_target(f"{registry.host}/model:1"), clients=clients),
        clients,
        tmp_path,
        image,
    )
    again = RegistrySink(parse_registry_target(f"{registry.host}/model:1"), clients=clients)
    push(again, clients, tmp_path, image)

    assert again.bytes_sent == 0
    assert len(registry.requests("PATCH")) == 2  # layer and configuration, the first time


def test_an_immutable_tag_may_be_pushed_again_unchanged(
    registry: FakeRegistry, clients: RegistryClients, tmp_path: Path
) -> None:
    registry.quirks.immutable_tags = True
    first = push(
        RegistrySink(parse_registry_target(f"{registry.host}/model:1"), clients=clients),
        clients,
        tmp_path,
    )
    second = push(
        RegistrySink(parse_registry_target(f"{registry.host}/model:1"), clients=clients),
        clients,
        tmp_path,
    )

    assert first == second
    assert len(registry.requests("PUT", "/manifests/1")) == 1


@pytest.mark.parametrize("mounts", [True, False], ids=["mounts", "refuses mounts"])
def test_a_base_of_the_same_registry_is_mounted_or_copied(
    registry: FakeRegistry, clients: RegistryClients, tmp_path: Path, mounts: bool
) -> None:
    push(
        RegistrySink(parse_registry_target(f"{registry.host}/base:1"), clients=clients),
        clients,
        tmp_path,
    )
    registry.quirks.mounts = mounts
    base = RegistryBase(clients=clients).facts(
        parse_registry_target(f"{registry.host}/base:1"), Platform()
    )
    image = ImageSpec(
        base=base, layers=base.layers, runtime=RuntimeConfig(), created="1970-01-01T00:00:00Z"
    )
    sink = RegistrySink(parse_registry_target(f"{registry.host}/model:1"), clients=clients)

    push(sink, clients, tmp_path, image)

    assert registry.blobs["model", sha256(WEIGHTS)] == WEIGHTS
    assert (sink.bytes_sent > len(WEIGHTS)) is not mounts


def test_a_base_of_another_registry_is_copied(
    registry: FakeRegistry, clients: RegistryClients, tmp_path: Path
) -> None:
    with FakeRegistry() as other:
        push(
            RegistrySink(parse_registry_target(f"{other.host}/base:1"), clients=clients),
            clients,
            tmp_path,
        )
        base = RegistryBase(clients=clients).facts(
            parse_registry_target(f"{other.host}/base:1"), Platform()
        )
        image = ImageSpec(
            base=base, layers=base.layers, runtime=RuntimeConfig(), created="1970-01-01T00:00:00Z"
        )
        push(
            RegistrySink(parse_registry_target(f"{registry.host}/model:1"), clients=clients),
            clients,
            tmp_path,
            image,
        )

    assert registry.blobs["model", sha256(WEIGHTS)] == WEIGHTS
    assert registry.requests("POST", "mount=") == []


def test_a_blob_can_be_read_from_where_it_was_pushed(
    registry: FakeRegistry, clients: RegistryClients, tmp_path: Path
) -> None:
    sink = RegistrySink(parse_registry_target(f"{registry.host}/model:1"), clients=clients)
    assert sink.locate(sha256(WEIGHTS)) is None
    push(sink, clients, tmp_path)

    located = sink.locate(sha256(WEIGHTS))

    assert located == registry_blob(f"{registry.host}/model", sha256(WEIGHTS), len(WEIGHTS))
    reader = BlobReader([RegistryReader(clients=clients)])
    assert b"".join(bytes(chunk) for chunk in reader.chunks(located)) == WEIGHTS


@pytest.mark.parametrize(
    "quirks",
    [{"patch_resets": 1}, {"patch_answers": [503]}, {"commit_statuses": [500]}],
    ids=["reset", "503", "failed commit"],
)
def test_an_interrupted_layer_is_sent_again(
    clients: RegistryClients, tmp_path: Path, quirks: dict[str, object]
) -> None:
    with FakeRegistry(**quirks) as registry:
        push(
            RegistrySink(parse_registry_target(f"{registry.host}/model:1"), clients=clients),
            clients,
            tmp_path,
        )

    assert registry.blobs["model", sha256(WEIGHTS)] == WEIGHTS
    assert len(registry.requests("PATCH")) == 4  # two layers, one of them twice, configuration


def test_an_interrupted_configuration_is_sent_again(
    registry: FakeRegistry, clients: RegistryClients, tmp_path: Path
) -> None:
    sink = RegistrySink(parse_registry_target(f"{registry.host}/model:1"), clients=clients)
    publish = sink.publish

    def trouble_first(image, blobs):  # type: ignore[no-untyped-def]
        registry.quirks.commit_statuses = [500]
        return publish(image, blobs)

    sink.publish = trouble_first  # type: ignore[method-assign]

    push(sink, clients, tmp_path)

    assert len(registry.requests("PATCH")) == 4


def test_no_upload_is_left_open(
    registry: FakeRegistry, clients: RegistryClients, tmp_path: Path
) -> None:
    push(
        RegistrySink(parse_registry_target(f"{registry.host}/model:1"), clients=clients),
        clients,
        tmp_path,
    )

    assert registry.uploads == {}


def test_an_interrupted_push_cancels_its_upload(
    registry: FakeRegistry, clients: RegistryClients, tmp_path: Path
) -> None:
    main, once = threading.get_ident(), threading.Lock()

    class SlowReader(BlobReader):
        def chunks(self, blob: Blob) -> Iterator[memoryview]:
            for _ in range(400):
                yield memoryview(WEIGHTS[:10_000])
                time.sleep(0.05)
                if registry.requests("PATCH") and once.acquire(blocking=False):
                    signal.pthread_kill(main, signal.SIGINT)

    layer = Layer(role="weights", blob=Blob((Inline(WEIGHTS),)), digest=sha256(WEIGHTS))
    image = replace(spec(), layers=(layer,))
    sink = RegistrySink(parse_registry_target(f"{registry.host}/model:1"), clients=clients)
    with pytest.raises(KeyboardInterrupt):
        write_image(image, [sink], reader=SlowReader(), index=DigestIndex(tmp_path / "index"))

    assert registry.requests("PATCH")[0].received < len(WEIGHTS) / 2
    assert registry.uploads == {}
    assert registry.manifests == {}


def test_a_missing_right_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    forbidden = frozenset({("model", "push")})
    clients = RegistryClients(find_credentials=lambda host: Credentials(user=USER, password="no"))
    with FakeRegistry(auth="bearer", forbidden=forbidden) as registry:
        with pytest.raises(AccessDenied, match="to push to 'model'"):
            push(
                RegistrySink(parse_registry_target(f"{registry.host}/model:1"), clients=clients),
                clients,
                tmp_path,
            )
        assert registry.requests("PATCH") == []


def test_an_unreachable_registry_is_refused_before_anything_is_read(
    clients: RegistryClients, tmp_path: Path
) -> None:
    sink = RegistrySink(parse_registry_target("no-such-host.invalid/model:1"), clients=clients)

    with pytest.raises(Unavailable, match=r"no-such-host\.invalid"):
        push(sink, clients, tmp_path)


def test_an_output_has_no_digest() -> None:
    with pytest.raises(UsageError) as refused:
        RegistrySink(parse_registry_target(f"r.example/model:1@{sha256(b'')}"))

    assert refused.value.hint == "write r.example/model:1"


def test_an_output_without_a_host_does_not_go_to_docker_hub_unasked() -> None:
    with pytest.raises(UsageError) as refused:
        RegistrySink(parse_registry_target("model:1"))

    assert "docker:model:1 for the Docker Engine" in refused.value.hint


def test_a_base_index_is_resolved_for_the_platform(
    registry: FakeRegistry, clients: RegistryClients, tmp_path: Path
) -> None:
    ref = push(
        RegistrySink(parse_registry_target(f"{registry.host}/base:1"), clients=clients),
        clients,
        tmp_path,
    )
    media_type, manifest = registry.manifests["base", "1"]
    entry = {"mediaType": media_type, "digest": ref.digest, "size": len(manifest)}
    index = {
        "schemaVersion": 2,
        "manifests": [
            {
                **entry,
                "digest": sha256(b"arm"),
                "platform": {"os": "linux", "architecture": "arm64"},
            },
            {**entry, "platform": {"os": "linux", "architecture": "amd64"}},
        ],
    }
    registry.put_manifest(
        "base", "multi", json.dumps(index).encode(), "application/vnd.oci.image.index.v1+json"
    )

    base = RegistryBase(clients=clients).facts(
        parse_registry_target(f"{registry.host}/base:multi"), Platform()
    )

    assert (base.digest, base.reference) == (ref.digest, f"{registry.host}/base:multi")
    assert [layer.digest for layer in base.layers] == [sha256(WEIGHTS), sha256(CONFIG)]
    assert {layer.mount_from for layer in base.layers} == {f"{registry.host}/base"}
    assert registry.requests("GET", sha256(WEIGHTS)) == []


@pytest.mark.parametrize(
    "document",
    [b"no json", b"[]", b'{"manifests": [], "layers": []}', b'{"layers": []}'],
    ids=["no JSON", "a list", "manifest and index", "no configuration"],
)
def test_a_base_that_is_no_image_is_refused(
    registry: FakeRegistry, clients: RegistryClients, document: bytes
) -> None:
    registry.put_manifest("base", "1", document, "application/vnd.oci.image.manifest.v1+json")

    with pytest.raises(ProtocolFailed, match=f"'{registry.host}/base:1'"):
        RegistryBase(clients=clients).facts(
            parse_registry_target(f"{registry.host}/base:1"), Platform()
        )


def test_an_image_over_the_limits_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    limits = RegistryTraits(name="Small", layer_bytes=1_000_000, layers=1)
    with FakeRegistry() as registry:
        clients = RegistryClients(find_credentials=lambda host: None, traits_of=lambda host: limits)
        with pytest.raises(OverLimits) as refused:
            push(
                RegistrySink(parse_registry_target(f"{registry.host}/model:1"), clients=clients),
                clients,
                tmp_path,
            )

    assert [finding.code for finding in refused.value.findings] == [
        "registry-layer-size",
        "registry-layers",
    ]
    assert "a layer has 5.0 MB (weights), Small takes 1.0 MB" in refused.value.message
    assert "the image has 2 layers, Small takes 1" in refused.value.message
    assert registry.seen == []


def test_a_time_limit_that_may_pass_is_a_warning(registry: FakeRegistry, tmp_path: Path) -> None:
    hasty = RegistryTraits(name="Hasty", upload_s=0.1)
    clients = RegistryClients(find_credentials=lambda host: None, traits_of=lambda host: hasty)
    warnings: list[str] = []
    sink = RegistrySink(
        parse_registry_target(f"{registry.host}/model:1"),
        clients=clients,
        on_warning=warnings.append,
    )

    push(sink, clients, tmp_path)

    assert len(warnings) == 1
    assert "Hasty cuts an upload off" in warnings[0]
    assert "--max-layer-size" in warnings[0]


def test_a_repository_that_must_be_made_first_is_named_with_the_command(
    registry: FakeRegistry, tmp_path: Path
) -> None:
    strict = RegistryTraits(name="Strict", create="make-repository {repository}")
    clients = RegistryClients(find_credentials=lambda host: None, traits_of=lambda host: strict)
    registry.quirks.repositories = frozenset({"other"})

    with pytest.raises(RepositoryMissing, match=r"no repository 'model' \(NAME_UNKNOWN\)") as told:
        push(
            RegistrySink(parse_registry_target(f"{registry.host}/model:1"), clients=clients),
            clients,
            tmp_path,
        )

    assert told.value.hint == "make-repository model"
