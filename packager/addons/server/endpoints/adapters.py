"""Adapter inference components: LoRA adapters of a component that runs, loaded by its containers.

Every container of a component sees one folder read-only; an archive is unpacked below it, checked
as a build checks adapters, and the container is asked to load it, by SageMaker's own request (POST
/adapters).  Containers are compared with what they should have: one that started anew, or a copy
more, loads all of them again.
"""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp

from packager.addons.deploy.sagemaker.api_refusals import ValidationRefused
from packager.addons.server.endpoints.fleet import LOG_HINT, EndpointFleet, in_thread
from packager.addons.server.endpoints.model_data import Deadline, FindPlace, fetch_data, open_to_all
from packager.addons.server.endpoints.traffic import Pool, TrafficServer
from packager.addons.server.sagemaker.hosting import DOWNLOAD_S, ModelData
from packager.core.adapters import CONFIG
from packager.core.errors import ModelRefused, SmokeFailed
from packager.core.files.atomic import explain_disk_errors
from packager.core.references import DirectoryReference, parse_bucket_place
from packager.models.adapters.read import adapter_of
from packager.models.local import LocalSource

FOLDER = "adapters"  # beside the data of deployments
IN_CONTAINER = "/opt/ml/adapters"
IDENTIFIER = "Adapter-Identifier"  # header of an invocation, behind X-Amzn-SageMaker-
ARCHIVE = ".tar.gz"
_LOAD_S = 300.0
_LOOK_S = 0.5
_NOT_SERVED = (404, 405)
_TAKEN = (400, 409)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSpec:
    """An adapter that the containers of another component load."""

    base: str  # the other component
    uri: str  # of its archive

    def document(self) -> dict[str, Any]:
        """Return the same as JSON has it."""
        return {"base": self.base, "uri": self.uri}

    @classmethod
    def read(cls, document: Mapping[str, Any] | None) -> AdapterSpec | None:
        """Return what `document` wrote; None for None."""
        return None if document is None else cls(**document)


def check_adapter(specification: Mapping[str, Any]) -> AdapterSpec:
    """Return the adapter of a component's specification; raises `ValidationRefused`."""
    base = specification["BaseInferenceComponentName"]
    others = ("ModelName", "ComputeResourceRequirements", "StartupParameters")
    container = specification.get("Container") or {}
    given = [one for one in others if specification.get(one)]
    given += [f"Container.{one}" for one in ("Image", "Environment") if container.get(one)]
    if given:
        raise ValidationRefused(
            f"Specification.{given[0]} and BaseInferenceComponentName exclude each other: "
            "an adapter has the container of its base."
        )
    uri = container.get("ArtifactUrl") or ""
    if parse_bucket_place(uri) is None or not uri.endswith(ARCHIVE):
        raise ValidationRefused(
            f"Specification.Container.ArtifactUrl of an adapter is one {ARCHIVE} in S3."
        )
    return AdapterSpec(base=base, uri=uri)


class LoadedAdapters:
    """Adapters of one server's components: their files, and which container has loaded which."""

    def __init__(
        self,
        fleet: EndpointFleet,
        folder: Path,
        find_place: FindPlace,
        servers_of: Callable[[str], list[TrafficServer]],
        status_of: Callable[[str], Awaitable[str]],
    ) -> None:
        self._servers_of = servers_of  # of a component
        self._status_of = status_of
        self._fleet = fleet
        self._folder = folder / FOLDER
        self._find_place = find_place
        self._wanted: dict[str, dict[str, str]] = {}  # base → name → folder in the container
        self._locks: dict[str, asyncio.Lock] = {}  # by container

    def mounted(self, component: str) -> dict[str, Path]:
        """Return the folder of a component's adapters by where its containers see it."""
        place = self._folder / component
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(0o755)
        return {IN_CONTAINER: place}

    async def load(self, name: str, spec: AdapterSpec, generation: str) -> None:
        """Load an adapter into every container of its base; raise a `PackagerError` if one cannot.

        Then those that had another one of that name have it again.
        """
        servers = await self._base_servers(spec.base)
        inside = await self._fetched(name, spec, generation)
        wanted = self._wanted.setdefault(spec.base, {})
        before = wanted.get(name)
        wanted[name] = inside
        try:
            for server in servers:
                await self.settle(spec.base, server)
        except BaseException:
            wanted.pop(name)
            if before is not None:
                wanted[name] = before
            raise
        for place in (self._folder / spec.base).glob(f"{name}.*"):
            if place.name != f"{name}.{generation}":
                await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)

    async def forget(self, name: str, spec: AdapterSpec | None) -> None:
        """Unload the adapter that a component is, or remove the folder of those that it had."""
        if spec is None:
            self._wanted.pop(name, None)
            await asyncio.to_thread(shutil.rmtree, self._folder / name, ignore_errors=True)
            return
        self._wanted.get(spec.base, {}).pop(name, None)
        for server in self._servers_of(spec.base):
            with suppress(SmokeFailed):  # it has none of them when it starts again
                await self.settle(spec.base, server)
        for place in (self._folder / spec.base).glob(f"{name}.*"):
            await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)

    async def _base_servers(self, base: str) -> list[TrafficServer]:
        """Return the containers of a component, once they answer after a start of this server."""
        while not (servers := self._servers_of(base)):
            status = await self._status_of(base)
            if status not in ("InService", "Creating", "Updating"):
                raise SmokeFailed(
                    f"the base inference component {base!r} is {status}", hint="make it again first"
                )
            await asyncio.sleep(_LOOK_S)
        return servers

    async def settle(self, base: str, server: TrafficServer) -> None:
        """Load into a container what it lacks, and unload what it should not have."""
        async with self._locks.setdefault(server.container, asyncio.Lock()):
            wanted = self._wanted.get(base, {})
            for name in [one for one, at in server.adapters.items() if wanted.get(one) != at]:
                await self._asked(server, "DELETE", f"/adapters/{name}", {})
                del server.adapters[name]
            for name, inside in tuple(wanted.items()):
                if server.adapters.get(name) != inside:
                    await self._loaded(server, name, inside)
                    server.adapters[name] = inside

    def pick(self, pools: Mapping[str, Pool], name: str) -> TrafficServer | None:
        """Return a container that has loaded an adapter, the one with the fewest requests."""
        servers = [server for pool in pools.values() for server in pool.servers]
        ready = [one for one in servers if one.is_ready and name in one.adapters]
        return min(ready, key=lambda one: one.in_flight, default=None)

    async def _loaded(self, server: TrafficServer, name: str, inside: str) -> None:
        """Ask a container to load an adapter, as vLLM's SageMaker layer and LMI read it."""
        body = {"name": name, "src": inside}
        path = f"/adapters?{urlencode(body)}"
        status, said = await self._asked(server, "POST", path, body)
        if status in _TAKEN:  # by an adapter of that name: a server before this one loaded it
            await self._asked(server, "DELETE", f"/adapters/{name}", {})
            status, said = await self._asked(server, "POST", path, body)
        if status in _NOT_SERVED:
            raise SmokeFailed(
                "the container of the base has no POST /adapters, by which SageMaker loads them",
                hint="vLLM has it in images of --allow-runtime-adapters, LMI beside adapters, "
                "SGLang and TGI never: bake them with `packager build --adapter`",
            )
        if status >= 300:
            raise SmokeFailed(
                f"the container does not load the adapter {name!r}: {said[:300]}",
                hint="`packager plan --adapter` says whether it fits the base",
            )

    async def _asked(
        self, server: TrafficServer, method: str, path: str, body: Mapping[str, str]
    ) -> tuple[int, str]:
        times = aiohttp.ClientTimeout(total=_LOAD_S)
        try:
            async with self._fleet.http().request(
                method, f"{server.url}{path}", json=body, timeout=times, allow_redirects=False
            ) as answer:
                said = await answer.content.read(4096)
                return answer.status, " ".join(said.decode(errors="replace").split())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise SmokeFailed(
                f"the container of the base does not answer: {type(error).__name__}",
                hint=LOG_HINT,
            ) from error

    async def _fetched(self, name: str, spec: AdapterSpec, generation: str) -> str:
        """Return where containers find an adapter's files, which are unpacked and checked."""
        place = self._folder / spec.base / f"{name}.{generation}"
        cancelled = threading.Event()
        deadline = Deadline(time.monotonic() + DOWNLOAD_S, DOWNLOAD_S, cancelled)
        found = await in_thread(partial(self._unpacked, spec, place, deadline), cancelled.set)
        return f"{IN_CONTAINER}/{found.relative_to(self._folder / spec.base)}"

    def _unpacked(self, spec: AdapterSpec, place: Path, deadline: Deadline) -> Path:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        data = ModelData(spec.uri, "", "archive")
        try:
            with explain_disk_errors(place):
                fetch_data(data, place, deadline, place=self._find_place(spec.uri))
                open_to_all(place)
            return _checked(place)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise


def _checked(place: Path) -> Path:
    """Return the folder of the adapter in an unpacked archive; raise `ModelRefused`.

    Some servers run code that lies in it, and read pickles: only an adapter's own files stay.
    """
    folders = [place, *(one for one in place.iterdir() if one.is_dir() and not one.is_symlink())]
    found = next((one for one in folders if (one / CONFIG).is_file()), None)
    if found is None:
        raise ModelRefused(
            f"the archive has no {CONFIG!r}", hint="pack what PEFT's `save_pretrained` writes"
        )
    files = LocalSource(is_adapter=True).facts(DirectoryReference.at(found))
    adapter_of("component", files)
    kept = {file.path for file in files.files}
    for path in sorted(found.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif str(path.relative_to(found)) not in kept:
            path.unlink()
    return found
