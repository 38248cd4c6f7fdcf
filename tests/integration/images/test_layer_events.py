"""What is reported of layers while they are pushed."""

from __future__ import annotations

from pathlib import Path

from packager.core.events import Event, ImageEvent, LayerEvent
from packager.images.blobs import BlobReader
from packager.images.digest_index import DigestIndex
from packager.images.tee import write_image
from tests.support.doubles.registry import FakeRegistry, sha256
from tests.support.made_images import hasty_clients, image_with, layer_with, registry_sink

DATA = (b"base" * 1000, b"weights" * 1000)


def test_mounted_known_and_streamed_layers_are_told_apart(tmp_path: Path) -> None:
    with FakeRegistry() as registry:
        digests = [sha256(data) for data in DATA]
        host, clients = registry.host, hasty_clients()
        base = layer_with(DATA[0], role="base", digest=digests[0], mount_from=f"{host}/base")
        image = image_with(base, layer_with(DATA[1]))
        registry.blobs["base", digests[0]] = DATA[0]

        def push(tag: str) -> dict[str, tuple[str, str]]:
            events: list[Event] = []
            write_image(
                image,
                [registry_sink(f"{host}/model:{tag}", clients)],
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
