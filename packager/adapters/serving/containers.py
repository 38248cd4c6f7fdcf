"""Serving containers in the Docker Engine: started, waited for, and removed whatever happens.

The port is published on loopback only, where the engine has a bridge; an
engine without one runs the container on the host's network.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import urllib3

from packager.errors import NotFound, SmokeFailed, Unavailable, UsageError

PORT = 8080
_LOG_LINES = 40
_LOG_BYTES = 16 * 1024  # a line has no limit
_POLL_S = 0.5


def find_image(engine: Any, image: str) -> Any:
    """Give the engine's image of that name."""
    from docker.errors import APIError, ImageNotFound, NullResource

    try:
        return engine.images.get(image)
    except (ImageNotFound, NullResource) as error:
        raise NotFound(
            f"the engine has no image {image!r}",
            hint=f"build it with --output docker:{image}, or pull it first",
        ) from error
    except APIError as error:
        raise UsageError(
            f"the engine does not take {image!r}: {error.explanation or error}",
            hint="name an image as `docker images` shows it",
        ) from error


def digests_of(found: Any) -> tuple[str, ...]:
    """Give what the engine calls an image: its id, and manifests it was pulled or made by."""
    names = found.attrs.get("RepoDigests") or ()
    return (str(found.id), *(str(name).rpartition("@")[2] for name in names))


@contextmanager
def running(
    engine: Any,
    image: str,
    env: Mapping[str, str | None],
    on_progress: Callable[[str], None],
    *,
    purpose: str = "smoke",
    gpus: bool = False,
) -> Iterator[tuple[Any, str]]:
    """Start an image; give its container and address. A variable that is None is taken away.

    An image that sets the variable has it then no more: to the engine, a name without `=`
    is one to remove.
    """
    from docker.errors import APIError, DockerException

    find_image(engine, image)
    bridged = any(network["Driver"] == "bridge" for network in engine.api.networks())
    options: dict[str, Any] = (
        {"ports": {f"{PORT}/tcp": ("127.0.0.1", None)}} if bridged else {"network_mode": "host"}
    )
    if gpus:
        from docker.types import DeviceRequest

        options["device_requests"] = [DeviceRequest(count=-1, capabilities=[["gpu"]])]
    name = f"packager-{purpose}-{secrets.token_hex(6)}"  # known before an interrupt can hide the id
    try:
        try:
            container = engine.containers.create(
                image, name=name, environment=dict(env), shm_size="1g", **options
            )
            on_progress(f"starting {container.short_id} from {image}")
            container.start()
        except APIError as error:
            raise SmokeFailed(
                f"the engine cannot start {image!r}: {error.explanation or error}",
                hint="an image built on scratch has nothing to run; give a serving base",
            ) from error
        container.reload()
        bound = (container.ports or {}).get(f"{PORT}/tcp") if bridged else None
        yield container, f"http://127.0.0.1:{bound[0]['HostPort'] if bound else PORT}"
    except APIError as error:
        raise SmokeFailed(f"the engine lost the container: {error.explanation or error}") from error
    except (DockerException, OSError) as error:
        raise Unavailable(
            "the connection to the Docker Engine was lost",
            hint="see whether it still runs: `docker info`",
        ) from error
    finally:
        with suppress(DockerException, OSError):
            engine.api.remove_container(name, force=True, v=True)


def wait_for_ping(
    http: urllib3.PoolManager,
    container: Any,
    url: str,
    deadline_s: float,
    on_progress: Callable[[str], None],
) -> None:
    """Poll until /ping says 200. An ended container fails at once, not at the deadline."""
    started = time.monotonic()
    said = started
    while True:
        with suppress(urllib3.exceptions.HTTPError):
            if http.request("GET", f"{url}/ping", timeout=5.0).status == 200:
                return
        container.reload()
        if container.status not in ("running", "created"):
            code = container.attrs["State"]["ExitCode"]
            raise SmokeFailed(
                f"the container ended with status {code} before it answered",
                hint="its log is above",
            )
        now = time.monotonic()
        if now - started > deadline_s:
            raise SmokeFailed(
                f"/ping did not answer within {deadline_s:.0f} s",
                hint="give it longer with --timeout, or read its log above",
            )
        if now - said > 10:
            said = now
            on_progress(f"waiting for /ping, {now - started:.0f} s")
        time.sleep(_POLL_S)


def log_of(container: Any) -> str:
    """Give the end of its log."""
    with suppress(Exception):
        log: bytes = container.logs(tail=_LOG_LINES)
        return log[-_LOG_BYTES:].decode(errors="replace")
    return ""
