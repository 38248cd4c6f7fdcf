"""The states of endpoints and inference components, and the transitions between them.

    create     Creating  → InService | Failed
    update     Updating  → InService, or RollingBack → InService with a FailureReason
    delete     Deleting  → gone
    restart of the server: SystemUpdating → InService | Failed; what was under way goes on

The desired state is persisted before containers start, with the deployment's number (`generation`),
which labels its containers: after a crash, containers of persisted deployments are adopted, and all
others are removed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from packager.addons.deploy.sagemaker.api_refusals import ResourceNotFound, ValidationRefused
from packager.addons.server.captures import Captures
from packager.addons.server.endpoints.adapters import FOLDER, AdapterSpec, LoadedAdapters
from packager.addons.server.endpoints.containers import Containers
from packager.addons.server.endpoints.deployments import (
    COMPONENT,
    ENDPOINT,
    EndpointDeployment,
    Live,
    deployments_of,
    owner_of,
)
from packager.addons.server.endpoints.fleet import EndpointFleet, in_thread, reason_of, too_long
from packager.addons.server.endpoints.model_data import FindPlace
from packager.addons.server.endpoints.traffic import Pool, TrafficServer
from packager.addons.server.resources import Resource, ResourceStore
from packager.addons.server.sagemaker.hosting import FAILURE_LENGTH
from packager.addons.server.sagemaker.rollout import ALARMS_IGNORED, AT_ONCE, Rollout, read_rollout
from packager.core.capture.keeping import Capture
from packager.core.errors import PackagerError, Unavailable

DRAIN_S = 60.0  # the longest invocation
_WATCH_S = 5.0
_LONGEST_PAUSE_S = 60.0  # between two attempts to start a container that keeps ending
_DELETE = "delete"
_KEPT = "failed"  # log stream of a removed container

_log = logging.getLogger(__name__)


class Endpoints:
    """Endpoints and inference components of one server; used in its event loop alone."""

    def __init__(
        self,
        store: ResourceStore,
        containers: Containers,
        folder: Path,
        captures: Captures,
        find_place: FindPlace = lambda _: None,
    ) -> None:
        self.containers = containers
        self.captures = captures
        self._store = store
        self._folder = folder
        self._fleet = EndpointFleet(containers, folder, find_place)
        known = (self._servers_of, self._status_of)
        self.adapters = LoadedAdapters(self._fleet, folder, find_place, *known)
        self._fleet.adapters_of = self.adapters.mounted
        self._live: dict[tuple[str, str], Live] = {}
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._watch: asyncio.Task[None] | None = None
        self._restarts: dict[str, int] = {}  # how often a container was started again
        self._left: set[str] = set()  # deployments that are deleted, and could not be removed

    async def start(self) -> None:
        """Adopt running containers, continue deployments, remove unknown containers."""
        await asyncio.to_thread(self.captures.start)
        known = {FOLDER}
        for kind in (ENDPOINT, COMPONENT):
            for resource in await asyncio.to_thread(self._store.every, kind):
                known |= {one["id"] for one in deployments_of(resource)}
                if resource.status == "Deleting":
                    self._begin(resource, partial(self._delete, resource), _DELETE)
                elif resource.status != "Failed":
                    self._begin(resource, partial(self._resume, resource))
        with suppress(PackagerError):  # without an Engine there are no containers
            await self._fleet.remove_unknown(known)
        self._watch = asyncio.create_task(self._watch_all())

    async def close(self) -> None:
        """Stop running deployments; containers keep running, and the next start adopts them."""
        tasks = [*self._tasks.values(), *([self._watch] if self._watch else ())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._fleet.close()
        await asyncio.to_thread(self.captures.close)

    def http(self) -> aiohttp.ClientSession:
        """Return the HTTP session for requests to containers."""
        return self._fleet.http()

    def pools(self, kind: str, name: str) -> Mapping[str, Pool]:
        """Return the containers that take requests now, by variant."""
        live = self._live.get((kind, name))
        return live.pools if live else {}

    def route(self, endpoint: str) -> Mapping[str, Pool]:
        """Return the containers of an endpoint that the next request is for, by variant."""
        live = self._live.get((ENDPOINT, endpoint))
        return live.route() if live else {}

    def shifted(self, endpoint: str) -> float | None:
        """Return the share of requests that a deployment takes already; None before it does."""
        live = self._live.get((ENDPOINT, endpoint))
        return live.share if live and live.coming else None

    def capture(self, endpoint: str, variant: str) -> Capture | None:
        """Return what keeps the traffic of a variant; None where it is not captured."""
        live = self._live.get((ENDPOINT, endpoint))
        if live is None or live.capture is None:
            return None
        if variant not in live.captures:
            live.captures[variant] = self.captures.of(endpoint, variant, live.capture)
        return live.captures[variant]

    async def logs(self, kind: str, name: str) -> dict[str, str]:
        """Return the logs of containers by name; each line begins with its time.

        A failed container has its stored log.
        """
        found = await self._fleet.logs(owner_of(kind, name))
        kept = self._log_file(kind, name)
        if not found and kept.exists():
            return {_KEPT: await asyncio.to_thread(kept.read_text, "utf-8", "replace")}
        return found

    async def create(
        self,
        kind: str,
        name: str,
        asked: EndpointDeployment,
        *,
        arn: str,
        tags: Mapping[str, str],
        **more: Any,
    ) -> Resource:
        """Store a new endpoint or component and begin to deploy it; raises `ResourceInUse`.

        `more` are further members of the document.
        """
        document = {**more, "active": None, "next": asked.document(), "failure": ""}
        made = await asyncio.to_thread(
            lambda: self._store.create(kind, name, document, arn=arn, status="Creating", tags=tags)
        )
        self._begin(made, partial(self._deploy, kind, name))
        return made

    async def update(
        self, kind: str, name: str, asked: EndpointDeployment, **more: Any
    ) -> Resource:
        """Begin to replace what runs; raises `ValidationRefused` where something is under way.

        `more` are further members of the document.
        """
        before = await asyncio.to_thread(self._store.get, kind, name)
        document = {**before.document, **more, "next": asked.document(), "failure": ""}
        changed = await self._change(
            before,
            document=document,
            status="Updating",
            only_from=frozenset({"InService", "UpdateRollbackFailed"}),
        )
        if changed.status != "Updating" or changed.document != document:
            raise ValidationRefused(f'Cannot update in-progress {kind} "{before.arn}".')
        self._begin(changed, partial(self._deploy, kind, name))
        return changed

    async def delete(self, kind: str, name: str) -> None:
        """Begin to end an endpoint or component, whatever is under way."""
        found = await asyncio.to_thread(self._store.get, kind, name)
        task = self._tasks.get((kind, name))
        if task is not None and task.get_name() == _DELETE:
            return
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        deleting = await self._change(found, status="Deleting")
        self._begin(deleting, partial(self._delete, deleting), _DELETE)

    async def set_weights(self, name: str, weights: Mapping[str, float]) -> None:
        """Change shares of requests, at once; raises `ValidationRefused`."""
        found = await asyncio.to_thread(self._store.get, ENDPOINT, name)
        active = found.document["active"]
        if found.status != "InService" or active is None:
            raise ValidationRefused(f'Cannot update in-progress endpoint "{found.arn}".')
        variants = [dict(variant) for variant in active["variants"]]
        unknown = weights.keys() - {variant["name"] for variant in variants}
        if unknown:
            raise ValidationRefused(f"There is no production variant {min(unknown)}.")
        for variant in variants:
            variant["weight"] = weights.get(variant["name"], variant["weight"])
            pool = self.pools(ENDPOINT, name).get(variant["name"])
            if pool is not None:
                pool.weight = variant["weight"]
        document = {**found.document, "active": {**active, "variants": variants}}
        await asyncio.to_thread(lambda: self._store.update(ENDPOINT, name, document=document))

    def _begin(
        self, resource: Resource, work: Callable[[], Coroutine[Any, Any, None]], purpose: str = ""
    ) -> None:
        key = (resource.kind, resource.name)
        before = self._tasks.get(key)  # it may wait for the last requests of old containers

        async def work_then() -> None:
            if before is not None:
                await asyncio.gather(before, return_exceptions=True)
            await work()

        task = asyncio.create_task(work_then(), name=purpose)
        self._tasks[key] = task

        def ended(task: asyncio.Task[None]) -> None:
            if self._tasks.get(key) is task:
                del self._tasks[key]
            if not task.cancelled() and (error := task.exception()) is not None:
                _log.error("%s %s: %r", *key, error)

        task.add_done_callback(ended)

    async def _resume(self, resource: Resource) -> None:
        """Start the current deployment, then continue an unfinished one."""
        kind, name = resource.kind, resource.name
        active = EndpointDeployment.read(resource.document["active"])
        if active is not None:
            if kind == ENDPOINT and resource.document["next"] is None:
                await self._change(resource, status="SystemUpdating")
            try:
                self._live[kind, name] = await self._up_when_possible(kind, name, active)
            except Exception as error:
                _log.warning("%s %s: %s", kind, name, reason_of(error))
                await self._settle(resource, "Failed", reason_of(error))
                return
        if resource.document["next"] is not None:
            await self._deploy(kind, name)
        elif active is not None:
            await self._settle(resource, "InService", resource.document["failure"])

    async def _up_when_possible(self, kind: str, name: str, asked: EndpointDeployment) -> Live:
        """Start a deployment; wait for an Engine that does not answer yet."""
        while True:
            try:
                return await self._up(kind, name, asked)
            except Unavailable as error:
                _log.warning("%s %s waits: %s", kind, name, reason_of(error))
                await asyncio.sleep(_WATCH_S)

    async def _deploy(self, kind: str, name: str) -> None:
        """Start the next deployment, switch to it, and end the one before."""
        found = await asyncio.to_thread(self._store.get, kind, name)
        asked = EndpointDeployment.read(found.document["next"])
        before = EndpointDeployment.read(found.document["active"])
        assert asked is not None
        old = self._live.get((kind, name))
        rollout = read_rollout(found.document.get("policy"), asked.instances) if old else AT_ONCE
        try:
            async with asyncio.timeout(rollout.most_s):
                live = await self._up(kind, name, asked)
                if old is not None:
                    await self._shift(name, old, live, rollout)
        except Exception as error:
            if isinstance(error, TimeoutError):
                error = too_long(rollout.most_s or 0)
            elif not isinstance(error, PackagerError):
                _log.exception("%s %s cannot be deployed", kind, name)
            await self._withdraw(old)
            await self._roll_back(found, asked, before, reason_of(error))
            return
        finally:
            if old is not None:
                old.coming = None
        self._live[kind, name] = live
        document = {**found.document, "active": asked.document(), "next": None, "failure": ""}
        await self._change(found, document=document, status="InService")
        kept = {server.container for server in live.servers()}
        leaving = [one for one in (old.servers() if old else ()) if one.container not in kept]
        await self._fleet.take_down(leaving, DRAIN_S)
        if old is not None and old.capture != live.capture:
            self.captures.complete(name, old.capture)
        if before is not None and before.id != asked.id:
            await self._fleet.remove_generation(before.id)

    async def _shift(self, name: str, old: Live, live: Live, rollout: Rollout) -> None:
        """Move the requests in steps; raises `SmokeFailed` where a new container ends meanwhile."""
        if rollout.alarms:
            _log.warning("endpoint %s: %s: %s", name, ALARMS_IGNORED, ", ".join(rollout.alarms))
        old.coming, waits = live, [rollout.wait_s] * len(rollout.shares)
        waits[-1] += rollout.termination_s
        for share, wait_s in zip(rollout.shares, waits, strict=True):
            old.share = share
            end = time.monotonic() + wait_s
            while (left := end - time.monotonic()) > 0:
                await asyncio.sleep(min(left, _WATCH_S))
                for server in live.servers():
                    await self._fleet.check_runs(server)

    async def _withdraw(self, old: Live | None) -> None:
        """Wait until the requests that new containers have taken already have ended."""
        if old is not None and old.coming is not None:
            coming, old.coming = old.coming, None
            await asyncio.gather(*(server.drained(DRAIN_S) for server in coming.servers()))

    async def _roll_back(
        self,
        found: Resource,
        asked: EndpointDeployment,
        before: EndpointDeployment | None,
        reason: str,
    ) -> None:
        """Remove the new containers; an earlier deployment keeps running."""
        if before is not None and found.kind == ENDPOINT:
            await self._change(found, status="RollingBack")
        live = self._live.get((found.kind, found.name), Live())
        with suppress(PackagerError):
            await self._fleet.save_log(asked.id, self._log_file(found.kind, found.name))
            await self._fleet.remove_generation(
                asked.id, but={server.container for server in live.servers()}
            )
        document = {**found.document, "next": None if before else asked.document()}
        document["failure"] = reason[:FAILURE_LENGTH]
        status = "InService" if before is not None else "Failed"
        await self._change(found, document=document, status=status)

    async def _settle(self, resource: Resource, status: str, failure: str) -> None:
        document = {**resource.document, "failure": failure[:FAILURE_LENGTH]}
        await self._change(resource, document=document, status=status)

    async def _change(
        self,
        resource: Resource,
        *,
        status: str,
        document: Mapping[str, Any] | None = None,
        only_from: frozenset[str] = frozenset(),
    ) -> Resource:
        """Write a new state down; it is written when this task is cancelled, too."""
        return await in_thread(
            lambda: self._store.update(
                resource.kind,
                resource.name,
                document=document,
                status=status,
                only_from=only_from,
            )
        )

    async def _delete(self, resource: Resource) -> None:
        """End the containers, requests first, and forget the resource."""
        key = (resource.kind, resource.name)
        live = self._live.get(key)
        generations = {one["id"] for one in deployments_of(resource)}
        try:
            await self._fleet.take_down(live.servers() if live else (), DRAIN_S)
            await self._fleet.remove_all_of(owner_of(*key))
            for generation in generations:
                await self._fleet.remove_generation(generation)
            if resource.kind == COMPONENT:
                specs = (one.get("adapter") for one in deployments_of(resource))
                await self.adapters.forget(resource.name, AdapterSpec.read(next(specs, None)))
        except PackagerError as error:  # such as an Engine that does not run
            _log.warning("%s %s leaves its containers behind: %s", *key, reason_of(error))
            self._left |= generations
        if live is not None:
            self.captures.complete(resource.name, live.capture)
        self._live.pop(key, None)
        await asyncio.to_thread(self._log_file(*key).unlink, missing_ok=True)
        with suppress(ResourceNotFound):
            await asyncio.to_thread(self._store.delete, *key)

    def _servers_of(self, component: str) -> list[TrafficServer]:
        return self._live.get((COMPONENT, component), Live()).servers()

    async def _status_of(self, component: str) -> str:
        return (await asyncio.to_thread(self._store.get, COMPONENT, component)).status

    def _log_file(self, kind: str, name: str) -> Path:
        return self._folder / f"{kind}-{name}.log"

    async def _up(self, kind: str, name: str, asked: EndpointDeployment) -> Live:
        """Start all containers of a deployment, or none: the first failure ends the others."""
        if asked.adapter is not None:
            await self.adapters.load(name, asked.adapter, asked.id)
            return Live()
        weights = {variant.name: variant.weight for variant in asked.variants}
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {
                    wanted.variant: group.create_task(self._fleet.bring_up(wanted))
                    for wanted in asked.wanted(kind, name)
                }
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        pools = {one: Pool(weights[one], task.result()) for one, task in tasks.items()}
        for server in [server for pool in pools.values() for server in pool.servers]:
            await self.adapters.settle(name if kind == COMPONENT else "", server)
        return Live(pools, asked.capture)

    async def _watch_all(self) -> None:
        """Start containers again that ended by themselves, ever more seldom."""
        while True:
            await asyncio.sleep(_WATCH_S)
            for generation in tuple(self._left):
                with suppress(Exception):
                    await self._fleet.remove_generation(generation)
                    self._left.discard(generation)
            for key, live in tuple(self._live.items()):
                for server in live.servers():
                    with suppress(Exception):
                        await self._watch_one(key, server)

    async def _watch_one(self, key: tuple[str, str], server: TrafficServer) -> None:
        found = await asyncio.to_thread(self.containers.look, server.container)
        if found is None:
            server.is_ready = False
            if key not in self._tasks:  # it was removed meanwhile
                resource = await asyncio.to_thread(self._store.get, *key)
                self._begin(resource, partial(self._resume, resource))
        elif not found.is_running:
            server.is_ready = False
            server.adapters.clear()
            count = self._restarts.get(server.container, 0) + 1
            self._restarts[server.container] = count
            if count & (count - 1) == 0 or count % int(_LONGEST_PAUSE_S / _WATCH_S) == 0:
                await asyncio.to_thread(self.containers.restart, server.container)
        elif not server.is_ready or server.url != found.url:
            server.url = found.url  # Docker gives another port
            server.adapters.clear()
            server.is_ready = await self._fleet.answers(found.url)
        if key[0] == COMPONENT and server.is_ready:
            await self.adapters.settle(key[1], server)
