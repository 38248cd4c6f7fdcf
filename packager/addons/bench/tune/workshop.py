"""Candidates as images of a Docker Engine: built, started, put under load, taken away.

A start takes longer than a load.  Servers of candidates that are still in the race therefore stay
up, paused, while another computes, as long as the machine's memory has room for the next; where
they hold devices, one is up at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packager.addons.bench.load.values import Level
from packager.addons.bench.metrics import load_figures
from packager.addons.bench.open_servers import OpenServers
from packager.addons.bench.session import Send, counting
from packager.addons.bench.tune.candidates import TuneCandidate
from packager.addons.bench.tune.journal import Built
from packager.addons.bench.tune.session import Taken
from packager.addons.bench.usage import UseMeter
from packager.cli.serving.opening import MeasuredServer, OpenServer
from packager.core.bench import BenchLoad, Limits
from packager.core.quality import QualityReport

REPOSITORY = "packager-tune"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltImage:
    """What a build gives of a candidate."""

    digest: str
    quality: QualityReport | None = None


class TunedServers:
    """Servers of images, started when they are first used and paused in between.

    `servers` has those that are up; its opener ends them.
    """

    def __init__(self, servers: OpenServers, *, env: Mapping[str, str], gpus: bool) -> None:
        self._open = servers
        self._env = env
        self._gpus = gpus

    @contextmanager
    def use(self, image: str) -> Iterator[OpenServer]:
        """Yield a server that answers while no other of ours computes; end one that fails."""
        if image in self._open:
            self._open.resume(image)
        else:
            self._make_room()
            target = MeasuredServer(name=image, env=self._env, shown=image, gpus=self._gpus)
            self._open.start(image, target)
        try:
            yield self._open[image]
        except BaseException:
            self._open.end(image)
            raise
        self._open[image].pause()

    def _make_room(self) -> None:
        """End the longest unused servers until one more may be started."""
        for image in self._open:
            if not self._gpus and self._open.has_room():
                return
            self._open.end(image)


@dataclass(slots=True, kw_only=True)
class ImageWorkshop:
    """Builds candidates into a Docker Engine and measures them there."""

    build_image: Callable[[TuneCandidate, str], BuiltImage]  # under a name of the engine
    has_image: Callable[[str], bool]
    servers: TunedServers
    send: Send
    levels: Sequence[Level]
    limits: Limits
    on_answers: Callable[[str], None]  # words on how far a load is
    _started: set[str] = field(default_factory=set)

    def build(self, candidate: TuneCandidate) -> Built:
        """Build the image under a name of its own."""
        name = image_name(candidate)
        found = self.build_image(candidate, name)
        return Built(
            candidate=candidate.id,
            name=candidate.name,
            image=name,
            digest=found.digest,
            seconds=0.0,
            quality=found.quality,
        )

    def measure(self, candidate: TuneCandidate, built: Built, number: int) -> Taken:
        """Measure every level once; an image that was removed is built again."""
        if not self.has_image(built.image):
            self.build_image(candidate, built.image)
        loads = []
        with self.servers.use(built.image) as server:
            for level in self.levels:
                loads.append(self._load(candidate, server, level, number))
            start_s = None if built.image in self._started else server.start_s
            self._started.add(built.image)
        return Taken(loads=tuple(loads), start_s=start_s)

    def _load(
        self, candidate: TuneCandidate, server: OpenServer, level: Level, number: int
    ) -> BenchLoad:
        words = f"{candidate.name}, round {number + 1}, {level.words}"
        on_answer = counting(words, self.on_answers)
        with UseMeter(server.container) as meter:
            run = self.send(server, level, number, on_answer)
        if run.cancelled:
            raise KeyboardInterrupt  # an unfinished load is dropped
        server.check(run.lost)
        return load_figures([run], self.limits).model_copy(update={"use": meter.use})


def image_name(candidate: TuneCandidate) -> str:
    """Return the name of a candidate's image in the engine: the same in every run."""
    return f"{REPOSITORY}:{candidate.id}"


def purpose_of(journal: Path) -> str:
    """Return the part of containers' names that identifies the journal."""
    path = str(journal.absolute()).encode("utf-8", "surrogateescape")
    return f"tune-{hashlib.sha256(path).hexdigest()[:12]}"


def remove_leftovers(engine: Any, purpose: str) -> None:
    """Remove containers that a killed run of the same journal left, whose lock is ours now."""
    from docker.errors import DockerException

    with suppress(DockerException, OSError):
        for one in engine.api.containers(all=True, filters={"name": f"packager-{purpose}-"}):
            engine.api.remove_container(one["Id"], force=True, v=True)


def remove_images(engine: Any, images: Sequence[str]) -> None:
    """Remove images from an engine; ignore those in use or gone already."""
    from docker.errors import DockerException

    for image in images:
        with suppress(DockerException, OSError):
            engine.images.remove(image)
