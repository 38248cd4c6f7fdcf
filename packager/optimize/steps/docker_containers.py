"""Containers of the Docker Engine that are always removed afterwards."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from packager.core.errors import Unavailable
from packager.images.docker_engine import engine_reason


@contextmanager
def own_container(engine: Any, image: str, options: Mapping[str, Any]) -> Iterator[Any]:
    """Create a container; it is removed whatever happens, its name being known before."""
    from docker.errors import APIError, DockerException

    name = f"packager-step-{secrets.token_hex(6)}"
    try:
        yield engine.containers.create(image, name=name, **options)
    except APIError as error:
        raise Unavailable(
            f"the Docker Engine cannot run the step: {engine_reason(error)}",
            hint="see whether it has what the step asks for: `docker info`",
        ) from error
    except (DockerException, OSError) as error:
        raise Unavailable(
            f"the connection to the Docker Engine was lost: {type(error).__name__}",
            hint="see whether it still runs: `docker info`",
        ) from error
    finally:
        with suppress(DockerException, OSError):
            engine.api.remove_container(name, force=True, v=True)


def ended(container: Any) -> Mapping[str, Any]:
    """Wait for a container that is ending; return its state: `ExitCode`, `OOMKilled`."""
    container.wait(timeout=60)
    container.reload()
    state: Mapping[str, Any] = container.attrs["State"]
    return state
