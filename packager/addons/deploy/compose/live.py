"""Projects of Docker Compose: apply, update under load, watch, send requests, delete.

Servers are in one of two generations.  An update starts the other one beside it, waits until all of
its servers answer, lets the front send new requests there, waits until the old ones have no request
left, and ends them.  Only the front's file states which generation serves, so the next call
completes or reverts an update that was killed.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import urllib3

from packager.addons.deploy.compose.composers import PROJECT, ApiComposer, Composer
from packager.addons.deploy.compose.contents import with_contents
from packager.addons.deploy.compose.deployer import ComposeDeployer
from packager.addons.deploy.compose.documents import (
    FILE,
    FRONT,
    GENERATIONS,
    LABEL,
    SERVERS_FILE,
    Service,
    config_digest,
    differences,
    document_of,
    ended,
    files_beside,
    front_changes,
    front_service,
    generation_of,
    has_room,
    parse_document,
    render_document,
    server_services,
    servers_file,
)
from packager.addons.deploy.compose.front import STATE
from packager.addons.deploy.compose.neighbours import refuse_taken
from packager.addons.deploy.compose.running import Running, ended_error, is_ready, running_of
from packager.addons.deploy.compose.spec import ComposeSpec
from packager.cli.run.containers import engine_errors
from packager.core.deployment import Applied, Change, DeployFile, Deployment, DeployStatus
from packager.core.documents import MAX_BYTES, NotStrict, parse_object
from packager.core.errors import NotFound, PlanRejected, SmokeFailed, Unavailable, UsageError
from packager.core.events import ignore
from packager.core.files.atomic import explain_disk_errors, write_atomically
from packager.core.findings import errors_in
from packager.core.remote.pools import timely
from packager.core.stopping import PLATFORM_GRACE_S
from packager.core.text import quote_answer

_POLL_S = 0.5
_ASK_S = 10.0
_INVOKE_S = 600.0
_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")


def not_ours(name: str) -> UsageError:
    """Return an error: compose has a project of that name which packager did not make."""
    return UsageError(
        f"there is a project {name!r} already, which packager did not make",
        hint="choose another --name",
        code="NotOurs",
    )


def not_a_name(name: str) -> UsageError:
    """Return an error: a text cannot name a project, and would name files elsewhere."""
    return UsageError(
        f"{name[:60]!r} cannot name a project",
        hint="give the name that `apply` printed: lower-case letters, digits and '-'",
        code="NotAName",
    )


class LiveCompose(ComposeDeployer):
    """Deploys on this machine's Docker Engine."""

    def __init__(
        self,
        folder: Path,
        engine: Any,
        composer: Composer,
        *,
        timeout_s: float = 3600.0,
        say: Callable[[str], None] = ignore,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        poll_s: float = _POLL_S,
    ) -> None:
        self._folder = folder
        self._engine = engine
        self._composer = composer
        self._timeout_s = timeout_s
        self._say = say
        self._sleep = sleep
        self._clock = clock
        self._poll_s = poll_s
        self._http = timely(urllib3.PoolManager(retries=False))

    def diff(self, deployment: Deployment, wanted: ComposeSpec) -> tuple[Change, ...]:
        """Return what `apply` would do."""
        wanted = with_contents(wanted, self._folder)
        there = self._containers(deployment.name)
        if FRONT not in {one.service for one in there}:
            return (Change(kind="create", resource="project", name=deployment.name),)
        document = self._document(deployment.name)
        serving = self._serving(deployment.name)
        if self._is_current(deployment, wanted, there):
            return (Change(kind="same", resource="project", name=deployment.name),)
        old = document["services"].get(serving[0], {}) if serving else {}
        server = next(iter(server_services(deployment, wanted, GENERATIONS[0]).values()))
        found = differences(old, server)
        if len(serving) != wanted.replicas:
            found = (*found, ("replicas", len(serving), wanted.replicas))
        front = front_changes(document["services"][FRONT], deployment, wanted)
        if not found and not front:
            found = (("files of variables and secrets", "as they were read", "changed"),)
        name = deployment.name
        return (*front, Change(kind="update", resource="servers", name=name, differences=found))

    def apply(self, deployment: Deployment, wanted: ComposeSpec) -> Applied:
        """Start the project, or replace its servers; raise `SmokeFailed` with a server's log.

        New servers that do not answer are removed, and the old ones go on.
        """
        rendered = self.render(deployment, wanted := with_contents(wanted, self._folder))
        if errors_in(rendered.findings):
            raise PlanRejected(rendered.findings)
        name = deployment.name
        with self._locked(name):
            refuse_taken(self._engine, deployment, wanted)
            there = self._containers(name)
            services = {one.service for one in there}
            if FRONT not in services or not self._serving(name):
                self._remove(name, [one.service for one in there])
                self._write(name, rendered.files)
                new = list(server_services(deployment, wanted, GENERATIONS[0]))
                self._composer.up(self._folder / name, name, [*new, FRONT])
                changes = [Change(kind="create", resource="front", name=FRONT)]
                changes += [Change(kind="create", resource="server", name=one) for one in new]
            elif self._is_current(deployment, wanted, there):
                changes = [Change(kind="same", resource="project", name=name)]
                self._finish(name, there)
            else:
                changes = self._update(deployment, wanted, there)
        return Applied(changes=tuple(changes), address=self._address(name))

    def status(self, name: str, *, wait_s: float = 0.0) -> DeployStatus:
        """Return the state of a project, after it settled or `wait_s`."""
        until = self._clock() + wait_s
        while True:
            found = self._status(name)
            if found.state not in ("creating", "updating") or self._clock() >= until:
                return found
            self._sleep(self._poll_s)

    def invoke(self, name: str, body: bytes) -> bytes:
        """Send a request to /invocations and return the answer."""
        address = self._address(name)
        if not address:
            raise NotFound(f"there is no project {name!r}", hint="`packager deploy compose apply`")
        headers = {"Content-Type": "application/json"}
        try:
            answer = self._http.request(
                "POST", f"{address}/invocations", body=body, headers=headers, timeout=_INVOKE_S
            )
        except urllib3.exceptions.HTTPError as error:
            raise Unavailable(
                f"{address} does not answer: {type(error).__name__}",
                hint=f"`packager deploy compose status {name}` says why",
            ) from error
        if answer.status != 200:
            raise SmokeFailed(
                f"the server answered {answer.status}: {quote_answer(answer.data, 300)}",
                hint="see what `docker logs` says of it, and whether the body is what it takes",
            )
        return answer.data

    def delete(self, name: str) -> tuple[Change, ...]:
        """End the servers, requests first, and remove the project with its files."""
        with self._locked(name):
            there = self._containers(name)
            folder = self._folder / name
            if there and (folder / FILE).is_file():
                self._composer.down(folder, name)
            ApiComposer(self._engine).down(folder, name)
            for file in (
                FILE,
                SERVERS_FILE,
                *(one.path for one in files_beside(name)),
            ):
                with suppress(OSError):
                    (folder / file).unlink()
        return tuple(
            Change(kind="delete", resource="service", name=one.service)
            for one in sorted(there, key=lambda one: one.service)
        )

    def _update(
        self, deployment: Deployment, wanted: ComposeSpec, there: Sequence[Running]
    ) -> list[Change]:
        name = deployment.name
        old = self._serving(name)
        document = self._document(name)
        before: dict[str, Service] = {one: document["services"][one] for one in old}
        other = GENERATIONS[generation_of(old[0]) == GENERATIONS[0]]
        servers = server_services(deployment, wanted, other)
        digest = config_digest(deployment, wanted)
        begun = {one.service for one in there if one.config == digest and one.service in servers}
        stale = [one.service for one in there if generation_of(one.service) == other]
        self._remove(name, [one for one in stale if one not in begun])
        front = document["services"][FRONT]
        wanted_front = front_service(deployment, wanted, front["image"])
        changes = [*front_changes(front, deployment, wanted)]
        if changes:
            self._say("replacing the front: connections are refused until the new one listens")
            self._remove(name, [FRONT])
        held = _secrets_of(document)  # the servers before may need others than the new ones
        both = document_of(wanted_front, {**before, **servers}, {**held, **wanted.secrets})
        new = list(servers)
        room = has_room(deployment, wanted)
        # First, since it must name every server of the front, whenever this process ends.
        self._write(name, [*files_beside(name), render_document(both)])
        if not room:
            self._say(f"ending {', '.join(old)}: their devices are needed")
            self._write(name, [self._servers(deployment, new)])
            self._remove(name, old)
        else:
            self._write(name, [self._servers(deployment, old, new)])
        self._say(f"starting {', '.join(new)}")
        self._composer.up(self._folder / name, name, [FRONT, *new])
        try:
            self._wait_for(name, new)
        except (SmokeFailed, Unavailable):
            if room:
                self._remove(name, new)
                kept = document_of(wanted_front, before, held)
                self._write(name, [self._servers(deployment, old), render_document(kept)])
            raise
        if room:
            self._write(name, [self._servers(deployment, new)])
            self._say(f"requests go to {', '.join(new)}")
            self._drain(ended(deployment, wanted), old)
            self._remove(name, old)
        self._write(name, [render_document(document_of(wanted_front, servers, wanted.secrets))])
        changes += [Change(kind="create", resource="server", name=one) for one in new]
        changes += [Change(kind="delete", resource="server", name=one) for one in old]
        return changes

    def _finish(self, name: str, there: Sequence[Running]) -> None:
        """End what an update has left that was killed after the new servers took over."""
        serving = self._serving(name)
        rest = [one.service for one in there if one.service not in {*serving, FRONT}]
        if rest:
            self._remove(name, rest)
            document = self._document(name)
            kept = {one: document["services"][one] for one in serving}
            whole = document_of(document["services"][FRONT], kept, _secrets_of(document))
            self._write(name, [render_document(whole)])

    def _is_current(
        self, deployment: Deployment, wanted: ComposeSpec, there: Sequence[Running]
    ) -> bool:
        """Return whether the servers that get requests are the desired ones."""
        serving = self._serving(deployment.name)
        digest = config_digest(deployment, wanted)
        running = {one.service for one in there if one.config == digest and one.status == "running"}
        front = self._document(deployment.name).get("services", {}).get(FRONT, {})
        return (
            len(serving) == wanted.replicas
            and running.issuperset(serving)
            and not front_changes(front, deployment, wanted)
        )

    def _wait_for(self, name: str, services: Sequence[str]) -> None:
        """Wait until the front has an answer of each; raise with the log of one that ended."""
        until = self._clock() + self._timeout_s
        while True:
            state = self._front_state(name)
            ready = state.get("ready", {})
            if all(is_ready(ready, one) for one in services):
                return
            for one in self._containers(name):
                if one.service in services and (one.restarts or one.status in ("exited", "dead")):
                    raise ended_error(one)
            if self._clock() >= until:
                raise SmokeFailed(
                    f"the new servers did not answer within {self._timeout_s:.0f} s",
                    hint="give them longer with --timeout; the old ones go on",
                )
            self._sleep(self._poll_s)

    def _drain(self, deployment: Deployment, services: Sequence[str]) -> None:
        """Wait until the front has no request left at these servers, or their time is over."""
        until = self._clock() + (deployment.grace_s or PLATFORM_GRACE_S)
        names = {f"{one}:{deployment.port}" for one in services}
        while True:
            state = self._front_state(deployment.name)
            read = state.get("servers")
            busy = names & {*state.get("in_flight", {})}
            if isinstance(read, list) and not names & {*read} and not busy:
                return
            if self._clock() >= until:
                return  # SIGTERM gives the rest the drain of the engine
            self._sleep(self._poll_s)

    def _status(self, name: str) -> DeployStatus:
        there = self._containers(name)
        folder = str(self._folder / name)
        if not there:
            return DeployStatus(state="absent", said="no container has its labels")
        serving = self._serving(name)
        ready = self._front_state(name).get("ready", {})
        count = sum(is_ready(ready, one) for one in serving)
        servers = [one for one in there if generation_of(one.service)]
        bad = [
            one
            for one in servers
            if one.service in serving
            and (one.status in ("exited", "dead") or one.restarts)
            and not is_ready(ready, one.service)
        ]
        others = [one for one in servers if one.service not in serving]
        state: Any = "creating"
        if bad:
            state = "failed"
        elif others:
            state = "updating"
        elif serving and count == len(serving):
            state = "ready"
        return DeployStatus(
            state=state,
            said=f"{count} of {len(serving)} answer",
            image=next((one.image for one in servers if one.service in serving), ""),
            ready=count,
            wanted=len(serving),
            reason=ended_error(bad[0]).message if bad else "",
            address=self._address(name),
            details={"directory": folder, "services": sorted(one.service for one in there)},
        )

    def _containers(self, name: str) -> list[Running]:
        """Return the containers of a project; raise `UsageError`."""
        if not _NAME.fullmatch(name):
            raise not_a_name(name)
        with engine_errors():
            found = self._engine.containers.list(
                all=True, filters={"label": f"{PROJECT}={name}"}, ignore_removed=True
            )
            made = [running_of(one) for one in found if one.labels.get(LABEL) == name]
        if len(made) != len(found):
            raise not_ours(name)
        return made

    def _address(self, name: str) -> str:
        return next((one.address for one in self._containers(name) if one.service == FRONT), "")

    def _front_state(self, name: str) -> Mapping[str, Any]:
        """Return what the front says; {} where it does not answer."""
        address = self._address(name)
        if not address:
            return {}
        try:
            answer = self._http.request("GET", f"{address}{STATE}", timeout=_ASK_S)
            return parse_object(answer.data[:MAX_BYTES]) if answer.status == 200 else {}
        except (urllib3.exceptions.HTTPError, NotStrict):
            return {}

    def _serving(self, name: str) -> list[str]:
        """Return the services that the front sends requests to; [] if unknown."""
        try:
            found = json.loads((self._folder / name / SERVERS_FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return []
        return [str(one).rpartition(":")[0] for one in found["servers"]]

    def _document(self, name: str) -> dict[str, Any]:
        try:
            return parse_document((self._folder / name / FILE).read_text(encoding="utf-8"))
        except OSError:
            return {}

    @staticmethod
    def _servers(
        deployment: Deployment, serving: Sequence[str], coming: Sequence[str] = ()
    ) -> DeployFile:
        return servers_file(deployment.port, deployment.health_path, serving, coming)

    def _write(self, name: str, files: Sequence[DeployFile]) -> None:
        for file in files:
            place = self._folder / name / file.path
            with explain_disk_errors(place):
                place.parent.mkdir(parents=True, exist_ok=True)
                if not place.is_file() or place.read_text(encoding="utf-8") != file.text:
                    write_atomically(place, file.text.encode())
                place.chmod(0o644)  # the servers' user reads them, whatever the umask is
                place.parent.chmod(0o755)

    def _remove(self, name: str, services: Sequence[str]) -> None:
        if not services:
            return
        named = self._document(name).get("services", {})
        known = [one for one in services if one in named]
        if known:
            self._composer.remove(self._folder / name, name, known)
        if rest := [one for one in services if one not in named]:
            ApiComposer(self._engine).remove(self._folder / name, name, rest)

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        """Hold the project: another command that changes it is refused."""
        from filelock import FileLock, Timeout

        if not _NAME.fullmatch(name):
            raise not_a_name(name)
        place = self._folder / f".{name}.lock"
        with explain_disk_errors(place):
            self._folder.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(place, timeout=0):
                yield
        except Timeout as error:
            raise Unavailable(
                f"another command changes {name!r}", hint="wait until it has ended"
            ) from error


def _secrets_of(document: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(one["file"]) for name, one in document.get("secrets", {}).items()}
