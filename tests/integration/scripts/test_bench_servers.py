"""Servers that a benchmark started end with it, also where it was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.conftest import need, unavailable
from tests.support.known import known
from tests.support.places import ROOT
from tests.support.processes import is_alive, left_of
from tests.support.running_jobs import until

pytestmark = [
    pytest.mark.extended,
    pytest.mark.live,
    pytest.mark.xdist_group("engine"),
]  # no two start at once

BENCHMARK = """
import sys, time
from pathlib import Path
from servers import discarding_registry, engine, registry
work = Path(sys.argv[2])
server = {"discarding": discarding_registry, "registry": lambda: registry(work),
          "engine": lambda: engine(work)}[sys.argv[1]]
with server() as (address, pid):
    print(pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("killed_by", [signal.SIGTERM, signal.SIGKILL], ids=lambda one: one.name)
@pytest.mark.parametrize("server", ["discarding", "registry", "engine"])
def test_a_server_ends_with_its_benchmark(server: str, killed_by: signal.Signals) -> None:
    need({"registry": "docker-registry", "engine": "dockerd"}.get(server, "sh"))
    if server == "engine" and os.geteuid() != 0:
        unavailable("root, to start a private Docker Engine,")
    # A socket's path has at most 107 bytes, and the engine puts some deep below its root.
    with tempfile.TemporaryDirectory(prefix="bench-") as work:
        check(server, killed_by, Path(work) / "s")


def check(server: str, killed_by: signal.Signals, root: Path) -> None:
    command = [sys.executable, "-c", BENCHMARK, server, str(root)]
    with subprocess.Popen(
        command, cwd=ROOT / "benchmarks", stdout=subprocess.PIPE, text=True
    ) as benchmark:
        pid = int(known(benchmark.stdout).readline())
        assert is_alive(pid)
        benchmark.send_signal(killed_by)

    until(lambda: not is_alive(pid) and not left_of(root))
