"""One client of `load_against_vllm.py`, inside the container of the server.

    python3 load_inside.py packager|vllm < orders

Each line of stdin is an order, a JSON object; each line of stdout its figures.  The process stays,
so that neither client pays for its imports, and both run on the same interpreter.  Processor time
is that of a whole load: from the first request, which is not measured, to the figures.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

RESULT = Path("/tmp/result.json")
Figures = dict[str, Any]


def main(client: str) -> None:
    """Answer orders until stdin ends."""
    measure = {"packager": Packager, "vllm": Vllm}[client]()
    answers, sys.stdout = sys.stdout, sys.stderr  # what vLLM prints is no answer
    for line in sys.stdin:
        answers.write(json.dumps(measure(json.loads(line))) + "\n")
        answers.flush()


class Packager:
    """The client of `packager bench`."""

    def __init__(self) -> None:
        sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

    def __call__(self, order: Mapping[str, Any]) -> Figures:
        from packager.addons.bench.load import run as loads
        from packager.addons.bench.load.client import LoadClient, Now
        from packager.addons.bench.load.values import Level, LoadPlan, LoadRequest, LoadResult
        from packager.addons.bench.metrics import load_figures

        asked = list(zip(order["prompts"], order["lengths"], strict=True))
        requests = [
            LoadRequest(
                endpoint="/v1/completions",
                body={
                    "prompt": prompt,
                    "max_tokens": tokens,
                    "temperature": 0,
                    "ignore_eos": True,
                    "stream": True,
                },
            )
            for prompt, tokens in (asked[0], *asked)  # the first is not counted, as vLLM has it
        ]
        level = Level(concurrency=order["concurrency"])
        plan = LoadPlan(level=level, requests=len(asked), warm_up=1)
        begun_s: dict[int, float] = {}  # when a request is begun: vLLM's clock starts then

        class Noting(LoadClient):
            async def send(self, request: LoadRequest, number: int, now: Now) -> LoadResult:
                begun_s[number] = now()
                return await super().send(request, number, now)

        loads.LoadClient = Noting  # type: ignore[misc]
        began_s = time.process_time()
        run = loads.run_load(order["url"], order["model"], requests, plan)
        metrics = load_figures([run]).metrics
        cpu_s = time.process_time() - began_s
        failed = [one.reason for one in run.results if one.failure]
        if failed:
            raise SystemExit(failed[0])
        first_s = {one.number: one.first_byte_s or one.ended_s for one in run.results}
        return {
            "lengths": [one.output_tokens for one in run.results],
            "throughput": metrics["output_token_throughput"].avg,
            "ttft": 1000
            * statistics.median(first_s[one.number] - begun_s[one.number] for one in run.results),
            "ttft_text": metrics["time_to_first_token"].p50 or 0.0,
            "tpot": 1000
            * statistics.median(
                (one.ended_s - first_s[one.number]) / ((one.output_tokens or 0) - 1)
                for one in run.results
            ),
            "cpu": cpu_s,
        }


class Vllm:
    """`vllm bench serve`, as it stands."""

    def __init__(self) -> None:
        from vllm.benchmarks import serve
        from vllm.entrypoints.cli.main import main as run

        self._run: Callable[[], object] = run
        self._cpu_s = 0.0
        real = serve.benchmark

        async def timed(*words: Any, **named: Any) -> Any:
            began_s = time.process_time()
            try:
                return await real(*words, **named)
            finally:
                self._cpu_s = time.process_time() - began_s

        serve.benchmark = timed

    def __call__(self, order: Mapping[str, Any]) -> Figures:
        talks = zip(order["prompts"], order["answers"], strict=True)
        written = [
            {"conversations": [{"from": "human", "value": one}, {"from": "gpt", "value": two}]}
            for one, two in talks
        ]
        data = RESULT.with_name("prompts.json")
        data.write_text(json.dumps(written))
        RESULT.unlink(missing_ok=True)
        sys.argv = [
            *("vllm", "bench", "serve", "--backend", "openai", "--base-url", order["url"]),
            *("--endpoint", "/v1/completions", "--model", order["model"], "--temperature", "0"),
            *("--tokenizer", order["tokenizer"], "--dataset-name", "sharegpt"),
            *("--dataset-path", str(data), "--num-prompts", str(len(written))),
            *("--max-concurrency", str(order["concurrency"]), "--disable-shuffle", "--ignore-eos"),
            *("--disable-tqdm", "--save-result", "--save-detailed", "--result-dir", "/tmp"),
            *("--result-filename", RESULT.name),
        ]
        with contextlib.suppress(SystemExit):
            self._run()
        result = json.loads(RESULT.read_text())
        return {
            "lengths": result["output_lens"],
            "throughput": result["output_throughput"],
            "ttft": result["median_ttft_ms"],
            "tpot": result["median_tpot_ms"],
            "cpu": self._cpu_s,
        }


if __name__ == "__main__":
    main(*sys.argv[1:])
