"""What a server of the API is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from packager.core.values import dataclass
from packager.errors import PackagerError
from packager.jobs.scheduler import Scheduler
from packager.jobs.store import JobStore
from packager.sagemaker.settings import JobSettings
from packager.serve.application import Guard
from packager.serve.endpoints.containers import Containers
from packager.serve.endpoints.lifecycle import Endpoints
from packager.serve.resources import ResourceStore
from packager.serve.seen import SeenSignatures
from packager.serve.services import ServeServices
from packager.serve.sigv4 import AccessKey, Verifier
from packager.wiring.configs import read_config_soon
from packager.wiring.settings import server_state, state_dir


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenServer:
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
) -> Iterator[OpenServer]:
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
        yield OpenServer(
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
                ),
            ),
            guard=Guard(on_loopback=on_loopback, verifier=verifier, seen=seen),
        )
