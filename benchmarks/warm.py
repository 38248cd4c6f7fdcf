"""How much of a Ray cluster's time a warm-up uses: the ideal schedule against the real one.

    python benchmarks/warm.py [--jobs 24] [--nodes 3] [--seconds 8]

A local cluster of as many one-processor nodes, a shared S3 store (moto's), and
jobs of a demo tool that mostly sleep, so that nodes of one machine do not take
each other's processors.  `efficiency` is the ideal makespan, the longest jobs
first on as many machines, of the times that the jobs' processes took, over the
makespan from the first job handed out to the last one ended.  Starting the
cluster is not counted.  `tool_share` is what of the nodes' time the tools had:
the rest is packager's own start, look-ups and uploads, seconds a job however
long it takes.  Run it from a checkout with the extras `test` and `ray`.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from judging import at_least, holds, verdict

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.commandline import TINY  # noqa: E402
from tests.support.doubles.ray_nodes import ray_nodes  # noqa: E402
from tests.support.doubles.s3 import Bucket, bucket_server  # noqa: E402
from tests.support.tool_steps import OUTSIDE  # noqa: E402

TARGETS = {"efficiency": 0.9}


def main() -> int:
    """Measure, print a summary and, as the last line, JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=24)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="of the shortest job")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="warm-") as place, bucket_server() as server:
        figures = measure(Path(place), server, arguments)
    print(json.dumps(figures))
    return 0 if figures["targets_met"] else 1


def measure(place: Path, server: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Plan, start a cluster, run, and compare."""
    bucket = Bucket(server)
    environment = {
        **bucket.environment,
        "PYTHONPATH": os.pathsep.join((str(OUTSIDE), str(ROOT))),
        "PACKAGER_CACHE": str(place / "driver"),
        "PACKAGER_TOOLS": str(place / "tools"),
        "XDG_STATE_HOME": str(place / "state"),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    shared = f"{bucket.url}/warm?endpoint_url={server}"
    every = [
        f"demo-slow,seed={number},ran={place / 'ran'},seconds={arguments.seconds + number % 5}"
        for number in range(arguments.jobs)
    ]
    grid = {
        "defaults": {"model": str(TINY), "instance": "local", "family": "vllm"},
        "axes": {"quantize": every},
    }
    (place / "grid.json").write_text(json.dumps(grid))
    packager(environment, place, "tools", "install", "demo-tool")
    packager(environment, place, "warm", "plan", "grid.json", "--output", "plan.json")
    began = time.monotonic()
    with ray_nodes(place, environment, arguments.nodes) as nodes:
        start_s = time.monotonic() - began
        print(f"cluster of {arguments.nodes}: {start_s:.1f} s", file=sys.stderr)
        said = packager(
            environment,
            place,
            *("warm", "run", "plan.json", "--executor", "ray", "--address", nodes.address),
            *("--cache-shared", shared, "--format", "json", "--progress", "plain"),
        )
    return compare(json.loads(said), arguments, start_s)


def compare(document: dict[str, Any], arguments: argparse.Namespace, start_s: float) -> Any:
    """Give the figures of a run."""
    jobs = document["jobs"]
    makespan = max(job["ended_s"] for job in jobs) - min(job["began_s"] for job in jobs)
    best = ideal([job["work_s"] for job in jobs], arguments.nodes)
    tools = sum(arguments.seconds + number % 5 for number in range(arguments.jobs))
    efficiency = round(best / makespan, 3)
    return {
        "benchmark": "warm",
        "jobs": len(jobs),
        "nodes": arguments.nodes,
        "built": document["counts"].get("built", 0),
        "cluster_start_s": round(start_s, 1),
        "makespan_s": round(makespan, 2),
        "ideal_s": round(best, 2),
        "job_s": round(sum(job["work_s"] for job in jobs) / len(jobs), 2),
        "tool_share": round(tools / arguments.nodes / makespan, 3),
        "efficiency": efficiency,
        "load_at_end": os.getloadavg()[0],
        "targets": TARGETS,
        **verdict(
            [
                at_least("efficiency", efficiency, TARGETS["efficiency"]),
                holds("all_built", document["counts"] == {"built": arguments.jobs}),
            ]
        ),
    }


def ideal(seconds: list[float], machines: int) -> float:
    """Makespan when the longest job always goes to the machine that is free first."""
    free = [0.0] * machines
    for one in sorted(seconds, reverse=True):
        heapq.heapreplace(free, free[0] + one)
    return max(free)


def packager(environment: dict[str, str], place: Path, *words: str) -> str:
    """Run the command line; its messages pass through."""
    return subprocess.run(
        [sys.executable, "-m", "packager", *words],
        cwd=place,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


if __name__ == "__main__":
    sys.exit(main())
