"""Convert, build, check and load one TensorRT-LLM engine.

Runs in the serving image, on the GPU model that will serve: an engine is tuned for it, and
config.json says nothing of it.  Stops before the build, which takes an hour, wherever
something is not as the plan says.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import engine
from packager_worker import BadInput, Rejected, Report, Spec, run, versions_of

HERE = Path(__file__).resolve().parent
PACKAGES = ("tensorrt_llm", "tensorrt", "nvidia-modelopt", "torch")
SAID_LINES = 40  # of a program that failed, in the error
UNSUPPORTED = ("Unsupported model architecture", "is not supported in TRT-LLM yet")


def work(spec: Spec, report: Report) -> dict[str, Any]:
    """Build the engine; the details say how long each part took."""
    asked = spec.parameters
    env = {**os.environ, **asked["env"]}  # the image's own paths
    refuse_other_version(asked["engine"])
    here = describe_gpus(env)
    refuse_other_gpu(asked["target"], here, spec.gpus)
    checkpoint = spec.work / "checkpoint"
    checkpoint.mkdir()
    took = {"convert": convert(spec, report, checkpoint, env)}
    took["build"] = build(spec, report, checkpoint, env)
    weights = weights_of(checkpoint)
    engine.check_engine(spec.output, asked["expected"], weights)
    began = time.monotonic()
    words = [sys.executable, str(HERE / "load.py"), str(spec.output), str(asked["prompt_tokens"])]
    said = call(report, "loading the engine", words, env, spec.work)
    took["load"] = time.monotonic() - began
    engine.write_manifest(spec.output, here, versions_of(PACKAGES))
    return {
        "seconds": {name: round(seconds, 1) for name, seconds in took.items()},
        "engine_bytes": sum(path.stat().st_size for path in spec.output.glob("rank*.engine")),
        "checkpoint_bytes": sum(weights.values()),
        "answer": said[-1] if said else "",
        **here,
    }


def refuse_other_version(wanted: Mapping[str, str]) -> None:
    """Stop where the image has another TensorRT-LLM than the catalog says."""
    found = versions_of((wanted["name"],)).get(wanted["name"], "none")
    if found.partition("+")[0] != wanted["version"]:
        raise RuntimeError(
            f"the plan is for {wanted['name']} {wanted['version']}, the base image has {found}"
        )


def describe_gpus(env: Mapping[str, str]) -> dict[str, Any]:
    """Ask the driver: names and compute capabilities, in its own words."""
    words = ["nvidia-smi", "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(words, env=dict(env), capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise RuntimeError(f"no GPU can be found here: {error}") from error
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line]
    return {
        "gpus": [row[0] for row in rows],
        "compute_capabilities": [row[1] for row in rows],
    }


def refuse_other_gpu(target: Mapping[str, str], here: Mapping[str, Any], wanted: int) -> None:
    """Stop where the GPUs are not those that will serve."""
    if len(here["gpus"]) < wanted:
        raise RuntimeError(f"the plan is for {wanted} GPUs, this machine has {len(here['gpus'])}")
    for found, capability in zip(here["gpus"], here["compute_capabilities"], strict=True):
        if capability != target["compute_capability"]:
            raise RuntimeError(
                f"the plan is for compute capability {target['compute_capability']}, "
                f"{found} has {capability}"
            )
        if target["gpu"].lower() not in found.lower():
            raise RuntimeError(f"the plan is for {target['gpu']}, this machine has {found}")


def convert(spec: Spec, report: Report, into: Path, env: Mapping[str, str]) -> float:
    """Bring the checkpoint into TensorRT-LLM's form, quantized where that is asked for."""
    asked = spec.parameters
    task: dict[str, Any] = {
        "model": str(spec.inputs["model"]),
        "output": str(into),
        "dtype": asked["dtype"],
        **asked["mapping"],
        "quantize": asked["quantize"],
    }
    if asked["quantize"]:
        texts = spec.work / "texts"
        texts.mkdir()
        write_texts(spec.inputs["samples"] / "samples.jsonl", texts / "train.jsonl")
        task["texts"] = str(texts)
    told = spec.work / "convert.json"
    told.write_text(json.dumps(task), encoding="utf-8")
    began = time.monotonic()
    doing = "quantizing" if asked["quantize"] else "converting"
    call(report, doing, [sys.executable, str(HERE / "convert.py"), str(told)], env, spec.work)
    if not (into / "config.json").is_file() or not weights_of(into):
        raise RuntimeError(f"{doing} left no checkpoint")
    return time.monotonic() - began


def write_texts(samples: Path, into: Path) -> None:
    """Give each sample as one text: TensorRT-LLM reads a column of that name."""
    try:
        rows = [json.loads(line) for line in samples.read_bytes().splitlines()]
    except (OSError, ValueError) as error:
        raise BadInput(f"the samples cannot be read: {error}") from error
    with into.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps({"text": text_of(row)}) + "\n")


def text_of(row: Mapping[str, Any]) -> str:
    if "messages" in row:
        return "\n".join(turn["content"] for turn in row["messages"])
    return str(row.get("text") or f"{row.get('prompt', '')}{row.get('completion', '')}")


def build(spec: Spec, report: Report, checkpoint: Path, env: Mapping[str, str]) -> float:
    """Run trtllm-build; what it leaves is looked at by the caller."""
    words = [
        "trtllm-build",
        *("--checkpoint_dir", str(checkpoint)),
        *("--output_dir", str(spec.output)),
        *spec.parameters["build"],
        *("--workers", str(max(1, spec.gpus))),
        *("--log_level", "info"),
    ]
    began = time.monotonic()
    call(report, "building the engine", words, env, spec.work)
    return time.monotonic() - began


def call(
    report: Report, doing: str, words: Sequence[str], env: Mapping[str, str], directory: Path
) -> list[str]:
    """Run a program to its end; its words go to our log, the last of them into the error."""
    said: deque[str] = deque(maxlen=SAID_LINES)
    with report.busy(doing):
        try:
            process = subprocess.Popen(
                words, env=dict(env), cwd=directory, text=True, errors="replace",
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
        except FileNotFoundError as error:
            hint = "is the base an image of TensorRT-LLM?"
            raise Rejected(f"{words[0]} cannot be started: {error}", hint) from error
        assert process.stdout is not None
        for line in process.stdout:
            sys.stderr.write(line)
            said.append(line.rstrip())
        status = process.wait()
    if status != 0:
        message = f"{doing} ended with status {status}:\n" + "\n".join(said)
        if any(words in line for line in said for words in UNSUPPORTED):
            raise Rejected(message, "TensorRT-LLM's engine backend does not know this model")
        raise RuntimeError(message)
    return [line for line in said if line]


def weights_of(checkpoint: Path) -> dict[int, int]:
    """Give the bytes of each rank's weights."""
    return {
        int(path.stem.removeprefix("rank")): path.stat().st_size
        for path in checkpoint.glob("rank*.safetensors")
    }


if __name__ == "__main__":
    run(work, packages=PACKAGES)
