"""Quantizing through packager against llm-compressor alone: same tensors, time, memory.

    python benchmarks/quantize.py [--rounds 3] [--methods "fp8;smoothquant;awq;gptq"] [--cores]

Both work on one model with random weights, in one environment, on one thread, on the same
texts.  The tensors are the same but for SmoothQuant, whose scales go by magnitude here.  Ours is
timed twice: the worker alone, which is what the bare process is held against, and the whole build
with planning, keys and writing the image.  Ours keeps work for the case of an interruption, which
the ratios hold, and `build_written_mb` shows.  `--cores` times AWQ of one layer of Llama-3-8B's
dimensions instead, on one thread and on all cores, and beside it what the machine itself gives:
products of matrices, and copies of memory.
The last line of stdout is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tarfile
import tempfile
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.judging import Judged, at_least, at_most, holds, verdict
from benchmarks.measuring import Run, call, say, timed
from packager.cli.wiring.builds import services_for
from packager.cli.wiring.settings import Settings
from packager.core.request import BuildRequest
from packager.core.samples import DEFAULT, choose_samples
from packager.models.samples.load import load_samples
from packager.pipeline import pipeline

TINY = Path(__file__).resolve().parent.parent / "examples" / "tiny-llama"
BARE = Path(__file__).with_name("quantize_bare.py")
SAMPLES, TOKENS, SEED = 16, 256, 0
MOST_TIME, MOST_MEMORY = 1.05, 1.1
OWN_SCALES = ("smoothquant",)  # of methods whose numbers are not the library's
LEAST_SPEEDUP = 0.9  # times the cores: 1.8 on two
MAKE = """
import sys, torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
torch.set_default_dtype(torch.bfloat16)
hidden, inner, heads, kv_heads = map(int, sys.argv[3].split(","))
size = dict(hidden_size=hidden, intermediate_size=inner, num_hidden_layers=int(sys.argv[2]))
heads = dict(num_attention_heads=heads, num_key_value_heads=kv_heads, vocab_size=2048)
config = LlamaConfig(**size, **heads, max_position_embeddings=2048)
LlamaForCausalLM(config).save_pretrained(sys.argv[1], max_shard_size="500MB")
"""
BOUND = """
import json, time, torch
one = torch.ones(4096, 4096, dtype=torch.bfloat16)
from_, to = torch.ones(1 << 26), torch.ones(1 << 26)
def best(work):
    taken = []
    for _ in range(9):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return min(taken)
print(json.dumps({"products": best(lambda: one @ one), "copies": best(lambda: to.copy_(from_))}))
"""
SMALL = "1536,4096,24,6"
LLAMA_3_8B = "4096,14336,32,8"


def main() -> int:
    """Measure every method in turn, print the figures, return 1 where a target is missed."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--layers", type=int, default=12, help="45 MB each")
    methods = "fp8;smoothquant;awq;gptq"
    options.add_argument("--methods", default=methods, help="separated by semicolons")
    options.add_argument("--samples", type=int, default=SAMPLES, help="texts to calibrate with")
    options.add_argument("--cores", action="store_true", help="time one thread and all cores")
    asked = options.parse_args()
    call(["packager", "tools", "install", "llmcompressor"])
    python = call(["packager", "tools", "path", "llmcompressor"]).strip() + "/bin/python"
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        if asked.cores:
            cores = compare_cores(python, root, asked.samples, asked.rounds)
            print(json.dumps(cores))
            return 0 if cores["targets_met"] else 1
        model = make_model(python, root / "model", asked.layers)
        samples = choose_samples(load_samples(DEFAULT), asked.samples, SEED)
        (root / "samples.jsonl").write_bytes(samples.jsonl())
        methods = asked.methods.split(";")
        found = {method: compare(method, python, model, root, asked.rounds) for method in methods}
    figures = {
        "benchmark": "quantize",
        "methods": found,
        "rounds": asked.rounds,
        **verdict([row for method, one in found.items() for row in compared(method, one)]),
    }
    print(json.dumps(figures))
    return 0 if figures["targets_met"] else 1


def compared(method: str, found: dict[str, Any]) -> list[Judged]:
    """Hold the figures of a method against the targets."""
    same = [holds(f"{method} identical_tensors", found["identical_tensors"])]
    return [
        *(same if method not in OWN_SCALES else ()),
        at_most(f"{method} time_ratio", found["time_ratio"], MOST_TIME),
        at_most(f"{method} memory_ratio", found["memory_ratio"], MOST_MEMORY),
    ]


def compare_cores(python: str, root: Path, samples: int, rounds: int) -> dict[str, Any]:
    """Quantize one layer by AWQ on one thread and on all cores, in turn."""
    model = make_model(python, root / "model", 1, LLAMA_3_8B)
    request = BuildRequest(
        model=str(model), instance="ml.g6.12xlarge", family="vllm", base="scratch",
        quantize="awq", calibration_samples=samples, calibration_tokens=TOKENS,
    )  # fmt: skip
    tools = services_for(Settings())
    [step] = pipeline.plan(request, tools).recipe.steps
    cores = len(os.sched_getaffinity(0))
    seconds: dict[int, list[float]] = {1: [], cores: []}
    found: dict[int, object] = {}
    for _ in range(rounds):
        for threads, taken in seconds.items():
            into = root / f"on-{threads}"
            shutil.rmtree(into, ignore_errors=True)
            into.mkdir()
            env = {**step.env, "OMP_NUM_THREADS": str(threads)}
            asked = replace(step, key=None, env=env, threads=0)
            taken.append(tools.executor.run(asked, into).seconds)
            found[threads] = tensors_in(into)
            say(f"awq on {threads} threads: {taken[-1]:.1f} s")
    one, every = (statistics.median(taken) for taken in (seconds[1], seconds[cores]))
    alone, together = (bound_of(python, threads) for threads in (1, cores))
    return {
        "machine_speedup": {name: round(alone[name] / together[name], 2) for name in alone},
        "cores": cores,
        "one_thread_s": round(one, 1),
        "all_cores_s": round(every, 1),
        "speedup": round(one / every, 2),
        "identical_tensors": found[1] == found[cores],
        "benchmark": "quantize cores",
        **verdict([at_least("speedup", one / every, LEAST_SPEEDUP * cores)]),
    }


def bound_of(python: str, threads: int) -> dict[str, float]:
    """Time what is bound by arithmetic alone, and by memory alone, on some threads."""
    env = {**environment(), "OMP_NUM_THREADS": str(threads)}
    found: dict[str, float] = json.loads(call([python, "-c", BOUND], env))
    return found


def make_model(python: str, place: Path, layers: int, sizes: str = SMALL) -> Path:
    """Write a Llama with random weights and tiny-llama's tokenizer."""
    call([python, "-c", MAKE, str(place), str(layers), sizes], environment())
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY / name, place / name)
    return place


def compare(method: str, python: str, model: Path, root: Path, rounds: int) -> dict[str, Any]:
    """Run both in turn, so that a busy minute hits both."""
    bare: list[Run] = []
    workers: list[dict[str, Any]] = []
    builds: list[Run] = []
    theirs, ours = root / "bare", root / "ours"
    samples = str(len((root / "samples.jsonl").read_text().splitlines()))
    for _ in range(rounds):
        for place in (theirs, ours):
            shutil.rmtree(place, ignore_errors=True)
        command = [python, str(BARE), str(model), str(root / "samples.jsonl"), method, str(theirs)]
        bare.append(timed(partial(call, command, environment()), ()))
        say(f"{method}: bare {bare[-1].wall_s:.1f} s, {bare[-1].peak_rss_bytes / 1e6:.0f} MB")
        command = [
            *("packager", "build", "--model", str(model), "--instance", "ml.g6.12xlarge"),
            *("--family", "vllm", "--base", "scratch", "--no-cache"),
            *("--quantize", method, "--quantizer", "llmcompressor"),
            *("--calibration-samples", samples, "--calibration-tokens", str(TOKENS)),
            *("--output", f"oci:{ours}", "--record", str(root / "record.json"), "--quiet"),
        ]
        builds.append(timed(partial(call, command), ()))
        [step] = json.loads((root / "record.json").read_text())["steps"]
        workers.append(step)
        peak = step["peak_memory_bytes"] / 1e6
        say(f"{method}: worker {step['seconds']:.1f} s, {peak:.0f} MB")
    bare_s = statistics.median(run.wall_s for run in bare)
    worker_s = statistics.median(step["seconds"] for step in workers)
    bare_peak = statistics.median(run.peak_rss_bytes for run in bare)
    peak = statistics.median(step["peak_memory_bytes"] for step in workers)
    return {
        "bare_s": round(bare_s, 2),
        "worker_s": round(worker_s, 2),
        "build_s": round(statistics.median(run.wall_s for run in builds), 2),
        "time_ratio": round(worker_s / bare_s, 3),
        "bare_peak_mb": round(bare_peak / 1e6),
        "worker_peak_mb": round(peak / 1e6),
        "memory_ratio": round(peak / bare_peak, 3),
        "bare_cpu_s": round(statistics.median(run.cpu_s for run in bare), 1),
        "build_cpu_s": round(statistics.median(run.cpu_s for run in builds), 1),
        "bare_written_mb": round(bare[-1].written_bytes / 1e6),
        "build_written_mb": round(builds[-1].written_bytes / 1e6),
        "identical_tensors": tensors_in(theirs) == tensors_in(unpacked(ours, root / "unpacked")),
    }


def environment() -> dict[str, str]:
    """What the worker of packager sees too."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONHASHSEED": "0"}


def unpacked(layout: Path, into: Path) -> Path:
    """Take the model's weights out of an OCI layout."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    blobs = layout / "blobs/sha256"
    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads((blobs / index["manifests"][0]["digest"][7:]).read_text())
    for layer in manifest["layers"]:
        with tarfile.open(blobs / layer["digest"][7:]) as archive:
            for entry in archive:
                file = archive.extractfile(entry) if entry.name.endswith(".safetensors") else None
                if file is not None:
                    with (into / Path(entry.name).name).open("wb") as out:
                        shutil.copyfileobj(file, out)
    return into


def tensors_in(directory: Path) -> dict[str, tuple[str, tuple[int, ...], str]]:
    """Give each tensor's type, shape and digest."""
    found = {}
    for path in directory.glob("*.safetensors"):
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
            for name, told in header.items():
                if name != "__metadata__":
                    begin, end = told["data_offsets"]
                    file.seek(8 + size + begin)
                    digest = sha256(file.read(end - begin)).hexdigest()
                    found[name] = (told["dtype"], tuple(told["shape"]), digest)
    return found


if __name__ == "__main__":
    sys.exit(main())
