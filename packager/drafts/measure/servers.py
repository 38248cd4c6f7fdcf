"""The servers to compare: one with its draft, one without; containers of ours or anybody's.

An address is asked as it is.  An image is started for as long as it is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import urllib3

from packager.engines.without_draft import (
    SWITCH,
    Changes,
    draft_of,
    environment_of,
    precision_of,
    without_draft,
)
from packager.errors import SmokeFailed, UsageError
from packager.images.target import engine_name
from packager.serving.acceptance import speculates
from packager.serving.containers import find_image, log_of, running, wait_for_ping
from packager.serving.openai import BadAnswer, Server

AUTO, NONE = "auto", "none"
_ENDING_S, _POLL_S = 3.0, 0.1


class NoDraft(UsageError):
    """The target has no draft to measure."""

    def __init__(self, shown: str) -> None:
        super().__init__(
            f"{shown!r} serves without a draft",
            hint="build it with --draft, or serve it with one; `packager smoke` asks any image",
        )


class StillSpeculates(UsageError):
    """The server that should run without a draft has one."""

    def __init__(self, shown: str, *, switched_off: bool) -> None:
        hint = "name an image or a server without one with --plain, or say --plain none"
        super().__init__(
            f"the plain server {shown!r} has a draft, too",
            hint=f"its launcher does not know {SWITCH} yet: build it again, or {hint}"
            if switched_off
            else hint,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredServer:
    """An image of the Docker Engine, or an address. `env` is for the container."""

    name: str
    env: Changes
    shown: str = ""
    precision: str = ""  # "" where nobody tells

    @property
    def is_address(self) -> bool:
        return is_address(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenServer:
    """A server that answers."""

    server: Server
    model: str
    shown: str
    container: Any = None

    def check(self, lost: str = "") -> None:
        """Raise `SmokeFailed` when the container ended, or answers were lost."""
        code = self._exit_code(_ENDING_S if lost else 0.0)
        if code is not None:
            raise self.failure(f"the container ended with status {code} while it was measured")
        if lost:
            raise self.failure(f"{self.shown!r} stopped answering: {lost}")

    def _exit_code(self, patience_s: float) -> int | None:
        """Return the exit status of an ended container; waits until the engine knows it."""
        if self.container is None:
            return None
        deadline = time.monotonic() + patience_s
        while True:
            self.container.reload()
            if self.container.status != "running":
                return int(self.container.attrs["State"]["ExitCode"])
            if time.monotonic() >= deadline:
                return None
            time.sleep(_POLL_S)

    def metrics(self) -> str:
        """Return the text of the server's metrics; "" where it has none or does not answer."""
        with suppress(BadAnswer, urllib3.exceptions.HTTPError):
            return self.server.metrics()
        return ""

    def failure(self, message: str) -> SmokeFailed:
        """Return the error, with the container's log where there is one."""
        if self.container is None:
            return SmokeFailed(message, hint="see the server's log, and ask it with curl")
        return SmokeFailed(message, hint="its log is above", log=log_of(self.container))


@dataclass(frozen=True, slots=True, kw_only=True)
class Opener:
    """Settings for starting and reaching the measured servers."""

    connect: Callable[[], Any]  # to the Docker Engine
    deadline_s: float
    connections: int
    on_progress: Callable[[str], None]
    gpus: bool = False

    @contextmanager
    def open(self, target: MeasuredServer) -> Iterator[OpenServer]:
        """Start the target where it is an image, and see that it answers."""
        if target.is_address:
            server = Server(target.name, connections=self.connections)
            yield self._asked(server, server.shown)
            return
        env, purpose = target.env, "measure"
        with running(
            self.connect(), target.name, env, self.on_progress, purpose=purpose, gpus=self.gpus
        ) as (container, url):
            http = urllib3.PoolManager(retries=False)
            try:
                wait_for_ping(http, container, url, self.deadline_s, self.on_progress)
            except SmokeFailed as error:
                raise SmokeFailed(error.message, hint=error.hint, log=log_of(container)) from error
            server = Server(url, connections=self.connections)
            yield self._asked(server, target.shown or target.name, container)

    def _asked(self, server: Server, shown: str, container: Any = None) -> OpenServer:
        found = OpenServer(server=server, model="", shown=shown, container=container)
        try:
            return OpenServer(server=server, model=server.model(), shown=shown, container=container)
        except (BadAnswer, urllib3.exceptions.HTTPError) as error:
            reason = str(error) if isinstance(error, BadAnswer) else "it does not answer"
            raise found.failure(f"{shown!r} cannot be measured: {reason}") from error


def targets(
    name: str, plain: str, env: Mapping[str, str], connect: Callable[[], Any]
) -> tuple[MeasuredServer, MeasuredServer | None]:
    """Return the targets with and without the draft; raises `NoDraft` where there is none."""
    name, plain = engine_name(name), engine_name(plain)
    config = {} if is_address(name) else find_image(connect(), name).attrs.get("Config") or {}
    if not is_address(name):
        _check_draft(name, config)
    first = MeasuredServer(name=name, env=env, precision=precision_of(config))
    if plain == NONE or (plain == AUTO and is_address(name)):
        return first, None
    if plain != AUTO:
        return first, MeasuredServer(name=plain, env=env)
    changes = without_draft(config)
    if changes is None:
        raise UsageError(
            f"no variable switches off the draft of {name!r}",
            hint="name the same image built with --draft none (it sends the configuration alone): "
            "--plain IMAGE, or --plain none to measure it alone",
        )
    return first, MeasuredServer(
        name=name, env={**env, **changes}, shown=f"{name} without its draft"
    )


def check_speculation(found: OpenServer, metrics: str, *, wanted: bool, switched_off: bool) -> None:
    """Refuse a server whose metrics say that it is not what it is measured for."""
    told = speculates(metrics)
    if wanted and told is False:
        raise NoDraft(found.shown)
    if not wanted and told:
        raise StillSpeculates(found.shown, switched_off=switched_off)


def is_address(name: str) -> bool:
    """Return whether `name` is a URL, even an invalid one: no image has such a name."""
    return "://" in name


def _check_draft(name: str, config: Mapping[str, Any]) -> None:
    """Refuse an image of ours that was built without a draft; others are asked when they run."""
    if draft_of(config) == "" and not any("SPECULA" in one for one in environment_of(config)):
        raise NoDraft(name)
