"""Quantizing while pushing, against quantizing and then pushing, and against a push alone.

    python benchmarks/stream.py [--gb 8] [--rounds 1] [--large-gb 64] [--tensor-gb 20]

One Llama with random weights, from a directory into a registry that keeps nothing: as it is, by the
stream with each method, and by the tool with FP8, in turn and each with nothing known before.  Then
weights of holes, larger than memory, and one such tensor, by the stream alone.  A size of 0 leaves
either out.  What has no size is tested beside it: by strace no weight is written to a disk, and a
model of 405 billion parameters is planned from headers.  The last line of stdout is one JSON object
with every figure.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from judging import all_at_most, holds, verdict
from measuring import Run, call, say, timed
from servers import discarding_registry

HERE = Path(__file__).resolve().parent
TINY = HERE.parent / "examples" / "tiny-llama"
PLAIN, TOOL, FIRST = "none", "llmcompressor:fp8", "stream:fp8"
METHODS = (
    FIRST, "stream:fp8,block", "stream:int8", "stream:rtn", "stream:rtn,asymmetric",
    "stream:rtn,w8a16", "stream:nvfp4", "stream:mxfp4", "stream:mxfp8", "stream:w4afp8",
)  # fmt: skip
TARGETS = {
    "wall_over_tool": 0.35,
    "cpu_over_tool": 0.5,
    "cpu_over_push": 6.0,
    "peak_rss_mb": 1024.0,
    "large_rss_mb": 1024.0,
    "tensor_rss_mb": 1024.0,
    "written_mb": 5.0,  # state and record; no weights
}
LIMITS = ("tests/live/test_stream_limits.py", "-k", "no_weights_are_written or 405_billion")
HOLES = {"large": 8, "tensor": 1}  # and how many files they are in, each of one tensor
WRITE = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from pathlib import Path; from bf16_model import *; "
    "place, size, like = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]); "
    "write_servable_model(place, total_bytes=size, like=like) if len(sys.argv) < 5 "
    "else write_model(place, total_bytes=size, shards=int(sys.argv[4]), sparse=True)"
)


def main() -> int:
    """Run every contender and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--gb", type=float, default=8.0, help="size of the weights (decimal GB)")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--large-gb", type=float, default=64.0, help="weights made of holes")
    parser.add_argument("--tensor-gb", type=float, default=20.0, help="one tensor made of a hole")
    parser.add_argument("--work", type=Path, help="where to work (default: a new directory)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="packager-bench-", dir=arguments.work) as work:
        figures = measure(Path(work), arguments)
    print(json.dumps(figures))
    return 0 if figures["targets_met"] else 1


def measure(work: Path, arguments: argparse.Namespace) -> dict[str, object]:
    """Time every contender in turn; compare the medians."""
    say(f"writing {arguments.gb} GB of weights")
    model = write(work / "model", arguments.gb)
    runs: dict[str, list[Run]] = {}
    with discarding_registry() as (host, pid):
        for number in range(arguments.rounds):
            for name in (PLAIN, FIRST, TOOL, *METHODS[1:]):
                state = work / f"state-{number}-{name.replace(':', '-')}"
                run = build(state, model, name, f"{host}/model:{number}", pid)
                runs.setdefault(name, []).append(run)
                say(f"{name}: {run.wall_s:.1f} s, {run.cpu_s:.1f} s of processors")
        for name, files in HOLES.items():
            if size := getattr(arguments, f"{name}_gb"):
                holes = write(work / name, size, str(files))
                run = build(work / f"state-{name}", holes, FIRST, f"{host}/{name}:1", pid)
                runs[name] = [run]
                say(f"{size} GB of holes in {files} files: {run.wall_s:.1f} s")
    return report(arguments, runs)


def write(place: Path, gb: float, *kind: str) -> Path:
    """Write weights, in a process of its own: a child's peak memory starts at its parent's."""
    words = (str(HERE), str(place), str(int(gb * 1e9)), str(TINY))
    call([sys.executable, "-c", WRITE, *words, *kind])
    return place


def build(state: Path, model: Path, method: str, target: str, server: int) -> Run:
    """Build with directories of its own; tools alone are shared."""
    environment = {
        **os.environ,
        "XDG_STATE_HOME": str(state),
        "XDG_CONFIG_HOME": str(state),
        "PACKAGER_CACHE": str(state / "artifacts"),
        "PYTHONPATH": str(HERE.parent),
    }
    command = [sys.executable, "-m", "packager", "build", "--model", str(model), "--quiet"]
    command += ["--instance", "ml.p5.48xlarge", "--base", "scratch", "--family", "vllm"]
    command += ["--quantize", method, "--output", target, "--format", "json"]
    return timed(lambda: call(command, environment), [server])


def report(arguments: argparse.Namespace, runs: dict[str, list[Run]]) -> dict[str, object]:
    """Return medians and ratios, and whether the targets are met."""
    wall = {name: statistics.median(run.wall_s for run in of) for name, of in runs.items()}
    cpu = {name: statistics.median(run.cpu_s for run in of) for name, of in runs.items()}
    own = [run for name in METHODS for run in runs[name]]
    figures = {
        "wall_over_tool": wall[FIRST] / wall[TOOL],
        "cpu_over_tool": cpu[FIRST] / cpu[TOOL],
        "cpu_over_push": cpu[FIRST] / cpu[PLAIN],
        "peak_rss_mb": max(run.peak_rss_bytes for run in own) / 1e6,
        "written_mb": max(run.written_bytes for run in own) / 1e6,
    }
    for name in HOLES.keys() & runs.keys():
        figures[f"{name}_rss_mb"] = runs[name][0].peak_rss_bytes / 1e6
    print(f"{'':24}{'wall s':>9}{'CPU s':>9}{'CPU/push':>10}{'ns/byte':>9}{'peak MB':>9}")
    for name in runs:
        size = getattr(arguments, f"{name}_gb" if name in HOLES else "gb") * 1e9
        peak = max(run.peak_rss_bytes for run in runs[name]) / 1e6
        each = cpu[name] / size * 1e9
        print(
            f"{name:24}{wall[name]:9.2f}{cpu[name]:9.2f}{cpu[name] / cpu[PLAIN]:10.2f}"
            f"{each:9.2f}{peak:9.0f}"
        )
    rounded = {name: round(value, 4) for name, value in figures.items()}
    return {
        "benchmark": "stream",
        "gb": arguments.gb,
        "load_at_end": os.getloadavg()[0],
        "wall_s": {name: round(value, 2) for name, value in wall.items()},
        "cpu_s": {name: round(value, 2) for name, value in cpu.items()},
        **rounded,
        **verdict([*all_at_most(rounded, TARGETS), holds("limits", limits_hold())]),
    }


def limits_hold() -> bool:
    """Run the tests of what a stream writes to the disk, and plans by headers."""
    words = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *LIMITS)
    done = subprocess.run(words, cwd=HERE.parent, stdout=subprocess.PIPE, text=True)
    say(done.stdout[-2000:])
    return done.returncode == 0 and " skipped" not in done.stdout


if __name__ == "__main__":
    sys.exit(main())
