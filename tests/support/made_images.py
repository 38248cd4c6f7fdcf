"""Images, layers, outputs and clients of registries, as most tests of images want them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from packager.core.image import Blob, FileRange, ImageSpec, Inline, Layer, Platform, RuntimeConfig
from packager.images.layout.sink import LayoutSink
from packager.images.oci import scratch
from packager.images.registry.clients import RegistryClients
from packager.images.registry.sink import RegistrySink
from packager.images.registry.transport import Transport
from packager.images.tar import TarEntry, make_tar
from packager.images.target import parse_layout_target, parse_registry_target

Content = bytes | Path | FileRange | Blob


def whole(path: Path) -> FileRange:
    """Return all of a file."""
    return FileRange(path=str(path), offset=0, length=path.stat().st_size)


def layer_with(content: Content, /, **fields: Any) -> Layer:
    """Return a layer of these bytes, as they are; of weights unless `fields` say otherwise."""
    part = _segment(content)
    blob = part if isinstance(part, Blob) else Blob((part,))
    return Layer(**{"role": "weights", "blob": blob, **fields})


def tar_layer(path: str, content: Content, /, **fields: Any) -> Layer:
    """Return a layer whose tar holds one file."""
    return layer_with(make_tar([TarEntry(path=path, content=_segment(content))]), **fields)


def image_with(*layers: Layer, **fields: Any) -> ImageSpec:
    """Return an image of these layers; its base is empty unless `fields` name one."""
    given = {"base": scratch(Platform()), "runtime": RuntimeConfig(), **fields}
    return ImageSpec(layers=layers, **{"created": "1970-01-01T00:00:00Z", **given})


def layout_sink(place: Path | str, **options: Any) -> LayoutSink:
    """Return the output `oci:PLACE`."""
    return LayoutSink(parse_layout_target(f"oci:{place}"), **options)


def blobs_in(layout: Path) -> list[Path]:
    """Return the blobs of a layout."""
    return list((layout / "blobs" / "sha256").iterdir())


def blob_in(layout: Path, digest: str) -> Path:
    """Return where a layout keeps a blob."""
    return layout / "blobs" / "sha256" / digest.removeprefix("sha256:")


def check_blobs(layout: Path) -> None:
    """Every blob of a layout has the digest that it is named for."""
    for blob in blobs_in(layout):
        assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name


def hasty_clients(**options: Any) -> RegistryClients:
    """Return clients that know no credentials and wait for nothing."""
    given = {"transport": Transport(sleep=lambda seconds: None), **options}
    return RegistryClients(**{"find_credentials": lambda host: None, **given})


def registry_sink(target: str, clients: RegistryClients, **options: Any) -> RegistrySink:
    """Return the output TARGET in a registry."""
    return RegistrySink(parse_registry_target(target), clients=clients, **options)


def _segment(content: Content) -> FileRange | Inline | Blob:
    if isinstance(content, bytes):
        return Inline(content)
    return whole(content) if isinstance(content, Path) else content
