"""Loading an image into a Docker Engine on this machine: `docker:NAME[:TAG]`.

`docker load` would move every byte every time.  The engine pulls instead, from
a registry that we run on loopback for as long as it takes: it asks only for
the layers that it lacks, and the image keeps the manifest digest that it has
everywhere else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from packager.adapters.blobs import BlobReader
from packager.adapters.engine import connect_engine
from packager.adapters.registry.reference import DEFAULT_TAG, parse_reference
from packager.adapters.registry.serve import EmbeddedRegistry
from packager.adapters.registry.transport import is_loopback
from packager.core.image import Blob, ImageRef, ImageSpec, Layer, Platform, SealedImage
from packager.errors import OutputFailed, PackagerError, ProtocolFailed, Unavailable, UsageError
from packager.ports import BlobWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class PullProgress:
    """What the engine says of one layer."""

    layer: str  # the engine's short name for it
    state: str  # `Downloading`, `Extracting`, `Pull complete`
    done: int
    size: int  # 0 where the engine does not say


def ignore_progress(progress: PullProgress) -> None:
    """Receive progress and do nothing."""


class DockerSink:
    """One name in the Docker Engine that the environment names."""

    def __init__(
        self,
        target: str,
        *,
        reader: BlobReader,
        connect: Callable[[], Any] = connect_engine,
        on_progress: Callable[[PullProgress], None] = ignore_progress,
    ) -> None:
        written = target.removeprefix("docker:")
        reference = parse_reference(written)
        if reference.digest:
            raise UsageError(
                f"output {target!r} has a digest, which only the build can know",
                hint="write it as docker:NAME:TAG",
            )
        self.target = target
        self._name = written.removesuffix(f":{reference.tag}") if reference.tag else written
        self._tag = reference.tag or DEFAULT_TAG
        self._reader = reader
        self._connect = connect
        self._on_progress = on_progress
        self._engine: Any = None
        self._platform = Platform()
        self.bytes_sent = 0

    def reach(self) -> None:
        """Check that an engine answers, and that it can reach our loopback interface."""
        self._engine = self._connect()
        if not is_loopback(urlsplit(self._engine.api.base_url).hostname or ""):
            raise UsageError(
                f"the Docker Engine at {os.environ.get('DOCKER_HOST', '')!r} "
                "is not on this machine; remote engines are not supported yet",
                hint="write to a registry, and pull from it there",
            )

    def prepare(self, image: ImageSpec) -> None:
        """Check it again: much time may have passed since."""
        if any(layer.compression != "none" for layer in image.layers):
            raise UsageError(
                "Docker Engines before version 23 cannot unpack layers compressed with zstd",
                hint="leave --compression out for docker: outputs: nothing crosses a network there",
            )
        self._platform = image.base.platform
        self.reach()

    def writer(self, layer: Layer) -> BlobWriter | None:  # noqa: ARG002
        """Nothing is pushed: the engine pulls what it lacks in `publish`."""
        return None

    def locate(self, digest: str) -> Blob | None:  # noqa: ARG002
        """An engine unpacks its layers; no blob can be read back."""
        return None

    def publish(self, image: SealedImage, blobs: Mapping[str, Blob]) -> ImageRef:
        """Let the engine pull the image, compare the digest, then give it its name."""
        api = self._engine.api
        with EmbeddedRegistry(image, blobs, self._reader) as served:
            temporary = f"{served.name}@{image.digest}"
            try:
                with _explained():
                    self._pull(served, image.digest)
                    found = api.inspect_image(temporary)["RepoDigests"]
                    if temporary not in found:
                        raise ProtocolFailed(
                            f"the Docker Engine has {found} instead of {image.digest}"
                        )
                    api.tag(temporary, self._name, self._tag, force=True)
            finally:
                self.bytes_sent += served.bytes_served
                with suppress(Exception):  # the image stays, under its own name
                    api.remove_image(temporary, noprune=True)
        return ImageRef(target=self.target, name=f"{self._name}:{self._tag}", digest=image.digest)

    def abandon(self) -> None:
        """Nothing to undo: a name is given at the very end only."""

    def _pull(self, served: EmbeddedRegistry, digest: str) -> None:
        events = self._engine.api.pull(
            served.name,
            tag=digest,
            stream=True,
            decode=True,
            platform=str(self._platform),
            auth_config={},  # else docker-py asks the user's credential helpers
        )
        for event in events:
            if "error" in event:
                raise served.failure or _pull_failed(str(event["error"]))
            detail = event.get("progressDetail") or {}
            with suppress(Exception):  # a broken progress display never fails a build
                self._on_progress(
                    PullProgress(
                        layer=str(event.get("id", "")),
                        state=str(event.get("status", "")),
                        done=int(detail.get("current") or 0),
                        size=int(detail.get("total") or 0),
                    )
                )


def _pull_failed(reason: str) -> PackagerError:
    if "connection refused" in reason:
        return Unavailable(
            "the Docker Engine cannot reach this machine's loopback interface",
            hint="it runs in a virtual machine or a network of its own; "
            "write to a registry, and pull from it there",
        )
    full = "no space left" in reason
    return OutputFailed(
        f"the Docker Engine cannot store the image: {reason}",
        hint="`docker system df` shows what could be removed" if full else "",
    )


@contextmanager
def _explained() -> Iterator[None]:
    """Turn what docker-py raises into errors with a way out."""
    from docker.errors import APIError, DockerException

    try:
        yield
    except APIError as error:
        raise _pull_failed(str(error.explanation or error)) from error
    except (DockerException, OSError) as error:
        raise Unavailable(
            "the connection to the Docker Engine was lost",
            hint="see whether it still runs: `docker info`",
        ) from error
