"""Pushes into the strict fake registry, over a line that breaks."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from packager.core.errors import PackagerError
from packager.core.image import BaseImage, ImageSpec, Platform, RuntimeConfig
from packager.images.blobs import BlobReader
from packager.images.digest_index import DigestIndex
from packager.images.oci import scratch
from packager.images.registry.base import RegistryBase
from packager.images.registry.clients import RegistryClients
from packager.images.registry.credential import Credentials
from packager.images.registry.reader import RegistryReader
from packager.images.registry.transport import Transport
from packager.images.target import parse_registry_target
from packager.images.tee import write_image
from tests.faults.counters import never
from tests.support.doubles.fault_proxy import FaultProxy
from tests.support.doubles.registry import PASSWORD, USER, FakeRegistry, sha256
from tests.support.made_images import hasty_clients, image_with, layer_with, registry_sink

REPOSITORY = "team/model"
LARGEST = 2_500_000  # three pieces of a megabyte, more than socket buffers hold
CONFIG = 2000  # bytes of configuration, and more
TRIES = 3  # after the first
DEADLINE_S = 120.0  # generous: the machine may be busy; a hang is for ever
_RANDOM = random.Random(7)
LAYERS = tuple(_RANDOM.randbytes(size) for size in (LARGEST, 1_200_000, 20_000))


def image(*layers: bytes, base: BaseImage | None = None) -> ImageSpec:
    base = base or scratch(Platform())
    roles = ("weights",) * (len(layers) - 1) + ("config",)
    ours = (layer_with(data, role=role) for data, role in zip(layers, roles, strict=True))
    return image_with(*base.layers, *ours, base=base, runtime=RuntimeConfig(cmd=("serve",)))


def base_at(host: str, repository: str) -> BaseImage:
    """Read what a registry has under the tag 1 as a base."""
    target = parse_registry_target(f"{host}/{repository}:1")
    return RegistryBase(clients=hasty_clients()).facts(target, Platform())


@dataclass
class Push:
    """What became of one."""

    digest: str  # nothing when it failed
    error: PackagerError | None
    seconds: float
    slept: list[float]
    body_bytes: int  # of layers and configuration, that left us


@dataclass
class Bench:
    """A registry with an old image under the tag, and a machine that pushes a new one."""

    registry: FakeRegistry
    proxy: FaultProxy
    state: Path
    old: str = ""
    slept: list[float] = field(default_factory=list)

    def push(self, spec: ImageSpec | None = None, *, direct: bool = False) -> Push:
        """Push as one run of packager does. What is no `PackagerError` fails the test."""
        slept: list[float] = []
        clients = RegistryClients(
            find_credentials=lambda host: Credentials(user=USER, password=PASSWORD),
            transport=Transport(sleep=slept.append),
        )
        host = self.registry.host if direct else self.proxy.host
        first = len(self.registry.seen)
        started = time.monotonic()
        digest, error = "", None
        with never("untyped_failures"):
            try:
                digest = self._write(host, clients, spec or image(*LAYERS), slept)
            except PackagerError as failure:
                error = failure
        seconds = time.monotonic() - started
        patches = [seen for seen in self.registry.seen[first:] if seen.method == "PATCH"]
        return Push(digest, error, seconds, slept, sum(seen.received for seen in patches))

    def _write(
        self, host: str, clients: RegistryClients, spec: ImageSpec, slept: list[float]
    ) -> str:
        written = write_image(
            spec,
            [registry_sink(f"{host}/{REPOSITORY}:1", clients)],
            reader=BlobReader([RegistryReader(clients=clients)]),
            index=DigestIndex(self.state / "digests.sqlite"),
            sleep=slept.append,
        )
        return written.image.digest

    def tagged(self) -> str:
        return self.registry.tagged(REPOSITORY, "1")

    def missing(self) -> int:
        """Bytes of layers that the registry does not have yet."""
        there = self.registry.blobs
        return sum(len(data) for data in LAYERS if (REPOSITORY, sha256(data)) not in there)

    def check(self, push: Push) -> None:
        """What holds whatever went wrong, and that a rerun sends only what is missing."""
        self.check_tag(push)
        hits = sum(fault.hits for fault in self.proxy.faults)
        again = min(hits * LARGEST, TRIES * sum(map(len, LAYERS)))  # a layer for each fault
        with never("sent_again"):
            assert push.body_bytes <= sum(map(len, LAYERS)) + CONFIG + again
        self.proxy.faults.clear()
        missing = self.missing()
        rerun = self.push()
        with never("manual_cleanup"):
            assert rerun.error is None
        self.check_tag(rerun)
        with never("sent_again"):
            assert missing <= rerun.body_bytes <= missing + CONFIG

    def check_tag(self, push: Push) -> None:
        """The tag names what it should, and all of that is there."""
        with never("hangs"):
            assert push.seconds < DEADLINE_S
        with never("incomplete_tag"):
            assert self.tagged() == (self.old if push.error else push.digest)
            assert self.registry.is_complete(REPOSITORY, "1")


@contextmanager
def bench(state: Path, **quirks: object) -> Iterator[Bench]:
    """A registry in which the tag names an older image."""
    with FakeRegistry(**quirks) as registry, FaultProxy(registry.host) as proxy:
        made = Bench(registry, proxy, state)
        older = made.push(image(b"old weights", b"old settings"), direct=True)
        made.old = older.digest
        assert made.tagged() == older.digest != ""
        yield made
