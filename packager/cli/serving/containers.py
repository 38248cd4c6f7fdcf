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

from packager.cli.serving.engine_log import excerpt, first_error
from packager.core.errors import NotFound, SmokeFailed, Unavailable, UsageError
from packager.images.docker_engine import engine_reason

PORT = 8080
SHARED_MEMORY = "1g"  # engines whose processes talk through /dev/shm need more than Docker's 64 MB
_LOG_LINES = 40  # that are shown
_LOG_BYTES = 16 * 1024  # lines have no length limit
_READ_LINES = 5000  # that are searched for the first error
_READ_BYTES = 4 * 1024 * 1024
_POLL_S = 0.5


def find_image(engine: Any, image: str) -> Any:
    """Return the engine's image of that name; raises `NotFound` without one."""
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
            f"the engine does not take {image!r}: {engine_reason(error)}",
            hint="name an image as `docker images` shows it",
        ) from error


def digests_of(found: Any) -> tuple[str, ...]:
    """Return an image's digests: its id, and the manifests it was pulled or made by."""
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
    options = placing(engine, port=None, gpus=gpus)
    bridged = "ports" in options
    name = f"packager-{purpose}-{secrets.token_hex(6)}"  # known before an interrupt can hide the id
    try:
        try:
            container = engine.containers.create(image, name=name, environment=dict(env), **options)
            on_progress(f"starting {container.short_id} from {image}")
            container.start()
        except APIError as error:
            reason = engine_reason(error)
            raise SmokeFailed(
                f"the engine cannot start {image!r}: {reason}", hint=start_hint(reason)
            ) from error
        container.reload()
        bound = (container.ports or {}).get(f"{PORT}/tcp") if bridged else None
        yield container, f"http://127.0.0.1:{bound[0]['HostPort'] if bound else PORT}"
    except APIError as error:
        raise SmokeFailed(
            f"the engine lost the container: {engine_reason(error)}",
            hint="run again; `docker events` shows who removes containers",
        ) from error
    except (DockerException, OSError) as error:
        raise Unavailable(
            "the connection to the Docker Engine was lost",
            hint="see whether it still runs: `docker info`",
        ) from error
    finally:
        with suppress(DockerException, OSError):
            engine.api.remove_container(name, force=True, v=True)


def placing(
    engine: Any, *, port: int | None, host: str = "127.0.0.1", gpus: bool = False
) -> dict[str, Any]:
    """Return options of a serving container: its port on loopback, shared memory, GPUs.

    Without `port` the engine chooses a free one.  An engine without a bridge has neither: the
    container is on the host's network.
    """
    options: dict[str, Any] = {"shm_size": SHARED_MEMORY}
    if any(network["Driver"] == "bridge" for network in engine.api.networks()):
        options["ports"] = {f"{PORT}/tcp": (host, port)}
    else:
        options["network_mode"] = "host"
    if gpus:
        from docker.types import DeviceRequest

        options["device_requests"] = [DeviceRequest(count=-1, capabilities=[["gpu"]])]
    return options


def wait_for_ping(
    http: urllib3.PoolManager,
    container: Any,
    url: str,
    deadline_s: float,
    on_progress: Callable[[str], None],
    *,
    poll_s: float = _POLL_S,
) -> None:
    """Poll /ping until it returns 200. An ended container fails at once, not at the deadline."""
    started = time.monotonic()
    said = started
    while True:
        with suppress(urllib3.exceptions.HTTPError):
            if http.request("GET", f"{url}/ping", timeout=5.0).status == 200:
                return
        container.reload()
        if container.status not in ("running", "created"):
            raise _ended(container)
        now = time.monotonic()
        if now - started > deadline_s:
            raise SmokeFailed(
                f"/ping did not answer within {deadline_s:.0f} s",
                hint="give it longer with --timeout, or read its log above",
            )
        if now - said > 10:
            said = now
            on_progress(f"waiting for /ping, {now - started:.0f} s")
        time.sleep(poll_s)


def log_of(container: Any) -> str:
    """Return the first error of the container's log, and the log's end."""
    return excerpt(_whole_log(container), tail=_LOG_LINES)[-_LOG_BYTES:]


def reason_of(container: Any) -> str:
    """Return the first error of the container's log in a line; "" where none is found."""
    error = first_error(_whole_log(container))
    return error.summary if error else ""


def start_hint(reason: str) -> str:
    """Return a hint for the reason why the engine cannot start a container."""
    if "nvidia-container-cli" in reason or "cuda>=" in reason:
        return "`packager doctor` names the newest image that this machine's driver runs"
    return "an image built on scratch has nothing to run; give a serving base"


def _whole_log(container: Any) -> str:
    """Return the part of the log that is searched; "" where the engine has none."""
    with suppress(Exception):
        log: bytes = container.logs(tail=_READ_LINES)
        return log[-_READ_BYTES:].decode(errors="replace")
    return ""


def _ended(container: Any) -> SmokeFailed:
    """Return the error of a container that ended, with the reason that its log gives."""
    state = container.attrs["State"]
    ended = f"the container ended with status {state['ExitCode']} before it answered"
    if state.get("OOMKilled"):
        return SmokeFailed(
            f"{ended}: the kernel killed it, since its memory ran out",
            hint="give containers more memory, or plan for less: --max-batch, --max-total-tokens",
        )
    reason = reason_of(container)
    return SmokeFailed(f"{ended}: {reason}" if reason else ended, hint="its log is above")
