"""Pushing: what is sent, what is not, and when the tag moves."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from packager.core.errors import AccessDenied, OutputFailed, ProtocolFailed, Unavailable, UsageError
from packager.core.image import (
    BaseImage,
    Blob,
    ImageRef,
    ImageSpec,
    Inline,
    Platform,
    RuntimeConfig,
)
from packager.core.registry import RegistryTraits
from packager.images.blobs import BlobReader
from packager.images.digest_index import DigestIndex
from packager.images.registry.base import RegistryBase
from packager.images.registry.clients import RegistryClients
from packager.images.registry.credential import Credentials
from packager.images.registry.failures import OverLimits
from packager.images.registry.reader import RegistryReader, registry_blob
from packager.images.registry.sink import RegistrySink
from packager.images.target import parse_registry_target
from packager.images.tee import write_image
from tests.support.cases import cases
from tests.support.doubles.registry import USER, FakeRegistry, sha256
from tests.support.made_images import hasty_clients, image_with, layer_with, registry_sink
from tests.support.refusals import raises_code

WEIGHTS = os.urandom(5_000_000)
CONFIG = b"settings" * 100
KNOWN_OTHER = layer_with(WEIGHTS[::-1], digest=sha256(WEIGHTS[::-1]))
KNOWN = layer_with(WEIGHTS, digest=sha256(WEIGHTS))


def spec(base: BaseImage | None = None) -> ImageSpec:
    weights = layer_with(Blob((Inline(WEIGHTS[:99]), Inline(WEIGHTS[99:]))))
    made = image_with(
        *(base.layers if base else ()),
        *(weights, layer_with(CONFIG, role="config")),
        runtime=RuntimeConfig(cmd=("serve",)),
    )
    return replace(made, base=base) if base else made


@dataclass
class Pushing:
    """Builds of a machine that push into a registry."""

    registry: FakeRegistry
    root: Path
    clients: RegistryClients = field(default_factory=hasty_clients)

    def sink(self, target: str = "model:1") -> RegistrySink:
        return registry_sink(f"{self.registry.host}/{target}", self.clients)

    def push(
        self, sink: RegistrySink | str = "model:1", image: ImageSpec | None = None
    ) -> ImageRef:
        written = write_image(
            image or spec(),
            [self.sink(sink) if isinstance(sink, str) else sink],
            reader=BlobReader([RegistryReader(clients=self.clients)]),
            index=DigestIndex(self.root / "index"),
            sleep=lambda seconds: None,
        )
        return written.refs[0]

    def base(self, name: str = "base:1") -> BaseImage:
        target = parse_registry_target(f"{self.registry.host}/{name}")
        return RegistryBase(clients=self.clients).facts(target, Platform())


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as fake:
        yield fake


@pytest.fixture
def pushing(registry: FakeRegistry, tmp_path: Path) -> Pushing:
    return Pushing(registry, tmp_path)


def test_an_image_is_pushed_and_named(pushing: Pushing) -> None:
    registry, sink = pushing.registry, pushing.sink("team/model:1")

    ref = pushing.push(sink)

    assert ref.target == ref.name == f"{registry.host}/team/model:1"
    assert registry.manifests["team/model", "1"] == registry.manifests["team/model", ref.digest]
    assert registry.blobs["team/model", sha256(WEIGHTS)] == WEIGHTS
    config = sum(map(len, registry.blobs.values())) - len(WEIGHTS) - len(CONFIG)
    assert sink.bytes_sent == len(WEIGHTS) + len(CONFIG) + config


def test_latest_is_the_tag_when_none_is_given(pushing: Pushing) -> None:
    assert pushing.push("model").name == f"{pushing.registry.host}/model:latest"


def test_the_tag_moves_after_everything_else_and_no_upload_is_left_open(pushing: Pushing) -> None:
    pushing.push()

    seen = pushing.registry.seen
    written = [one.path for one in seen if one.method in ("PATCH", "PUT", "POST")]
    assert written[-1] == "/v2/model/manifests/1"
    assert written[-2].startswith("/v2/model/manifests/sha256:")
    assert pushing.registry.uploads == {}


def test_a_blob_that_got_lost_keeps_the_tag_from_moving(pushing: Pushing) -> None:
    sink = pushing.sink()
    publish = sink.publish

    def lose_a_layer_first(image, blobs):  # type: ignore[no-untyped-def]
        del pushing.registry.blobs["model", sha256(CONFIG)]
        return publish(image, blobs)

    sink.publish = lose_a_layer_first  # type: ignore[method-assign]
    with pytest.raises(ProtocolFailed, match=f"has lost blob {sha256(CONFIG)}"):
        pushing.push(sink)

    assert pushing.registry.manifests == {}


def test_a_manifest_that_comes_back_otherwise_keeps_the_tag_from_moving(pushing: Pushing) -> None:
    pushing.registry.quirks.damage_manifests = True

    with pytest.raises(ProtocolFailed):
        pushing.push()

    assert pushing.registry.tagged("model", "1") == ""


def test_a_blob_of_a_wrong_size_is_refused(pushing: Pushing) -> None:
    pushing.registry.blobs["model", sha256(CONFIG)] = b"short"

    with pytest.raises(ProtocolFailed, match="with 5 bytes instead of 800"):
        pushing.sink().writer(layer_with(CONFIG, role="config", digest=sha256(CONFIG)))


def test_an_immutable_tag_may_be_pushed_again_unchanged(pushing: Pushing) -> None:
    pushing.registry.quirks.immutable_tags = True

    first, sent = pushing.push(), len(pushing.registry.requests("PATCH"))

    assert pushing.push() == first
    assert len(pushing.registry.requests("PATCH")) == sent


def test_a_tag_is_written_last_and_its_refusal_leaves_the_layers(pushing: Pushing) -> None:
    pushing.registry.quirks.immutable_tags = True
    pushing.push()
    pushing.registry.seen.clear()

    for other in (KNOWN_OTHER, replace(KNOWN_OTHER, digest="")):
        with pytest.raises(OutputFailed, match=r"tags are immutable there \(TAG_INVALID\)"):
            pushing.push(image=image_with(other))

    writes = [one.path for one in pushing.registry.seen if one.method == "PUT"]
    moves = [at for at, path in enumerate(writes) if path.endswith("/manifests/1")]
    assert len(moves) == 2
    assert any("/manifests/sha256:" in path for path in writes[: moves[0]])
    assert pushing.registry.blobs["model", KNOWN_OTHER.digest]


def test_a_base_of_another_registry_is_copied(pushing: Pushing) -> None:
    with FakeRegistry() as other:
        there = Pushing(other, pushing.root)
        there.push("base:1")
        base = there.base()
        pushing.push("model:1", image_with(*base.layers, base=base))

    assert pushing.registry.blobs["model", sha256(WEIGHTS)] == WEIGHTS
    assert pushing.registry.requests("POST", "mount=") == []


def test_a_blob_can_be_read_from_where_it_was_pushed(pushing: Pushing) -> None:
    sink = pushing.sink()
    assert sink.locate(sha256(WEIGHTS)) is None
    pushing.push(sink)

    located = sink.locate(sha256(WEIGHTS))

    place = f"{pushing.registry.host}/model"
    assert located == registry_blob(place, sha256(WEIGHTS), len(WEIGHTS))
    reader = BlobReader([RegistryReader(clients=pushing.clients)])
    assert b"".join(bytes(chunk) for chunk in reader.chunks(located)) == WEIGHTS


def test_an_interrupted_push_cancels_its_upload(pushing: Pushing) -> None:
    registry = pushing.registry
    main, once = threading.get_ident(), threading.Lock()

    class SlowReader(BlobReader):
        def chunks(self, blob: Blob) -> Iterator[memoryview]:
            for _ in range(400):
                yield memoryview(WEIGHTS[:10_000])
                time.sleep(0.05)
                if registry.requests("PATCH") and once.acquire(blocking=False):
                    signal.pthread_kill(main, signal.SIGINT)

    index = DigestIndex(pushing.root / "index")
    with pytest.raises(KeyboardInterrupt):
        write_image(image_with(KNOWN), [pushing.sink()], reader=SlowReader(), index=index)

    assert registry.requests("PATCH")[0].received < len(WEIGHTS) / 2
    assert registry.uploads == {}
    assert registry.manifests == {}


def test_a_missing_right_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    forbidden = frozenset({("model", "push")})
    clients = RegistryClients(find_credentials=lambda host: Credentials(user=USER, password="no"))
    with FakeRegistry(auth="bearer", forbidden=forbidden) as registry:
        with pytest.raises(AccessDenied, match="to push to 'model'"):
            Pushing(registry, tmp_path, clients).push()
        assert registry.requests("PATCH") == []


def test_an_unreachable_registry_is_refused_before_anything_is_read(pushing: Pushing) -> None:
    sink = registry_sink("no-such-host.invalid/model:1", pushing.clients)

    with pytest.raises(Unavailable, match=r"no-such-host\.invalid"):
        pushing.push(sink)


@cases("an_output_of_no_use_is_refused")
def test_an_output_of_no_use_is_refused(target: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        RegistrySink(parse_registry_target(target))

    assert hint in refused.value.hint


def test_a_base_index_is_resolved_for_the_platform(pushing: Pushing) -> None:
    registry, ref = pushing.registry, pushing.push("base:1")
    media_type, manifest = registry.manifests["base", "1"]
    entry = {"mediaType": media_type, "digest": ref.digest, "size": len(manifest)}
    arm, amd = ({"os": "linux", "architecture": name} for name in ("arm64", "amd64"))
    entries = [{**entry, "digest": sha256(b"arm"), "platform": arm}, {**entry, "platform": amd}]
    index = json.dumps({"schemaVersion": 2, "manifests": entries}).encode()
    registry.put_manifest("base", "multi", index, "application/vnd.oci.image.index.v1+json")

    base = pushing.base("base:multi")

    assert (base.digest, base.reference) == (ref.digest, f"{registry.host}/base:multi")
    assert [layer.digest for layer in base.layers] == [sha256(WEIGHTS), sha256(CONFIG)]
    assert {layer.mount_from for layer in base.layers} == {f"{registry.host}/base"}
    assert registry.requests("GET", sha256(WEIGHTS)) == []


@cases("a_base_that_is_no_image_is_refused")
def test_a_base_that_is_no_image_is_refused(pushing: Pushing, document: bytes) -> None:
    registry = pushing.registry
    registry.put_manifest("base", "1", document, "application/vnd.oci.image.manifest.v1+json")

    with pytest.raises(ProtocolFailed, match=f"'{registry.host}/base:1'"):
        pushing.base()


def knowing(traits: RegistryTraits) -> RegistryClients:
    return RegistryClients(find_credentials=lambda host: None, traits_of=lambda host: traits)


def test_an_image_over_the_limits_is_refused_first(registry: FakeRegistry, tmp_path: Path) -> None:
    limits = RegistryTraits(name="Small", layer_bytes=1_000_000, layers=1)

    with pytest.raises(OverLimits) as refused:
        Pushing(registry, tmp_path, knowing(limits)).push()

    codes = [finding.code for finding in refused.value.findings]
    assert codes == ["registry-layer-size", "registry-layers"]
    assert "a layer has 5.0 MB (weights), Small takes 1.0 MB" in refused.value.message
    assert "the image has 2 layers, Small takes 1" in refused.value.message
    assert registry.seen == []


def test_a_time_limit_that_may_pass_is_a_warning(pushing: Pushing) -> None:
    hasty = knowing(RegistryTraits(name="Hasty", upload_s=0.1))
    warnings: list[str] = []
    target = f"{pushing.registry.host}/model:1"

    pushing.push(registry_sink(target, hasty, on_warning=warnings.append))

    [warning] = warnings
    assert "Hasty cuts an upload off" in warning
    assert "--max-layer-size" in warning


def test_a_repository_that_must_be_made_first_is_named_with_the_command(
    registry: FakeRegistry, tmp_path: Path
) -> None:
    strict = RegistryTraits(name="Strict", create="make-repository {repository}")
    registry.quirks.repositories = frozenset({"other"})

    with raises_code("RepositoryMissing", match=r"no repository 'model' \(NAME_UNKNOWN\)") as told:
        Pushing(registry, tmp_path, knowing(strict)).push()

    assert told.value.hint == "make-repository model"
