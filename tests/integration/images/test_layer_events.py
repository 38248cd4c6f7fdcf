"""What is reported of layers while they are pushed."""

from __future__ import annotations

import hashlib
from pathlib import Path

from packager.core.events import Event, ImageEvent, LayerEvent
from packager.core.image import Blob, ImageSpec, Inline, Layer, Platform, RuntimeConfig
from packager.images.blobs import BlobReader
from packager.images.digest_index import DigestIndex
from packager.images.oci import scratch
from packager.images.registry.clients import RegistryClients
from packager.images.registry.sink import RegistrySink
from packager.images.target import parse_registry_target
from packager.images.tee import write_image
from tests.support.doubles.registry import FakeRegistry

DATA = (b"base" * 1000, b"weights" * 1000)


def test_mounted_known_and_streamed_layers_are_told_apart(tmp_path: Path) -> None:
    with FakeRegistry() as registry:
        clients = RegistryClients()
        digests = ["sha256:" + hashlib.sha256(data).hexdigest() for data in DATA]
        base = Layer(
            role="base",
            blob=Blob((Inline(DATA[0]),)),
            digest=digests[0],
            mount_from=f"{registry.host}/base",
        )
        weights = Layer(role="weights", blob=Blob((Inline(DATA[1]),)))
        registry.blobs["base", digests[0]] = DATA[0]

        def push(tag: str) -> dict[str, tuple[str, str]]:
            events: list[Event] = []
            write_image(
                ImageSpec(
                    base=scratch(Platform()),
                    layers=(base, weights),
                    runtime=RuntimeConfig(),
                    created="",
                ),
                [
                    RegistrySink(
                        parse_registry_target(f"{registry.host}/model:{tag}"), clients=clients
                    )
                ],
                reader=BlobReader(),
                index=DigestIndex(tmp_path / "index"),
                on_event=events.append,
            )
            sizes = [event for event in events if isinstance(event, ImageEvent)]
            assert sizes == [ImageEvent(layers=(4000, 7000))]
            layers = [event for event in events if isinstance(event, LayerEvent)]
            return {event.label: (event.state, event.digest) for event in layers}

        first, again = push("1"), push("2")

    assert first == {"base": ("mounted", digests[0]), "weights": ("written", digests[1])}
    assert again == {"base": ("known", digests[0]), "weights": ("known", digests[1])}
