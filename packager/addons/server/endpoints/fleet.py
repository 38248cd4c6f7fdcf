"""Containers of one deployment: started until all answer, adopted, stopped."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import aiohttp

from packager.addons.server.endpoints.containers import Container, Containers
from packager.addons.server.endpoints.model_data import Deadline, FindPlace, fetch_data, open_to_all
from packager.addons.server.endpoints.traffic import TrafficServer
from packager.addons.server.sagemaker.hosting import ServerSpec
from packager.core.errors import PackagerError, SmokeFailed
from packager.core.files.atomic import explain_disk_errors

LOG_HINT = "the endpoint's log has what the container wrote"
_POLL_S = 0.25
_LOG_LINES = 5000
_PING_S = 2.0  # SageMaker's own limit for an answer to /ping
_Result = TypeVar("_Result")
_COMPLETE = "complete"  # a file that tells that a folder has all its data


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSpec:
    """Containers of one kind that are to run."""

    owner: str  # `endpoint/NAME/VARIANT`, `component/NAME`
    variant: str
    generation: str
    spec: ServerSpec
    copies: int = 1
    component: str = ""  # whose adapters its containers load; "" of endpoints

    def place(self, copy: int) -> str:
        """Return a copy's label."""
        return f"{self.owner}/{copy}"


class EndpointFleet:
    """Starts and stops containers; its methods run in the server's event loop."""

    def __init__(
        self,
        containers: Containers,
        folder: Path,
        find_place: FindPlace,
        adapters_of: Callable[[str], Mapping[str, Path]] = lambda _: {},
    ) -> None:
        self._containers = containers
        self._folder = folder
        self._find_place = find_place
        self.adapters_of = adapters_of  # of a component: folders by where its containers see them
        self._session: aiohttp.ClientSession | None = None

    def http(self) -> aiohttp.ClientSession:
        """Return the HTTP session for requests to containers.

        Every request opens a connection: on an idle one, a request is lost if the server closes it
        at that moment.
        """
        if self._session is None or self._session.closed:
            connector = aiohttp.TCPConnector(limit=0, force_close=True)
            self._session = aiohttp.ClientSession(
                connector=connector, auto_decompress=False, trust_env=False
            )
        return self._session

    async def close(self) -> None:
        """Close connections; containers go on."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def bring_up(self, wanted: EndpointSpec) -> list[TrafficServer]:
        """Return the servers once each answers /ping; running ones are adopted.

        Raises a `PackagerError` with the reason, after which the caller stops the remaining
        containers.
        """
        if wanted.copies == 0:
            return []
        running = {
            found.owner: found
            for found in await asyncio.to_thread(self._containers.all)
            if found.generation == wanted.generation
        }
        spec = wanted.spec
        missing = [
            copy for copy in range(wanted.copies) if not _runs(running.get(wanted.place(copy)))
        ]
        folders = {}
        if missing:
            await asyncio.to_thread(self._containers.prepare, spec.image)
            folders = await self._download(wanted)
            if wanted.component:
                folders |= self.adapters_of(wanted.component)
        for copy in missing:
            ended = running.get(wanted.place(copy))
            if ended is not None:
                await asyncio.to_thread(self._containers.remove, ended.id)
            running[wanted.place(copy)] = await in_thread(
                partial(
                    self._containers.start,
                    spec,
                    owner=wanted.place(copy),
                    generation=wanted.generation,
                    folders=folders,
                )
            )
        started = [running[wanted.place(copy)] for copy in range(wanted.copies)]
        await asyncio.gather(*(self.wait_for_ping(one, spec.health_s) for one in started))
        return [TrafficServer(one.id, one.url, wanted.variant) for one in started]

    async def wait_for_ping(self, container: Container, most_s: float) -> None:
        """Wait until /ping answers 200; raises `SmokeFailed` with the end of the log."""
        end = time.monotonic() + most_s
        while True:
            if await self.answers(container.url):
                return
            found = await asyncio.to_thread(self._containers.look, container.id)
            if found is None or not found.is_running:
                reason = await asyncio.to_thread(self._containers.failure, container.id)
                raise SmokeFailed(reason, hint=LOG_HINT)
            if time.monotonic() > end:
                reason = await asyncio.to_thread(self._containers.failure, container.id)
                raise SmokeFailed(
                    f"the container did not pass its health check within {most_s:.0f} s: {reason}",
                    hint=LOG_HINT,
                )
            await asyncio.sleep(_POLL_S)

    async def check_runs(self, server: TrafficServer) -> None:
        """Raise `SmokeFailed` where a container has ended, or was removed."""
        found = await asyncio.to_thread(self._containers.look, server.container)
        if found is None or not found.is_running:
            server.is_ready = False
            reason = await asyncio.to_thread(self._containers.failure, server.container)
            raise SmokeFailed(reason, hint=LOG_HINT)

    async def answers(self, url: str) -> bool:
        """Return whether a container reports that it is ready."""
        try:
            times = aiohttp.ClientTimeout(total=_PING_S)
            async with self.http().get(
                f"{url}/ping", timeout=times, allow_redirects=False
            ) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return False

    async def take_down(self, servers: Sequence[TrafficServer], drain_s: float) -> None:
        """End containers once their requests have ended, or after so many seconds."""

        async def end(server: TrafficServer) -> None:
            server.is_ready = False
            await server.drained(drain_s)
            await asyncio.to_thread(self._containers.stop, server.container)

        await asyncio.gather(*(end(server) for server in servers))

    async def remove_generation(self, generation: str, but: Collection[str] = frozenset()) -> None:
        """Remove the containers of a deployment, and its data where none is left out."""
        for found in await asyncio.to_thread(self._containers.all):
            if found.generation == generation and found.id not in but:
                await asyncio.to_thread(self._containers.remove, found.id)
        if not but:
            place = self._folder / generation
            await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)

    async def remove_all_of(self, owner: str) -> None:
        """Remove every container of an endpoint or component, of whatever deployment."""
        for found in await asyncio.to_thread(self._containers.all):
            if found.owner.startswith(f"{owner}/"):
                await asyncio.to_thread(self._containers.remove, found.id)

    async def remove_unknown(self, known: Collection[str]) -> None:
        """Remove containers and data of deployments that are not among these."""
        for found in await asyncio.to_thread(self._containers.all):
            if found.generation not in known:
                await asyncio.to_thread(self._containers.remove, found.id)
        for place in self._folder.glob("*/"):
            if place.name not in known:
                await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)

    async def logs(self, owner: str) -> dict[str, str]:
        """Return the logs of an endpoint's or a component's containers, by VARIANT/CONTAINER."""
        return {
            f"{found.owner.removeprefix(f'{owner}/').partition('/')[0]}/{found.id[:12]}": (
                await asyncio.to_thread(self._containers.log, found.id, lines=_LOG_LINES)
            )
            for found in await asyncio.to_thread(self._containers.all)
            if found.owner.startswith(f"{owner}/")
        }

    async def save_log(self, generation: str, file: Path) -> None:
        """Write the ends of the logs of a deployment's containers into a file."""
        found = await asyncio.to_thread(self._containers.all)
        logs = [
            await asyncio.to_thread(self._containers.log, one.id)
            for one in found
            if one.generation == generation
        ]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(logs), encoding="utf-8")

    async def _download(self, wanted: EndpointSpec) -> dict[str, Path]:
        """Return folders with the model data by where a container has them."""
        place = self._folder / wanted.generation / wanted.variant
        folders = {data.folder: place / str(number) for number, data in enumerate(wanted.spec.data)}
        if (place / _COMPLETE).exists() or not folders:
            return folders
        cancelled = threading.Event()
        limit = wanted.spec.download_s
        deadline = Deadline(time.monotonic() + limit, limit, cancelled)

        def fetch() -> None:
            shutil.rmtree(place, ignore_errors=True)
            with explain_disk_errors(place):
                for data in wanted.spec.data:
                    place_of = self._find_place(data.uri)
                    fetch_data(data, folders[data.folder], deadline, place=place_of)
                    open_to_all(folders[data.folder])
                (place / _COMPLETE).touch()

        await in_thread(fetch, cancelled.set)
        return folders


async def in_thread(
    work: Callable[[], _Result], cancel: Callable[[], None] = lambda: None
) -> _Result:
    """Run in a thread, and wait for its end when this task is cancelled, too."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise


def _runs(found: Container | None) -> bool:
    return found is not None and found.is_running


def reason_of(error: BaseException) -> str:
    """Return a failure's reason for clients, without details of unexpected errors."""
    if isinstance(error, PackagerError):
        return f"{error.message}; {error.hint}" if error.hint else error.message
    return "an internal error; the server's log has it"


def too_long(seconds: float) -> PackagerError:
    """Return an error: a deployment exceeded its time limit."""
    return PackagerError(
        f"the deployment took longer than {seconds:.0f} s",
        hint="give it longer with MaximumExecutionTimeoutInSeconds",
        code="TookTooLong",
    )
