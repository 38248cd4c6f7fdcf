"""Start an image with what was compiled ahead of time, and the same image without it.

Containers are started in turn, each from nothing: the one that may use its compiled files,
the one that is told to leave them alone (`PACKAGER_COMPILED=off`) and compiles, and with
`--eager IMAGE` one that compiles nothing at all.  Of each: seconds until /ping answers, until
the first token is there, the engine's own figure of its initialisation, and the processor
time of the whole container until its first token, which a busy machine changes least.

The engine is asked for the same tokens each time.  With and without compiled files they must
be identical; eager execution rounds otherwise.

The last line of stdout is one JSON object with every figure.

    packager build --model examples/tiny-llama --instance local --compile vllm_cache \
        --executor docker --output docker:tiny:compiled
    python benchmarks/cold_start.py --image tiny:compiled --rounds 3
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

TARGETS = {"ratio_engine_init": 0.3}
INIT = re.compile(r"init engine \(.*?\) took ([0-9.]+) s")
PORT = 8080
READY_S = 900.0
PROMPTS = ("The quick brown fox", "def main():", "Once upon a time there was")


@dataclass(frozen=True)
class Start:
    """One container, from its start to its first tokens."""

    ping_s: float
    first_token_s: float
    engine_init_s: float
    cpu_s: float  # of all its processes until then: a busy machine does not change it
    tokens: list[list[str]]
    said: str  # by the launcher


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--image", required=True, help="with compiled files, in the engine")
    parser.add_argument("--eager", help="the same model without, which compiles nothing")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()

    import docker

    engine = docker.from_env(timeout=120)
    variants: dict[str, tuple[str, Mapping[str, str]]] = {
        "with": (arguments.image, {}),
        "without": (arguments.image, {"PACKAGER_COMPILED": "off"}),
    }
    if arguments.eager:
        variants["eager"] = (arguments.eager, {})
    starts: dict[str, list[Start]] = {name: [] for name in variants}
    for number in range(arguments.rounds):
        # Each goes first as often as the others: a machine may slow down on the way.
        names = list(variants)[number % len(variants) :] + list(variants)[: number % len(variants)]
        for name in names:
            start = run_container(engine, *variants[name])
            starts[name].append(start)
            print(
                f"{name:<8} ping {start.ping_s:6.1f} s  first token {start.first_token_s:6.1f} s  "
                f"engine {start.engine_init_s:6.1f} s  cpu {start.cpu_s:6.1f} s",
                file=sys.stderr,
            )
    figures = describe(starts)
    print(json.dumps(figures))
    return 0 if figures["targets_met"] else 1


def run_container(engine: Any, image: str, environment: Mapping[str, str]) -> Start:
    """Start a container, wait for its first tokens, remove it."""
    bridged = any(network["Driver"] == "bridge" for network in engine.api.networks())
    network = {"ports": {f"{PORT}/tcp": ("127.0.0.1", None)}} if bridged else {}
    container = engine.containers.create(
        image, environment=dict(environment), shm_size="1g",
        **(network or {"network_mode": "host"}),
    )  # fmt: skip
    try:
        began = time.monotonic()
        container.start()
        container.reload()
        port = container.ports[f"{PORT}/tcp"][0]["HostPort"] if bridged else PORT
        url = f"http://127.0.0.1:{port}"
        wait_for(f"{url}/ping", container, began)
        ping_s = time.monotonic() - began
        with urllib.request.urlopen(f"{url}/v1/models", timeout=60) as answer:
            model = json.load(answer)["data"][0]["id"]
        tokens = [ask(url, model, PROMPTS[0], 1)]
        first_token_s = time.monotonic() - began
        usage = container.stats(stream=False)["cpu_stats"]["cpu_usage"]["total_usage"]
        tokens += [ask(url, model, prompt, 32) for prompt in PROMPTS]
        log = container.logs().decode(errors="replace")
    finally:
        container.remove(force=True, v=True)
    said = INIT.search(log)
    return Start(
        ping_s=round(ping_s, 2),
        first_token_s=round(first_token_s, 2),
        engine_init_s=float(said[1]) if said else float("nan"),
        cpu_s=round(usage / 1e9, 2),
        tokens=tokens,
        said=next((line for line in log.splitlines() if line.startswith("packager: ")), ""),
    )


def wait_for(url: str, container: Any, began: float) -> None:
    while time.monotonic() - began < READY_S:
        with suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            if answer.status == 200:
                return
        container.reload()
        if container.status == "exited":
            raise SystemExit(container.logs(tail=40).decode(errors="replace"))
        time.sleep(0.1)
    raise SystemExit(f"the server was not ready within {READY_S:.0f} s")


def ask(url: str, model: str, prompt: str, tokens: int) -> list[str]:
    """Give the tokens of a greedy answer."""
    body = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0,
            "logprobs": 1}  # fmt: skip
    if tokens == 1:
        del body["logprobs"]  # the first token waits for nothing else
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as answer:
        choice = json.load(answer)["choices"][0]
    return list((choice.get("logprobs") or {}).get("tokens") or [choice["text"]])


def describe(starts: Mapping[str, list[Start]]) -> dict[str, Any]:
    """Medians of each variant, and their ratios."""
    medians = {
        name: {
            field: statistics.median(getattr(start, field) for start in found)
            for field in ("ping_s", "first_token_s", "engine_init_s", "cpu_s")
        }
        for name, found in starts.items()
    }
    ours, theirs = medians["with"], medians["without"]
    answers = [start.tokens for name in ("with", "without") for start in starts[name]]
    ratios = {
        "ratio_engine_init": ours["engine_init_s"] / theirs["engine_init_s"],
        "ratio_total": ours["first_token_s"] / theirs["first_token_s"],
        "ratio_cpu": ours["cpu_s"] / theirs["cpu_s"],
    }
    if "eager" in medians:
        ratios["ratio_total_eager"] = ours["first_token_s"] / medians["eager"]["first_token_s"]
    same = all(answer == answers[0] for answer in answers)
    used = all("are in place" in start.said for start in starts["with"])
    met = same and used and all(ratios[name] <= most for name, most in TARGETS.items())
    return {
        **{name: round(value, 3) for name, value in ratios.items()},
        "identical_answers": same,
        "compiled_files_used": used,
        "medians": medians,
        "rounds": {name: [without_tokens(start) for start in found]
                   for name, found in starts.items()},
        "targets": TARGETS,
        "targets_met": met,
    }  # fmt: skip


def without_tokens(start: Start) -> dict[str, Any]:
    return {name: value for name, value in asdict(start).items() if name != "tokens"}


if __name__ == "__main__":
    sys.exit(main())
