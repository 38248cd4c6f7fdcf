"""What the artifact cache knows of layers that are quantized in the stream, and is told of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from packager.cli.wiring.registries import Clients
from packager.core.errors import PackagerError
from packager.core.image import BY_CACHE, ImageSpec, Layer, Written
from packager.core.ports import ImageSink
from packager.core.recipe import Step
from packager.pipeline.services import BuildServices

if TYPE_CHECKING:
    from artifact_cache.cache import ArtifactCache
    from packager.optimize.cache.streamed import KeptLayers

_Named = tuple[str, str, int]  # role, content, size


def with_streamed_layers(
    services: BuildServices,
    artifacts: Callable[[], ArtifactCache | None],
    sinks: Sequence[ImageSink],
    clients: Clients,
    *,
    verify: bool,
) -> BuildServices:
    """Return the services with those that look layers up in the artifact cache, and keep them.

    With `verify` none is looked up: all of them are made of their source.
    """
    return replace(
        services,
        find_layers=lambda step, image: (
            image if verify else _find(step, image, artifacts(), clients)
        ),
        have_layers=lambda image: all(_is_there(layer, sinks) for layer in image.layers),
        keep_layers=lambda step, written: _keep(step, written, artifacts(), sinks),
    )


def _is_there(layer: Layer, sinks: Sequence[ImageSink]) -> bool:
    """Return whether nothing of a layer has to be computed."""
    from packager.images.writers import all_have

    if not layer.blob.is_computed:
        return True
    twin = layer.twin is None or _is_there(layer.twin, sinks)
    return bool(layer.kept) and twin and all_have(layer, layer.kept, sinks)


def _find(step: Step, image: ImageSpec, cache: ArtifactCache | None, clients: Clients) -> ImageSpec:
    from packager.optimize.cache.streamed import find_layers
    from packager.optimize.keys.documents import StreamedLayersKey

    if cache is None or not isinstance(step.key, StreamedLayersKey):
        return image
    found = list(find_layers(cache, step.key))
    known: dict[_Named, str] = {
        (one.role, one.content, one.size): one.digest for kept in found for one in kept.layers
    }
    places = tuple(dict.fromkeys(name for kept in found for name in kept.repositories))
    layers = tuple(_known(layer, known) for layer in image.layers)
    if image.tree is None:  # a tree is written of the layer's own segments
        silent: set[str] = set()
        layers = tuple(_copied(layer, places, clients, silent) for layer in layers)
    return replace(image, layers=layers)


def _known(layer: Layer, known: Mapping[_Named, str]) -> Layer:
    digest = known.get((layer.role, layer.content, layer.size), "") if layer.content else ""
    twin = _known(layer.twin, known) if layer.twin else None
    return replace(layer, kept=digest, twin=twin) if digest or twin else layer


def _copied(layer: Layer, places: Sequence[str], clients: Clients, silent: set[str]) -> Layer:
    """Return the layer as a repository has it, where one does; outputs mount it or take it.

    `silent` gets the hosts that did not answer: they are asked once.
    """
    from packager.images.registry.reader import registry_blob

    if not layer.kept or layer.twin is not None:
        return layer
    for name in places:
        host, _, repository = name.partition("/")
        try:
            is_there = host not in silent and clients().at(host).has_blob(
                repository, layer.kept, layer.size
            )
        except PackagerError:
            silent.add(host)
            continue
        if is_there:
            return replace(
                layer,
                blob=registry_blob(name, layer.kept, layer.size),
                digest=layer.kept,
                believed=BY_CACHE,
                mount_from=name,
            )
    return layer


def _keep(
    step: Step, written: Written, cache: ArtifactCache | None, sinks: Sequence[ImageSink]
) -> None:
    from packager.optimize.cache.streamed import keep_layers, kept_of
    from packager.optimize.keys.documents import StreamedLayersKey

    made: KeptLayers | None = kept_of(written.claims, tuple(_repositories(sinks)))
    if cache is not None and made is not None and isinstance(step.key, StreamedLayersKey):
        keep_layers(cache, step.key, made, step.labels)


def _repositories(sinks: Sequence[ImageSink]) -> Iterator[str]:
    yield from (sink.repository for sink in sinks if sink.repository)
