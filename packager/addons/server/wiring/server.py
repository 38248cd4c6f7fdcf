"""The parts of an API server."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from packager.addons.server.application import Guard
from packager.addons.server.captures import Captures, put_file
from packager.addons.server.endpoints.containers import Containers
from packager.addons.server.endpoints.lifecycle import Endpoints
from packager.addons.server.jobs.scheduler import Scheduler
from packager.addons.server.jobs.store import JobStore
from packager.addons.server.resources import ResourceStore
from packager.addons.server.sagemaker.settings import JobSettings
from packager.addons.server.services import ServeServices
from packager.addons.server.sigv4 import AccessKey, Verifier
from packager.addons.server.used_signatures import SeenSignatures
from packager.cli.wiring.configs import read_config_soon
from packager.cli.wiring.settings import server_state, state_dir
from packager.core.capture.redaction import RedactCommand, redact_text
from packager.core.errors import PackagerError, UsageError

REDACT = "PACKAGER_CAPTURE_REDACT"  # variable: `off` leaves captures as they are
REDACT_COMMAND = "PACKAGER_CAPTURE_REDACT_COMMAND"  # variable: what gets every row, too


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedApiServer:
    """Stores that are open, and a scheduler that looks after the jobs."""

    services: ServeServices
    guard: Guard


@contextmanager
def open_server(
    settings: JobSettings,
    *,
    environment: Mapping[str, str],
    keys: Mapping[str, AccessKey],
    on_loopback: bool,
    jobs_at_once: int,
    gpus: int,
    on_error: Callable[[PackagerError], None],
) -> Iterator[OpenedApiServer]:
    """Open the stores of a server, and start the jobs that wait; jobs outlive it."""
    state = server_state(environment)
    jobs = JobStore(state_dir(environment) / "jobs")
    with ExitStack() as ending:
        resources = ResourceStore(state / "resources.sqlite")
        ending.callback(resources.close)
        seen = SeenSignatures(state / "signatures.sqlite") if keys else None
        if seen is not None:
            ending.callback(seen.close)
        scheduler = Scheduler(jobs, at_once=jobs_at_once, on_error=on_error)
        scheduler.start()
        ending.callback(scheduler.close)
        verifier = Verifier(keys=keys, region=settings.region) if keys else None
        yield OpenedApiServer(
            services=ServeServices(
                jobs=jobs,
                state=state,
                settings=settings,
                resources=resources,
                wake=scheduler.wake,
                read_config=read_config_soon,
                endpoints=Endpoints(
                    resources,
                    Containers(state, records=state_dir(environment), gpus=gpus),
                    state / "endpoints",
                    _captures(state / "captures", environment),
                    settings.jumpstart.find,
                ),
            ),
            guard=Guard(on_loopback=on_loopback, verifier=verifier, seen=seen),
        )


def _captures(spool: Path, environment: Mapping[str, str]) -> Captures:
    """Return the captures of a server; raises `UsageError` for settings that are none."""
    redacts = environment.get(REDACT, "") or "on"
    if redacts not in ("on", "off"):
        raise UsageError(f"{REDACT} is {redacts!r}", hint="set it to on or off")
    try:
        command = shlex.split(environment.get(REDACT_COMMAND, ""))
    except ValueError as error:
        raise UsageError(
            f"{REDACT_COMMAND} cannot be read: {str(error).lower()}",
            hint="write the program and its arguments as a shell takes them",
        ) from None
    return Captures(
        spool,
        redact=redact_text if redacts == "on" else None,
        command=RedactCommand(command) if command else None,
        put=put_file,
    )
