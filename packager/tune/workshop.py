"""Candidates as images of a Docker Engine: built, started, put under load, taken away.

A start takes longer than a load.  Servers of candidates that are still in the race therefore stay
up, paused, while another computes, as long as the machine's memory has room for the next; where
they hold devices, one is up at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from packager.bench.metrics import load_figures
from packager.bench.pool import SPARE
from packager.bench.session import Send
from packager.bench.usage import UseMeter
from packager.core.bench import BenchLoad, Limits
from packager.core.quality import QualityReport
from packager.load.values import Level
from packager.serving.opening import MeasuredServer, Opener, OpenServer
from packager.tune.candidates import Candidate
from packager.tune.journal import Built
from packager.tune.session import Taken

REPOSITORY = "packager-tune"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltImage:
    """What a build gives of a candidate."""

    digest: str
    quality: QualityReport | None = None


class Servers:
    """Servers of images, started when they are first used, paused in between, ended at the end."""

    def __init__(
        self,
        opener: Opener,
        *,
        env: Mapping[str, str],
        gpus: bool,
        free_bytes: Callable[[], int | None],
        used_bytes: Callable[[OpenServer], int | None],
    ) -> None:
        self._opener = opener
        self._env = env
        self._gpus = gpus
        self._free_bytes = free_bytes
        self._used_bytes = used_bytes
        self._open: dict[str, tuple[OpenServer, ExitStack]] = {}  # the longest unused first
        self._largest = 0

    def __enter__(self) -> Servers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for image in list(self._open):
            self.end(image)

    @contextmanager
    def use(self, image: str) -> Iterator[OpenServer]:
        """Yield a server that answers while no other of ours computes; end one that fails."""
        if image in self._open:
            self._open[image] = self._open.pop(image)  # used last
            self._open[image][0].resume()
        else:
            self._make_room()
            self._start(image)
        try:
            yield self._open[image][0]
        except BaseException:
            self.end(image)
            raise
        self._open[image][0].pause()

    def end(self, image: str) -> None:
        """End the server of an image, where there is one."""
        if image in self._open:
            server, ending = self._open.pop(image)
            server.resume()
            ending.close()

    def _make_room(self) -> None:
        while self._open and (self._gpus or self._shares_port() or not self._has_room()):
            self.end(next(iter(self._open)))

    def _shares_port(self) -> bool:
        """Return whether containers are on the host's network, where all serve at one port."""
        return any(server.is_on_host_network for server, _ in self._open.values())

    def _has_room(self) -> bool:
        free = self._free_bytes()
        return free is not None and free >= SPARE * self._largest

    def _start(self, image: str) -> None:
        ending = ExitStack()
        target = MeasuredServer(name=image, env=self._env, shown=image, gpus=self._gpus)
        server = ending.enter_context(self._opener.open(target))
        self._open[image] = server, ending
        self._largest = max(self._largest, self._used_bytes(server) or 0)


@dataclass(slots=True, kw_only=True)
class ImageWorkshop:
    """Builds candidates into a Docker Engine and measures them there."""

    build_image: Callable[[Candidate, str], BuiltImage]  # under a name of the engine
    has_image: Callable[[str], bool]
    servers: Servers
    send: Send
    levels: Sequence[Level]
    limits: Limits
    on_answers: Callable[[str], None]  # words on how far a load is
    _started: set[str] = field(default_factory=set)

    def build(self, candidate: Candidate) -> Built:
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

    def measure(self, candidate: Candidate, built: Built, number: int) -> Taken:
        """Measure every level once; an image that somebody removed is built again."""
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
        self, candidate: Candidate, server: OpenServer, level: Level, number: int
    ) -> BenchLoad:
        answered = 0
        words = f"{candidate.name}, round {number + 1}, {level.words}"

        def on_answer() -> None:
            nonlocal answered
            answered += 1
            self.on_answers(f"{words}: {answered} answers")

        self.on_answers(words)
        with UseMeter(server.container) as meter:
            run = self.send(server, level, number, on_answer)
        if run.cancelled:
            raise KeyboardInterrupt  # nothing of an unfinished load is kept
        server.check(run.lost)
        return load_figures([run], self.limits).model_copy(update={"use": meter.use})


def image_name(candidate: Candidate) -> str:
    """Return the name of a candidate's image in the engine: the same in every run."""
    return f"{REPOSITORY}:{candidate.id}"


def purpose_of(journal: Path) -> str:
    """Return the part of containers' names that tells whose they are: one for each journal."""
    path = str(journal.absolute()).encode("utf-8", "surrogateescape")
    return f"tune-{hashlib.sha256(path).hexdigest()[:12]}"


def remove_leftovers(engine: Any, purpose: str) -> None:
    """Remove containers that a killed run of the same journal left, whose lock is ours now."""
    from docker.errors import DockerException

    with suppress(DockerException, OSError):
        for one in engine.api.containers(all=True, filters={"name": f"packager-{purpose}-"}):
            engine.api.remove_container(one["Id"], force=True, v=True)


def remove_images(engine: Any, images: Sequence[str]) -> None:
    """Remove images from an engine; one that is in use, or gone already, is no error."""
    from docker.errors import DockerException

    for image in images:
        with suppress(DockerException, OSError):
            engine.images.remove(image)
