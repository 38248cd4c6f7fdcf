"""Build and push weights: packager against its peers, in one run.

All put the same shards on the same base into the same fresh registry on
loopback: `docker build` + `docker push`, `buildah bud` + push, `olot` +
skopeo, and the floor: a bare concurrent PATCH of the same bytes.  A peer that
is not installed is left out and named in `missing`.

Starts its own registry and engine (root on Debian; see scripts/) and stops
them.  The last line of stdout is one JSON object with every figure.

    python benchmarks/push.py --gb 4
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from measuring import Run, call, median_wall, say, timed
from peers import buildah, docker, floor, olot
from servers import engine, make_base, push_base, registry

PEERS = {"docker": docker, "buildah": buildah, "olot": olot}
# Of docs: a ratio is packager's wall time over the other's; `second` is over packager's own first.
TARGETS = {
    "ratio_docker": 0.12,
    "ratio_buildah": 0.15,
    "ratio_olot": 0.50,
    "ratio_floor": 1.10,
    "ratio_second": 0.03,
    "cpu_s_per_gb": 1.2,
    "peak_rss_mb": 120.0,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--gb", type=float, default=4.0, help="size of the weights (decimal GB)")
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of packager and the floor")
    parser.add_argument("--peer-rounds", type=int, default=1)
    parser.add_argument("--peers", default=",".join(PEERS), help="of: %(default)s")
    parser.add_argument("--work", type=Path, help="where to work (default: a new directory)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="packager-bench-", dir=arguments.work) as work:
        figures = measure(Path(work), arguments)
    print(json.dumps(figures))
    return 0


def measure(work: Path, arguments: argparse.Namespace) -> dict[str, object]:
    """Run every contender and put the figures together."""
    say(f"writing {arguments.gb} GB of bf16-like weights in {arguments.shards} shards")
    model = work / "model"
    # In a process of its own: a child's peak memory counts from its parent's size.
    writer = [sys.executable, str(Path(__file__).with_name("bf16_model.py")), str(model)]
    call([*writer, str(int(arguments.gb * 1e9)), str(arguments.shards)])
    asked = arguments.peers.split(",")
    missing = [name for name in asked if not shutil.which(name)]
    runs: dict[str, list[Run]] = {"packager": [], "second": [], "floor": []}
    moved: dict[str, object] = {}
    with engine(work / "engine") as (docker_host, engine_pid):
        os.environ["DOCKER_HOST"] = docker_host
        make_base()
        for number in range(arguments.rounds):
            with registry(work) as (host, pid):
                push_base(host)
                state = work / f"state-{number}"
                for name in ("packager", "second"):
                    run, moved[name] = packager(state, model, host, pid)
                    note(runs, name, run)
            with registry(work) as (host, pid):
                note(runs, "floor", floor(model, host, [pid]))
        for name in (name for name in asked if name not in missing):
            for _ in range(arguments.peer_rounds):
                with registry(work) as (host, pid):
                    push_base(host)
                    note(runs, name, PEERS[name](model, host, [pid, engine_pid]))
    return report(arguments, runs, moved, missing)


def packager(state: Path, model: Path, host: str, registry_pid: int) -> tuple[Run, object]:
    """Build and push with a state directory of its own; give the run and what was moved."""
    environment = {**os.environ, "XDG_STATE_HOME": str(state)}
    command = [sys.executable, "-m", "packager", "build", "--model", str(model)]
    command += ["--instance", "ml.p4d.24xlarge", "--base", f"{host}/base:1", "--quiet"]
    command += ["--output", f"{host}/model:1", "--format", "json"]
    output: list[str] = []
    run = timed(lambda: output.append(call(command, environment)), [registry_pid])
    return run, json.loads(output[0])["transfer"]


def report(
    arguments: argparse.Namespace,
    runs: dict[str, list[Run]],
    moved: dict[str, object],
    missing: list[str],
) -> dict[str, object]:
    """Medians, ratios, and whether the targets are met."""
    walls = {name: median_wall(of) for name, of in runs.items()}
    first = walls.pop("packager")
    figures = {f"ratio_{name}": round(first / wall, 4) for name, wall in walls.items()}
    figures["ratio_second"] = round(walls["second"] / first, 4)
    cpu = statistics.median(run.cpu_s for run in runs["packager"])
    figures["cpu_s_per_gb"] = round(cpu / arguments.gb, 3)
    peak = max(run.peak_rss_bytes for run in runs["packager"])
    figures["peak_rss_mb"] = round(peak / 1e6, 1)
    print(f"{'':10}{'wall s':>9}{'CPU s':>9}{'servers CPU s':>15}{'peak MB':>9}")
    for name, of in runs.items():
        middle = sorted(of, key=lambda run: run.wall_s)[len(of) // 2]
        print(
            f"{name:10}{middle.wall_s:9.2f}{middle.cpu_s:9.2f}"
            f"{middle.server_cpu_s:15.2f}{middle.peak_rss_bytes / 1e6:9.0f}"
        )
    return {
        "benchmark": "push",
        "gb": arguments.gb,
        "shards": arguments.shards,
        "wall_s": {name: [round(run.wall_s, 2) for run in of] for name, of in runs.items()},
        "transfer": moved,
        "missing": missing,
        **figures,
        "targets": TARGETS,
        "targets_met": not missing
        and all(figures[name] <= limit for name, limit in TARGETS.items()),
    }


def note(runs: dict[str, list[Run]], name: str, run: Run) -> None:
    """Keep a run, and tell a watching person."""
    runs.setdefault(name, []).append(run)
    say(f"{name}: {run.wall_s:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
