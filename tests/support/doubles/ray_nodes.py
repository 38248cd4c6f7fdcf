"""A private Ray cluster: `python -m tests.support.doubles.ray_nodes DIRECTORY COUNT`.

Prints its address and the pids of what may be killed, as JSON; ends when stdin
does.  Every node has one processor, and caches of its own below the directory;
the last one has a device that is not there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.places import ROOT

DEVICE = {"num_gpus": 2, "resources": {"accelerator_type:A10G": 1.0}}
STORE_BYTES = 80 * 1024 * 1024
PATIENCE = {"health_check_initial_delay_ms": 2000, "health_check_period_ms": 1000}


@dataclass(frozen=True)
class Nodes:
    """A cluster that runs; `raylets` without the head's."""

    address: str
    head: tuple[int, ...]
    raylets: tuple[int, ...]


@contextmanager
def ray_nodes(directory: Path, environment: dict[str, str], count: int = 3) -> Iterator[Nodes]:
    """Run a cluster in a process of its own."""
    with (directory / "ray.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.doubles.ray_nodes", str(directory), str(count)],
            cwd=ROOT,
            env={**os.environ, **environment, "RAY_worker_niceness": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            said = json.loads(process.stdout.readline())
            yield Nodes(said["address"], tuple(said["head"]), tuple(said["raylets"]))
        finally:
            process.stdin.close()
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def main(directory: Path, count: int) -> None:
    """Start the nodes, say so, wait, stop them."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 0,
            "include_dashboard": False,
            "object_store_memory": STORE_BYTES,
            "_system_config": PATIENCE,
        },
    )
    nodes = []
    for number in range(count):
        own = directory / f"node{number}"
        nodes.append(
            cluster.add_node(
                wait=False,
                num_cpus=1,
                object_store_memory=STORE_BYTES,
                env_vars={"PACKAGER_CACHE": f"{own}/cache", "XDG_STATE_HOME": f"{own}/state"},
                **(DEVICE if number == count - 1 else {}),
            )
        )
    cluster.wait_for_nodes()
    head = [pid for pids in map(_pids, [cluster.head_node]) for pid in pids]
    raylets = [node.all_processes["raylet"][0].process.pid for node in nodes]
    said = {"address": cluster.address, "head": head, "raylets": raylets}
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    cluster.shutdown()


def _pids(node: Any) -> list[int]:
    return [info.process.pid for infos in node.all_processes.values() for info in infos]


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
