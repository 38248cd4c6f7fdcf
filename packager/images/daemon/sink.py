"""Loading an image into a Docker Engine: `docker:NAME[:TAG]`.

`docker load` would move every byte every time.  An engine on this machine pulls instead, from a
registry that we run on loopback for as long as it takes: it requests only the layers that it lacks,
and checks the same digest that the image has everywhere.

An engine elsewhere cannot reach our loopback interface.  It gets an archive, streamed with every
layer each time, each read once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any
from urllib.parse import urlsplit

from packager.core.documents import shorten
from packager.core.errors import (
    OutputFailed,
    PackagerError,
    ProtocolFailed,
    Unavailable,
    UsageError,
)
from packager.core.events import EventSink, StepEvent, StepState, harmless, ignore
from packager.core.image import (
    BaseImage,
    Blob,
    FileRange,
    ImageRef,
    ImageSpec,
    Layer,
    Platform,
    SealedImage,
)
from packager.core.ports import BlobWriter, ImageSink
from packager.core.references import DEFAULT_TAG, ImageTarget
from packager.images.archive.sink import ArchiveUpload, archive_manifest
from packager.images.blobs import BlobReader
from packager.images.compression import not_for_engines
from packager.images.docker_engine import connect_engine, engine_reason
from packager.images.oci import diff_ids_of
from packager.images.registry.origins import is_loopback
from packager.images.registry.reference import parse_reference, refuse_digest
from packager.images.registry.serve import EmbeddedRegistry

_NOT_OURS = "update the Docker Engine, or write an oci: or registry output"
_LOAD_TIMEOUT_S = 600.0  # an engine sends nothing while it unpacks a large layer


class DockerSink(ImageSink):
    """Image sink for the Docker Engine that the environment names; writes one tag."""

    def __init__(
        self,
        target: ImageTarget,
        *,
        reader: BlobReader,
        connect: Callable[[], Any] = connect_engine,
        on_event: EventSink = ignore,
    ) -> None:
        written = target.rest
        reference = parse_reference(written)
        refuse_digest(target.text, reference.digest, "docker:NAME:TAG")
        self.target = target.text
        self._name = written.removesuffix(f":{reference.tag}") if reference.tag else written
        self._tag = reference.tag or DEFAULT_TAG
        self._reader = reader
        self._connect = connect
        self._progress = _EngineProgress(f"{self._name}:{self._tag}", on_event)
        self._engine: Any = None
        self._platform = Platform()
        self._layers: tuple[Layer, ...] = ()
        self._archive: ArchiveUpload | None = None  # for an engine that cannot pull from us
        self._pulled_bytes = 0

    @property
    def bytes_sent(self) -> int:
        """Return the bytes sent to the engine."""
        return self._pulled_bytes + (self._archive.bytes_sent if self._archive else 0)

    def preflight(self) -> None:
        """Check that an engine answers."""
        self._engine = self._connect()

    def check_base(self, base: BaseImage) -> None:
        """Refuse layers that this engine is too old to unpack."""
        if any(layer.media_type.endswith("+zstd") for layer in base.layers):
            self.preflight()
            with _explained():
                version = self._engine.version()
            if not _unpacks_zstd(version):
                raise UsageError(
                    f"layers of base image {base.reference!r} are compressed with zstd, which "
                    f"this Docker Engine {shorten(version.get('Version'))} cannot unpack",
                    hint="update it to version 23 or later, or use an oci: or registry output",
                )

    def prepare(self, image: ImageSpec) -> None:
        """Check it again: much time may have passed since."""
        if any(layer.compression != "none" for layer in image.layers):
            raise not_for_engines()
        self._platform = image.base.platform
        self._layers = image.layers
        self.preflight()
        if not is_loopback(urlsplit(self._engine.api.base_url).hostname or ""):
            self._archive = self._new_archive()

    def writer(self, layer: Layer) -> BlobWriter | None:
        """Return a writer into the `docker load` archive; None where the engine pulls."""
        if self._archive is None:
            return None
        return self._archive.file(self._file_name(layer), layer.size)

    def locate(self, digest: str) -> Blob | None:  # noqa: ARG002
        """Return None: an engine unpacks its layers, and no blob can be read back."""
        return None

    def publish(self, image: SealedImage, blobs: Mapping[str, Blob]) -> ImageRef:
        """Load the image into the engine, verify its id, then tag it."""
        self._progress.begin(image)
        if self._archive is not None:
            self._end_archive(self._archive, image)
        else:
            try:
                self._let_pull(image, blobs)
            except _CannotReachUs:
                self._archive = self._new_archive()
                self._send_archive(self._archive, image, blobs)
        self._progress.end()
        return ImageRef(target=self.target, name=f"{self._name}:{self._tag}", digest=image.digest)

    def abandon(self) -> None:
        """Abort the transfer: the image is named only at the end."""
        if self._archive is not None:
            self._archive.cancel()

    def _let_pull(self, image: SealedImage, blobs: Mapping[str, Blob]) -> None:
        api = self._engine.api
        with EmbeddedRegistry(image, blobs, self._reader) as served:
            temporary = f"{served.name}@{image.digest}"
            try:
                with _explained():
                    self._pull(served, image.digest, blobs)
                    inspected = api.inspect_image(temporary)
                    found = inspected.get("RepoDigests") if isinstance(inspected, dict) else None
                    if not isinstance(found, list) or temporary not in found:
                        raise ProtocolFailed(
                            f"the Docker Engine has {shorten(found, 300)}, not {image.digest}",
                            hint=_NOT_OURS,
                        )
                    api.tag(temporary, self._name, self._tag, force=True)
            finally:
                self._pulled_bytes += served.bytes_served
                with suppress(Exception):  # the image stays, under its own name
                    api.remove_image(temporary, noprune=True)

    def _compare(self, blobs: Mapping[str, Blob]) -> None:
        """Raise `CachedFileChanged` where the kernel sent other bytes than the cache's digests say.

        The engine has found them wrong and only says that a layer was.
        """
        for blob in blobs.values():
            parts = [part for part in blob.segments if isinstance(part, FileRange) and part.sha256]
            for _ in self._reader.chunks(Blob(tuple(parts))):
                pass

    def _pull(self, served: EmbeddedRegistry, digest: str, blobs: Mapping[str, Blob]) -> None:
        events = self._engine.api.pull(
            served.name,
            tag=digest,
            stream=True,
            decode=True,
            platform=str(self._platform),
            auth_config={},  # else docker-py calls the user's credential helpers
        )
        for event in events:
            if not isinstance(event, dict):
                raise ProtocolFailed(
                    "the Docker Engine reports a pull in an unknown format", hint=_NOT_OURS
                )
            if "error" in event:
                failure = served.failure or _pull_failed(str(event["error"]))
                self._compare(blobs)
                raise failure
            self._progress.take(event)

    def _new_archive(self) -> ArchiveUpload:
        api = self._engine.api

        def load(chunks: Iterator[bytes]) -> Iterable[dict[str, Any]]:
            api.timeout = _LOAD_TIMEOUT_S
            messages: Iterable[dict[str, Any]] = api.load_image(chunks, quiet=False)
            return messages

        return ArchiveUpload(load, explain=_load_failed, on_message=self._progress.take)

    def _send_archive(
        self, archive: ArchiveUpload, image: SealedImage, blobs: Mapping[str, Blob]
    ) -> None:
        """Send every layer now, from where it can be read."""
        for layer, descriptor in zip(self._layers, image.layers, strict=True):
            file = archive.file(self._file_name(layer), descriptor.size)
            try:
                for chunk in self._reader.chunks(blobs[descriptor.digest]):
                    file.write(chunk)
                file.commit(descriptor.digest)
            except BaseException:
                file.abort()
                raise
        self._end_archive(archive, image)

    def _end_archive(self, archive: ArchiveUpload, image: SealedImage) -> None:
        """Send what names the layers, and see that the engine has made this image of them."""
        name = f"{self._name}:{self._tag}"
        config = f"{image.config_descriptor.digest.removeprefix('sha256:')}.json"
        archive.add(config, image.config)
        files = [self._file_name(layer) for layer in self._layers]
        archive.add("manifest.json", archive_manifest(config, files, name))
        archive.finish()
        with _explained():
            found = self._engine.api.inspect_image(name)
        root = found.get("RootFS") if isinstance(found, dict) else None
        made = root.get("Layers") if isinstance(root, dict) else None
        if (made or []) != diff_ids_of(image.config):
            raise ProtocolFailed(
                f"the Docker Engine has made another image of {name!r}", hint=_NOT_OURS
            )

    def _file_name(self, layer: Layer) -> str:
        """Return a layer's file name in the archive: equal layers are one file."""
        position = [known.blob for known in self._layers].index(layer.blob)
        return f"layer-{position:03}.tar"


class _EngineProgress:
    """Progress of an engine's pull or load, summed over layers into one step.

    The bytes are those of the image's layers, known beforehand.  A layer that is pulled moves
    twice, from us and into the engine's store, and each way is half of it: so what is done never
    falls, and all is done when the engine has unpacked all.
    """

    def __init__(self, name: str, on_event: EventSink) -> None:
        self._name = name
        self._on_event = harmless(on_event)
        self._layers: dict[str, _EngineLayer] = {}  # by what engines call them

    def begin(self, image: SealedImage) -> None:
        with suppress(Exception):  # a broken progress display never fails a build
            for descriptor, diff_id in zip_longest(image.layers, diff_ids_of(image.config)):
                layer = self._layers.setdefault(
                    _short(descriptor.digest), _EngineLayer(descriptor.size)
                )
                self._layers.setdefault(_short(diff_id or descriptor.digest), layer)
        self._tell("started")

    def end(self) -> None:
        for layer in self._layers.values():
            layer.move(1.0, 1.0)
        self._tell("finished")

    def take(self, message: Mapping[str, Any]) -> None:
        """Add one progress message; ignores messages about anything but the image's layers."""
        layer = self._layers.get(str(message.get("id", ""))) if isinstance(message, dict) else None
        if layer is None:
            return
        detail, status = message.get("progressDetail"), message.get("status")
        size, done = _count(detail, "total"), _count(detail, "current")
        share = min(1.0, done / size) if size else 0.0
        match status:
            case "Downloading":
                layer.move(share, 0.0)
            case "Verifying Checksum" | "Download complete":
                layer.move(1.0, 0.0)
            case "Extracting":
                layer.move(1.0, share)
            case "Loading layer":
                layer.move(share, share)
            case "Already exists":
                layer.kept = max(layer.kept, layer.size - layer.done)
                layer.move(1.0, 1.0)
            case "Pull complete":
                layer.move(1.0, 1.0)
            case _:
                return
        self._tell("running")

    def _tell(self, state: StepState) -> None:
        layers = {id(layer): layer for layer in self._layers.values()}.values()
        self._on_event(
            StepEvent(
                step="engine",
                detail=self._name,
                state=state,
                done=sum(layer.done for layer in layers),
                size=sum(layer.size for layer in layers),
                kept=sum(layer.kept for layer in layers),
            )
        )


@dataclass(slots=True)
class _EngineLayer:
    """Progress of one layer into an engine; repeated reports never lower it."""

    size: int
    pulled: float = 0.0
    unpacked: float = 0.0
    kept: int = 0  # bytes that the engine had

    @property
    def done(self) -> int:
        return int(self.size * (self.pulled + self.unpacked) / 2)

    def move(self, pulled: float, unpacked: float) -> None:
        self.pulled, self.unpacked = max(self.pulled, pulled), max(self.unpacked, unpacked)


def _unpacks_zstd(version: Mapping[str, Any]) -> bool:
    """Return whether an engine reads zstd: Docker since 23.0 (its release notes), Podman always."""
    parts = version.get("Components") or ()
    if any("podman" in str(part.get("Name")).lower() for part in parts):
        return True
    major = str(version.get("Version")).partition(".")[0]
    return not major.isdigit() or int(major) >= 23


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12]


def _count(detail: object, name: str) -> int:
    found = detail.get(name) if isinstance(detail, dict) else None
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0


class _CannotReachUs(Unavailable):
    """The engine runs in a virtual machine or a network of its own."""

    def __init__(self) -> None:
        super().__init__("the Docker Engine cannot reach this machine's loopback interface")


def _pull_failed(reason: str) -> PackagerError:
    if "connection refused" in reason:
        return _CannotReachUs()
    full = "no space left" in reason
    return OutputFailed(
        f"the Docker Engine cannot store the image: {reason}",
        hint="`docker system df` shows what could be removed" if full else "",
    )


def _load_failed(error: BaseException) -> PackagerError:
    """Return the error for a failed load: the engine's own message, or the broken connection."""
    from docker.errors import APIError

    if isinstance(error, OutputFailed):
        return _pull_failed(error.message)
    if isinstance(error, APIError):
        return _pull_failed(engine_reason(error))
    if isinstance(error, PackagerError):
        return error
    return _engine_lost()


def _engine_lost() -> Unavailable:
    return Unavailable(
        "the connection to the Docker Engine was lost",
        hint="see whether it still runs: `docker info`",
    )


@contextmanager
def _explained() -> Iterator[None]:
    """Convert docker-py errors into `PackagerError` with a hint."""
    from docker.errors import APIError, DockerException

    try:
        yield
    except APIError as error:
        raise _pull_failed(engine_reason(error)) from error
    except (DockerException, OSError) as error:
        raise _engine_lost() from error
