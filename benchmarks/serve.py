"""The API under clients that poll: 200 of them list and describe jobs while 20 jobs run.

    python benchmarks/serve.py [--clients 200] [--jobs 20] [--seconds 30] [--every 1.0]

A server of its own (a process, a state directory that is removed) has 20 jobs that run, each with
its runner and a command that sleeps, and 500 that have ended.  Every client has a connection,
and asks once a second, by turns for the list of jobs and for one of them; SDKs ask every five
seconds.  Latencies are of the whole answer, by the client's clock, which shares the processors with
server and jobs.  `alone` is one client before the others come.  `flood` is ten clients that never
wait.  Ratios are of p95 over the limit of 100 ms, and of memory at the end over that at the start.

The last line of stdout is one JSON object with every figure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
from judging import at_most, verdict

from packager.addons.server.jobs.store import JobStore
from packager.addons.server.jobs.values import NewJob, Stage
from tests.support.api_server import optimization_body
from tests.support.job_values import OUTSIDE

LIMIT_MS = 100.0
MOST_GROWTH = 1.25  # of the server's memory, from its start to the end
ENDED = 500
MIB = 1024 * 1024
HEADERS = {"Content-Type": "application/x-amz-json-1.1"}


def main() -> int:
    """Measure and print; 1 where a limit is not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between requests")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), asked)
    for name, value in figures.items():
        print(f"{name:24} {value}")
    print(json.dumps(figures))
    return 0 if figures["targets_met"] else 1


def measure(state: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """Start the server, load it, and return the figures."""
    store = JobStore(state / "packager" / "jobs")
    for number in range(ENDED):
        store.create(new_job(f"ended-{number}", "exit=0"))
        store.stop("optimization", f"ended-{number}")
    names = [f"running-{number}" for number in range(asked.jobs)]
    for name in names:
        store.create(new_job(name, "sleep=3600"))
    command = [sys.executable, "-m", "packager", "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--instance", "local", "--jobs", str(asked.jobs)],
        env={**os.environ, "XDG_STATE_HOME": str(state)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        try:
            wait_until_all_run(store, asked.jobs)
            return asyncio.run(load(url, server.pid, names, asked))
        finally:
            for name in names:
                store.stop("optimization", name)
            deadline = time.monotonic() + 60
            while store.unfinished() and time.monotonic() < deadline:
                time.sleep(0.2)
            server.terminate()


def new_job(name: str, action: str) -> NewJob:
    """A job whose command only does this."""
    return NewJob(
        kind="optimization",
        name=name,
        document=optimization_body(name),
        stages=(Stage("build", (action,), {"PYTHONPATH": str(OUTSIDE)}),),
    )


def wait_until_all_run(store: JobStore, count: int) -> None:
    """Wait until every job has a runner that began."""
    deadline = time.monotonic() + 120
    while sum(job.started is not None for job in store.unfinished()) < count:
        if time.monotonic() > deadline:
            raise SystemExit("the jobs did not begin")
        time.sleep(0.2)


async def load(
    url: str, server: int, names: list[str], asked: argparse.Namespace
) -> dict[str, Any]:
    """Ask alone, then with all clients, then without pauses."""
    loop = asyncio.get_running_loop()
    errors: list[str] = []
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def ask(number: int) -> float:
            listing = number % 2 == 0
            name = "ListOptimizationJobs" if listing else "DescribeOptimizationJob"
            body = (
                {"StatusEquals": "INPROGRESS", "MaxResults": 50}
                if listing
                else {"OptimizationJobName": names[number // 2 % len(names)]}
            )
            began = loop.time()
            headers = {**HEADERS, "X-Amz-Target": f"SageMaker.{name}"}
            try:
                async with session.post(url, data=json.dumps(body), headers=headers) as answer:
                    found = await answer.read()
                    if answer.status != 200 or (listing and found.count(b"INPROGRESS") < 1):
                        errors.append(f"{answer.status} {found[:200]!r}")
            except aiohttp.ClientError as error:
                errors.append(repr(error))
            return (loop.time() - began) * 1000

        alone = [await ask(number) for number in range(200)]
        before = memory(server)
        began, spent = (
            loop.time(),
            (cpu_s([server]), cpu_s(children_of(server)), time.process_time()),
        )
        end = began + asked.seconds

        async def poll(client: int, every_s: float, until: float) -> list[float]:
            await asyncio.sleep(every_s * client / asked.clients)  # they did not agree on a moment
            found = []
            turn = client
            while loop.time() < until:
                started = loop.time()
                found.append(await ask(turn))
                turn += 1
                await asyncio.sleep(max(0.0, started + every_s - loop.time()))
            return found

        polled = await asyncio.gather(*(poll(n, asked.every, end) for n in range(asked.clients)))
        latencies = sorted(latency for each in polled for latency in each)
        after = memory(server)
        took = loop.time() - began
        now = cpu_s([server]), cpu_s(children_of(server)), time.process_time()
        shares = [(later - earlier) / took for later, earlier in zip(now, spent, strict=True)]
        began = loop.time()
        flood = await asyncio.gather(*(poll(n, 0.0, began + 10) for n in range(10)))
        flooded = sum(map(len, flood)) / (loop.time() - began)
    if errors:
        print(errors[0], file=sys.stderr)
    p95 = quantile(latencies, 0.95)
    rows = [
        at_most("errors", len(errors), 0),
        at_most("p95_ms", p95, LIMIT_MS),
        at_most("memory_over_start", after / before, MOST_GROWTH),
    ]
    return {
        "benchmark": "serve",
        "clients": asked.clients,
        "jobs": asked.jobs,
        "requests": len(latencies),
        "errors": len(errors),
        "alone_p50_ms": round(quantile(sorted(alone), 0.5), 2),
        "p50_ms": round(quantile(latencies, 0.5), 2),
        "p95_ms": round(p95, 2),
        "p99_ms": round(quantile(latencies, 0.99), 2),
        "p95_over_limit": round(p95 / LIMIT_MS, 3),
        "cpu_of_server": round(shares[0], 3),  # 1: a whole processor
        "cpu_of_jobs": round(shares[1], 3),
        "cpu_of_clients": round(shares[2], 3),
        "load_of_machine": round(os.getloadavg()[0], 1),
        "memory_mib": round(after / MIB, 1),
        "memory_over_start": round(after / before, 3),
        "memory_after_flood_mib": round(memory(server) / MIB, 1),
        "flood_per_s": round(flooded),
        **verdict(rows),
    }


def quantile(values: list[float], share: float) -> float:
    """Return a quantile of sorted values."""
    return values[min(len(values) - 1, int(share * len(values)))]


def children_of(process: int) -> list[int]:
    """Return the processes below one; runners stay its children while it lives."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    below = {process}
    while more := {child for child, parent in found.items() if parent in below} - below:
        below |= more
    return sorted(below - {process})


def cpu_s(processes: list[int]) -> float:
    """Return the processor time that processes have used."""
    ticks = 0
    for process in processes:
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory(process: int) -> int:
    """Return the resident memory of a process, in bytes; 0 where it has gone."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.exit(main())
