"""Build and push weights: packager against its peers, in one run.

All put the same shards on the same base into the same fresh registry on
loopback: `docker build` + `docker push`, `buildah bud` + push, `olot` +
skopeo, and the floor: a bare concurrent PATCH of the same bytes.  A peer that
is not installed is left out and named in `missing`.

Then packager alone: nothing changed, one shard changed, another instance,
another repository, an engine that has seven of eight shards, and a model of
holes that is larger than memory, into a registry that keeps nothing.

Starts its own registries and engine (root on Debian; see scripts/) and stops
them.  The last line of stdout is one JSON object with every figure.

    python benchmarks/push.py --gb 8
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bf16_model import change_shard
from judging import all_at_most, verdict
from measuring import Run, call, median_wall, say, timed
from peers import buildah, docker, floor, olot
from servers import discarding_registry, engine, make_base, push_base, registry

PEERS = {"docker": docker, "buildah": buildah, "olot": olot}
# Of docs: a ratio is packager's wall time over the other's; `second` is over packager's own first.
TARGETS = {
    "ratio_docker": 0.10,
    "ratio_buildah": 0.15,
    "ratio_olot": 0.50,
    "ratio_floor": 1.10,
    "ratio_signed": 1.05,  # SBOM, provenance and signatures over none of them
    "cpu_s_per_gb": 1.2,
    "ratio_second": 0.03,
    "second_s": 1.5,
    "second_weight_bytes": 0,  # read and sent
    "changed_extra_kb": 200.0,  # sent beside the one shard
    "config_weight_bytes": 0,  # read and sent for another instance
    "repository_weight_bytes": 0,  # read and sent for another repository
    "peak_rss_mb": 120.0,
    "large_rss_mb": 120.0,
    "ratio_large_rss": 1.1,
    "extra_disk_share": 0.005,
    "engine_share": 0.13,  # of the bytes, for a changed last shard of eight
}
MOVED = ("bytes_read", "bytes_sent")
SMALL = 10_000_000  # bytes; whatever is not weights stays far below


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--gb", type=float, default=8.0, help="size of the weights (decimal GB)")
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of packager and the floor")
    parser.add_argument("--peer-rounds", type=int, default=1)
    parser.add_argument("--peers", default=",".join(PEERS), help="of: %(default)s")
    parser.add_argument("--engine-gb", type=float, default=1.0, help="weights for the engine")
    parser.add_argument("--large-gb", type=float, default=64.0, help="weights made of holes")
    parser.add_argument("--work", type=Path, help="where to work (default: a new directory)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="packager-bench-", dir=arguments.work) as work:
        figures = measure(Path(work), arguments)
    print(json.dumps(figures))
    return 0 if figures["targets_met"] else 1


def measure(work: Path, arguments: argparse.Namespace) -> dict[str, object]:
    """Run every contender and put the figures together."""
    model = write(work / "model", arguments.gb, arguments.shards)
    asked = arguments.peers.split(",")
    missing = [name for name in asked if not shutil.which(name)]
    runs: dict[str, list[Run]] = {"packager": [], "second": [], "floor": []}
    key = work / "key.pem"
    call([sys.executable, "-m", "packager", "keys", "make", "image", "--to", str(key)])
    documents = {"bare": ("--no-sbom",), "signed": ("--sign", str(key))}
    moved: dict[str, dict[str, int]] = {}
    with engine(work / "engine") as (docker_host, engine_pid):
        os.environ["DOCKER_HOST"] = docker_host
        make_base()
        compile_bytecode()
        with registry(work) as (host, pid):
            floor(model, host, [pid])  # not counted: the disk is still busy with the weights
        for number in range(arguments.rounds):
            state = work / f"state-{number}"
            for name in ("bare", "signed") if number % 2 == 0 else ("signed", "bare"):
                with registry(work) as (host, pid):
                    push_base(host)
                    place, target = work / f"state-{name}-{number}", f"{host}/model:1"
                    run, moved[name] = packager(
                        place, model, host, target, [pid], more=documents[name]
                    )
                    note(runs, name, run)
            # Taking turns: who comes second finds the disk as the first has left it.
            for name in ("packager", "floor") if number % 2 == 0 else ("floor", "packager"):
                with registry(work) as (host, pid):
                    push_base(host)
                    if name == "floor":
                        note(runs, name, floor(model, host, [pid]))
                        continue
                    target = f"{host}/model:1"
                    for one in ("packager", "second"):
                        run, moved[one] = packager(state, model, host, target, [pid])
                        note(runs, one, run)
                    if number + 1 == arguments.rounds:
                        moved |= variants(state, model, host, [pid], runs)
        disk = sum(path.stat().st_size for path in state.rglob("*") if path.is_file())
        for name in (name for name in asked if name not in missing):
            for _ in range(arguments.peer_rounds):
                with registry(work) as (host, pid):
                    push_base(host)
                    note(runs, name, PEERS[name](model, host, [pid, engine_pid]))
        shutil.rmtree(model)
        if arguments.engine_gb:
            small = write(work / "small", arguments.engine_gb, arguments.shards)
            moved |= into_engine(work / "state-engine", small, engine_pid, runs)
    if arguments.large_gb:
        large = write(work / "large", arguments.large_gb, arguments.shards, "sparse")
        with discarding_registry() as (host, pid):
            state = work / "state-large"
            run, moved["large"] = packager(state, large, "", f"{host}/large:1", [pid])
            note(runs, "large", run)
    return report(arguments, runs, moved, missing, disk)


def compile_bytecode() -> None:
    """Compile packager, as installing it does: a first run took a second longer for it."""
    root = Path(__file__).resolve().parent.parent
    places = [str(root / name) for name in ("packager", "artifact_cache")]
    call([sys.executable, "-m", "compileall", "-q", *places])


def write(place: Path, gb: float, shards: int, *kind: str) -> Path:
    """Write weights, in a process of its own: a child's peak memory starts at its parent's."""
    say(f"writing {gb} GB of {' '.join(kind) or 'bf16-like'} weights in {shards} shards")
    script = str(Path(__file__).with_name("bf16_model.py"))
    call([sys.executable, script, str(place), str(int(gb * 1e9)), str(shards), *kind])
    return place


def variants(
    state: Path, model: Path, host: str, servers: list[int], runs: dict[str, list[Run]]
) -> dict[str, dict[str, int]]:
    """What is near to a build that was made: packager alone, on the same registry."""
    moved = {}
    others = {
        "instance": (f"{host}/model:g5", "ml.g5.48xlarge"),
        "repository": (f"{host}/other:1", "ml.p4d.24xlarge"),
        "changed": (f"{host}/model:1", "ml.p4d.24xlarge"),
    }
    for name, (target, instance) in others.items():
        if name == "changed":
            change_shard(sorted(model.glob("*.safetensors"))[0])
        run, moved[name] = packager(state, model, host, target, servers, instance=instance)
        note(runs, name, run)
    return moved


def into_engine(
    state: Path, model: Path, engine_pid: int, runs: dict[str, list[Run]]
) -> dict[str, dict[str, int]]:
    """Load into the engine, then again with the last shard changed, then with the first.

    Docker's own storage knows a layer by all that lies below it, so the shards
    above a changed one move too.
    """
    moved = {}
    shards = sorted(model.glob("*.safetensors"))
    for name, changed in (
        ("engine", None),
        ("engine last", shards[-1]),
        ("engine first", shards[0]),
    ):
        if changed:
            change_shard(changed)
        run, moved[name] = packager(state, model, "", "docker:bench-model:1", [engine_pid])
        note(runs, name, run)
    return moved


def packager(
    state: Path,
    model: Path,
    base_host: str,
    target: str,
    servers: list[int],
    *,
    instance: str = "ml.p4d.24xlarge",
    more: Sequence[str] = (),
) -> tuple[Run, dict[str, int]]:
    """Build with a state directory of its own; give the run and what was moved."""
    environment = {
        **os.environ,
        "XDG_STATE_HOME": str(state),
        "XDG_CONFIG_HOME": str(state),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # installed programs are compiled once
    command = [sys.executable, "-m", "packager", "build", "--model", str(model), "--quiet"]
    command += ["--instance", instance, "--base", f"{base_host}/base:1" if base_host else "scratch"]
    command += ["--family", "vllm", "--output", target, "--format", "json", *more]
    output: list[str] = []
    run = timed(lambda: output.append(call(command, environment)), servers)
    return run, json.loads(output[0])["transfer"]


def report(
    arguments: argparse.Namespace,
    runs: dict[str, list[Run]],
    moved: dict[str, dict[str, int]],
    missing: list[str],
    state_bytes: int,
) -> dict[str, object]:
    """Medians, ratios, and whether the targets are met."""
    walls = {name: median_wall(of) for name, of in runs.items()}
    first = walls["packager"]
    peak = max(run.peak_rss_bytes for run in runs["packager"]) / 1e6
    shard = arguments.gb * 1e9 / arguments.shards
    figures: dict[str, float] = {
        **{f"ratio_{name}": first / walls[name] for name in (*PEERS, "floor") if name in walls},
        "ratio_signed": walls["signed"] / walls["bare"],
        "cpu_s_per_gb": statistics.median(run.cpu_s for run in runs["packager"]) / arguments.gb,
        "ratio_second": walls["second"] / first,
        "second_s": walls["second"],
        "second_weight_bytes": weights_moved(moved["second"]),
        "changed_extra_kb": (moved["changed"]["bytes_sent"] - shard) / 1e3,
        "config_weight_bytes": weights_moved(moved["instance"]),
        "repository_weight_bytes": weights_moved(moved["repository"]),
        "peak_rss_mb": peak,
        "extra_disk_share": state_bytes / (arguments.gb * 1e9),
    }
    if "docker" in walls:  # what is left where nothing but the bytes is sent
        figures["ratio_docker_floor"] = walls["floor"] / walls["docker"]
    if "large" in runs:
        figures["large_rss_mb"] = runs["large"][0].peak_rss_bytes / 1e6
        figures["ratio_large_rss"] = figures["large_rss_mb"] / peak
    if "engine" in moved:
        whole = moved["engine"]["bytes_sent"]
        figures["engine_share"] = moved["engine last"]["bytes_sent"] / whole
        figures["engine_share_worst"] = moved["engine first"]["bytes_sent"] / whole
    print(
        f"{'':14}{'wall s':>9}{'CPU s':>9}{'servers CPU s':>15}{'peak MB':>9}"
        f"{'read MB':>10}{'sent MB':>10}{'written MB':>12}"
    )
    for name, of in runs.items():
        middle = sorted(of, key=lambda run: run.wall_s)[len(of) // 2]
        transfer = moved.get(name)
        told = [f"{transfer[key] / 1e6:.1f}" for key in MOVED] if transfer else ["", ""]
        print(
            f"{name:14}{middle.wall_s:9.2f}{middle.cpu_s:9.2f}{middle.server_cpu_s:15.2f}"
            f"{middle.peak_rss_bytes / 1e6:9.0f}{told[0]:>10}{told[1]:>10}"
            f"{middle.written_bytes / 1e6:12.1f}"
        )
    rounded = {name: round(value, 4) for name, value in figures.items()}
    return {
        "benchmark": "push",
        "gb": arguments.gb,
        "shards": arguments.shards,
        "load_at_end": os.getloadavg()[0],
        "wall_s": {name: [round(run.wall_s, 2) for run in of] for name, of in runs.items()},
        "cpu_s": {name: [round(run.cpu_s, 2) for run in of] for name, of in runs.items()},
        "transfer": moved,
        "missing": missing,
        **rounded,
        "targets": TARGETS,
        **verdict(all_at_most(rounded, TARGETS)),
    }


def weights_moved(transfer: dict[str, int]) -> int:
    """Bytes read and sent, where they are so many that weights must be among them."""
    moved = transfer["bytes_read"] + transfer["bytes_sent"]
    return moved if moved > SMALL else 0


def note(runs: dict[str, list[Run]], name: str, run: Run) -> None:
    """Keep a run, and tell a watching person."""
    runs.setdefault(name, []).append(run)
    say(f"{name}: {run.wall_s:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
