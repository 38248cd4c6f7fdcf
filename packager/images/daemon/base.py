"""A base image from a local Docker Engine: `docker:NAME`.

An engine keeps layers unpacked and gives them out as one stream, so the image
is written once to a layout in the user's cache directory, named after the
image's id, and used from there ever after.  Both kinds of `docker save` are
understood: that of 2013, and the layout of Docker 25 and later.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO, Any

from packager.core.documents import NotStrict, field, parse_json, shorten
from packager.core.errors import NotFound, ProtocolFailed, Unavailable
from packager.core.files.atomic import explain_disk_errors, sync_directory, user_dir
from packager.core.image import (
    MEDIA_CONFIG,
    MEDIA_INDEX,
    MEDIA_LAYER,
    MEDIA_MANIFEST,
    BaseImage,
    Descriptor,
    Platform,
)
from packager.core.references import ImageTarget, LayoutTarget
from packager.images.docker_engine import connect_engine, engine_reason
from packager.images.layout.base import LayoutBase
from packager.images.oci import LONGEST_DOCUMENT, diff_ids_of, is_digest

_CHUNK = 1024 * 1024
_MAGIC = {b"\x1f\x8b": "+gzip", b"\x28\xb5\x2f\xfd": "+zstd"}
_LEGACY_FILES = frozenset({"VERSION", "json", "repositories"})  # repeated in manifest.json


class DockerBase:
    """Base source for images of the Docker Engine that the environment names."""

    name = "docker"

    def __init__(
        self,
        *,
        cache_dir: Path | None = None,
        connect: Callable[[], Any] = connect_engine,
    ) -> None:
        self._cache_dir = cache_dir or _cache_dir(os.environ)
        self._connect = connect

    def facts(self, target: ImageTarget, platform: Platform) -> BaseImage:
        """Pin the image by its id; read it out of the engine when that is new."""
        layout = LayoutTarget.at(self.take_out(target))
        return replace(LayoutBase().facts(layout, platform), reference=target.text)

    def take_out(self, target: ImageTarget) -> Path:
        """Return the cached layout that holds the image; export it from the engine if it is new."""
        from docker.errors import APIError, DockerException, ImageNotFound

        name = target.rest
        engine = self._connect()
        try:
            image_id = _image_id(engine.api.inspect_image(name), name)
            layout = self._cache_dir / f"docker-{image_id.removeprefix('sha256:')}"
            if not (layout / "index.json").is_file():
                with explain_disk_errors(layout):
                    _write_layout(_received(engine.api.get_image(image_id)), layout, target.text)
        except ImageNotFound as error:
            raise NotFound(
                f"the Docker Engine has no image {name!r}", hint=f"docker pull {name}"
            ) from error
        except APIError as error:
            raise ProtocolFailed(
                f"the Docker Engine does not give out {name!r}: {engine_reason(error)}",
                hint=f"`docker image inspect {name}` shows what it has",
            ) from error
        except DockerException as error:
            raise _engine_lost() from error
        return layout


def _engine_lost() -> Unavailable:
    """Return the error of this name."""
    return Unavailable(
        "the connection to the Docker Engine was lost",
        hint="see whether it still runs: `docker info`",
        code="_EngineLost",
    )


@dataclass(frozen=True, slots=True)
class _Saved:
    """A file of the stream, now a blob of the layout."""

    digest: str
    size: int
    compression: str  # media type suffix, "" for none


def _received(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Convert a broken connection to `Unavailable`, to distinguish it from a disk error."""
    try:
        yield from chunks
    except OSError as error:
        raise _engine_lost() from error


def _cache_dir(environment: Mapping[str, str]) -> Path:
    cache = user_dir("cache", environment)
    return cache / "packager" / "bases"


def _write_layout(stream: Iterable[bytes], layout: Path, reference: str) -> None:
    """Write the layout to a temporary directory and rename it when it is complete."""
    layout.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".new-", dir=layout.parent))
    try:
        (temporary / "blobs" / "sha256").mkdir(parents=True)
        _fill(temporary, _save_files(stream, temporary, reference), reference)
        temporary.chmod(0o755)
        sync_directory(temporary)
        try:
            temporary.rename(layout)
        except OSError:
            if not (layout / "index.json").is_file():
                raise
            # Another process was faster, and its result is the same.
        sync_directory(layout.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _save_files(stream: Iterable[bytes], layout: Path, reference: str) -> dict[str, _Saved]:
    """Write each file of the stream as a blob. Names of the stream never become paths."""
    saved: dict[str, _Saved] = {}
    links: dict[str, str] = {}
    try:
        with tarfile.open(fileobj=_Stream(stream), mode="r|", bufsize=_CHUNK) as archive:
            for member in archive:
                path = PurePosixPath(member.name)
                if member.issym():
                    links[member.name] = _normal(path.parent / member.linkname)
                elif member.islnk():
                    links[member.name] = _normal(PurePosixPath(member.linkname))
                elif member.isfile() and path.name not in _LEGACY_FILES:
                    content = archive.extractfile(member)
                    assert content is not None, "a regular file has content"
                    saved[_normal(path)] = _save(content, layout)
    except tarfile.TarError as error:
        raise ProtocolFailed(
            f"the Docker Engine gave a broken archive for {reference!r}: {error}",
            hint="try again; `docker save` must work for this image",
        ) from error
    for name, target in links.items():  # equal layers are written once
        if target in saved:
            saved[name] = saved[target]
    return saved


def _save(content: IO[bytes], layout: Path) -> _Saved:
    hashed, size, first = hashlib.sha256(), 0, b""
    blobs = layout / "blobs" / "sha256"
    with tempfile.NamedTemporaryFile(dir=blobs, delete=False) as file:
        while chunk := content.read(_CHUNK):
            first = first or chunk[:4]
            hashed.update(chunk)
            size += file.write(chunk)
        file.flush()
        os.fchmod(file.fileno(), 0o644)
        os.fsync(file.fileno())
    Path(file.name).replace(blobs / hashed.hexdigest())
    compression = next((name for magic, name in _MAGIC.items() if first.startswith(magic)), "")
    return _Saved(f"sha256:{hashed.hexdigest()}", size, compression)


def _fill(layout: Path, saved: Mapping[str, _Saved], reference: str) -> None:
    """Write manifest and index for what `manifest.json` lists, and drop the rest."""
    config, layers, diff_ids = _listed(layout, saved, reference)
    for layer, diff_id in zip(layers, diff_ids, strict=False):
        if not layer.compression and layer.digest != diff_id:
            raise ProtocolFailed(
                f"the Docker Engine gave layer {layer.digest} of {reference!r}, "
                f"the image lists {diff_id}",
                hint="the engine's storage is damaged; pull the image again",
            )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": MEDIA_MANIFEST,
            "config": _descriptor(MEDIA_CONFIG, config),
            "layers": [_descriptor(MEDIA_LAYER + layer.compression, layer) for layer in layers],
        }
    )
    written = _save(io.BytesIO(manifest), layout)
    wanted = {blob.digest for blob in (written, config, *layers)}
    for path in (layout / "blobs" / "sha256").iterdir():
        if f"sha256:{path.name}" not in wanted:
            path.unlink()
    (layout / "oci-layout").write_bytes(_json({"imageLayoutVersion": "1.0.0"}))
    (layout / "index.json").write_bytes(
        _json(
            {
                "schemaVersion": 2,
                "mediaType": MEDIA_INDEX,
                "manifests": [_descriptor(MEDIA_MANIFEST, written)],
            }
        )
    )


def _listed(
    layout: Path, saved: Mapping[str, _Saved], reference: str
) -> tuple[_Saved, list[_Saved], list[str]]:
    """Return configuration, layers and diff ids of the one image in `manifest.json`."""
    try:
        listed = parse_json(_document(layout, saved["manifest.json"]))
        entry = listed[0] if isinstance(listed, list) and listed else None
        names = field(entry, "Layers", list, "manifest.json")
        config = saved[_normal(PurePosixPath(field(entry, "Config", str, "manifest.json")))]
        if not all(isinstance(name, str) for name in names):
            raise NotStrict("manifest.json.Layers holds something else than names")
        layers = [saved[_normal(PurePosixPath(name))] for name in names]
        return config, layers, diff_ids_of(_document(layout, config))
    except (LookupError, NotStrict, ProtocolFailed) as error:
        raise ProtocolFailed(
            f"the Docker Engine gave an archive without an image for {reference!r}",
            hint="`docker save` must work for this image",
        ) from error


def _document(layout: Path, saved: _Saved) -> bytes:
    if saved.size > LONGEST_DOCUMENT:
        raise NotStrict(f"it has {saved.size} bytes, more than {LONGEST_DOCUMENT}")
    return _blob(layout, saved.digest).read_bytes()


def _image_id(found: object, name: str) -> str:
    """Return the digest that names the image; it becomes the name of a directory."""
    image_id = found.get("Id") if isinstance(found, dict) else None
    if not isinstance(image_id, str) or not is_digest(image_id):
        raise ProtocolFailed(
            f"the Docker Engine names {name!r} by {shorten(image_id)}, which is not a digest",
            hint="a Docker Engine or containerd must answer at DOCKER_HOST",
        )
    return image_id


def _descriptor(media_type: str, blob: _Saved) -> dict[str, Any]:
    return Descriptor(media_type=media_type, digest=blob.digest, size=blob.size).to_json()


def _blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / "sha256" / digest.removeprefix("sha256:")


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _normal(path: PurePosixPath) -> str:
    """Resolve `..` in a name by its text: `a/../b/layer.tar` is `b/layer.tar`."""
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts = parts[:-1]
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


class _Stream(io.RawIOBase):
    """Chunks of a response as a file that tarfile can read."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks: Iterator[bytes] = iter(chunks)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            try:
                self._rest = next(self._chunks)
            except StopIteration:
                return 0
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
