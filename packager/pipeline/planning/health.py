"""The health check of an image: the command by which a container engine probes the server.

The command is Python's, which every image with such a path has to have: each of these servers
is started by it.  It imports nothing but sockets, since it runs every quarter of a minute beside
the server.
"""

from __future__ import annotations

from packager.core.image import HealthCheck
from packager.core.plan import Plan
from packager.estimate.performance.startup import slowest_start_s

_INTERVAL_S = 15
_TIMEOUT_S = 10  # a busy server answers late; three in a row are too many
_RETRIES = 3
_START_INTERVAL_S = 3  # during the start, so that readiness is noticed soon

_PROGRAM = (
    "import socket;"
    's=socket.create_connection(("127.0.0.1",{port}),{timeout});'
    's.sendall(b"GET {path} HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n");'
    'raise SystemExit(b" 200 " not in s.makefile("rb").readline(99))'
)


def health_check(plan: Plan, port: int) -> HealthCheck | None:
    """Return the check of the plan's server; None where its images are not known to allow one."""
    path = plan.container.traits.health_path
    if not path:
        return None
    return health_check_of(path, port, start_period_s(plan))


def health_check_of(path: str, port: int, start_s: int) -> HealthCheck:
    """Return the check of a server that answers at a path, and has `start_s` seconds to start."""
    program = _PROGRAM.format(port=port, timeout=_TIMEOUT_S - 1, path=path)
    return HealthCheck(
        path=path,
        command=("python3", "-I", "-S", "-c", program),
        interval_s=_INTERVAL_S,
        timeout_s=_TIMEOUT_S,
        start_period_s=start_s,
        start_interval_s=_START_INTERVAL_S,
        retries=_RETRIES,
    )


def start_period_s(plan: Plan) -> int:
    """Return the seconds, in whole minutes, in which a server that is still silent is starting."""
    return slowest_start_s(plan.profile.weight_bytes)
