"""Start an image with what was compiled ahead of time, and the same image without it.

    python benchmarks/cold_start.py [--rounds 3]

Builds the base, and examples/tiny-llama with compiled files and without, in an engine of its own
(root on Debian; see scripts/), or in the one that `--docker` names; `--image` and `--eager` name
images that are there already.  Containers are started in turn, each from nothing: the one that
may use its compiled files, the one that is told to leave them alone (`PACKAGER_COMPILED=off`) and
compiles, and one that compiles nothing at all.  Of each: seconds until /ping answers, until the
first token is there, the engine's own figure of its initialisation, and the processor time of the
whole container until its first token, which a busy machine changes least.

The engine is asked for the same tokens each time.  With and without compiled files they must
be identical; eager execution rounds otherwise.

The last line of stdout is one JSON object with every figure.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from judging import all_at_most, holds, verdict
from measuring import call, say
from servers import engine

TARGETS = {"ratio_engine_init": 0.3, "ratio_total": 0.5}
TINY = Path(__file__).resolve().parent.parent / "examples" / "tiny-llama"
COMPILED, EAGER = "packager-bench:compiled", "packager-bench:eager"
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
    parser.add_argument("--image", default="", help="with compiled files, in the engine")
    parser.add_argument("--eager", default="", help="the same model without, compiling nothing")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--docker", default="", help="DOCKER_HOST of an engine")
    arguments = parser.parse_args()
    if arguments.image and not arguments.docker:
        arguments.docker = os.environ.get("DOCKER_HOST", "")
    with started(arguments.docker) as host:
        figures = measure(host, arguments)
    print(json.dumps(figures))
    return 0 if figures["targets_met"] else 1


@contextmanager
def started(docker_host: str) -> Iterator[str]:
    """Name an engine: the one that is named, else one of our own."""
    with tempfile.TemporaryDirectory(prefix="cold-start-") as directory:
        if docker_host:
            yield docker_host
            return
        with engine(Path(directory) / "engine") as (host, _):
            yield host


def measure(host: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Build what is not there, and start everything in turns."""
    import docker

    os.environ["DOCKER_HOST"] = host
    image, eager = arguments.image, arguments.eager
    if not image:
        image, eager = COMPILED, eager or EAGER
        build(COMPILED, "--executor", "docker", "--compile", "vllm_cache")
        build(EAGER)
    client = docker.DockerClient(base_url=host, timeout=120)
    variants: dict[str, tuple[str, Mapping[str, str]]] = {
        "with": (image, {}),
        "without": (image, {"PACKAGER_COMPILED": "off"}),
    }
    if eager:
        variants["eager"] = (eager, {})
    starts: dict[str, list[Start]] = {name: [] for name in variants}
    for number in range(arguments.rounds):
        # Each goes first as often as the others: a machine may slow down on the way.
        names = list(variants)[number % len(variants) :] + list(variants)[: number % len(variants)]
        for name in names:
            start = run_container(client, *variants[name])
            starts[name].append(start)
            say(
                f"{name:<8} ping {start.ping_s:6.1f} s  first token {start.first_token_s:6.1f} s  "
                f"engine {start.engine_init_s:6.1f} s  cpu {start.cpu_s:6.1f} s"
            )
    return describe(starts)


def build(image: str, *more: str) -> None:
    """Build tiny-llama for this machine into the engine."""
    say(f"building {image}")
    call(
        [
            *(sys.executable, "-m", "packager", "build", "--model", str(TINY)),
            *("--instance", "local", "--base", "embedded:vllm-cpu", "--max-batch", "16"),
            *("--output", f"docker:{image}", "--quiet", *more),
        ]
    )


def run_container(client: Any, image: str, environment: Mapping[str, str]) -> Start:
    """Start a container, wait for its first tokens, remove it."""
    bridged = any(network["Driver"] == "bridge" for network in client.api.networks())
    network = {"ports": {f"{PORT}/tcp": ("127.0.0.1", None)}} if bridged else {}
    container = client.containers.create(
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
    rows = [
        *all_at_most(ratios, TARGETS),
        holds("identical_answers", same),
        holds("compiled_files_used", used),
    ]
    return {
        "benchmark": "cold_start",
        **{name: round(value, 3) for name, value in ratios.items()},
        "identical_answers": same,
        "compiled_files_used": used,
        "medians": medians,
        "rounds": {name: [without_tokens(start) for start in found]
                   for name, found in starts.items()},
        "targets": TARGETS,
        **verdict(rows),
    }  # fmt: skip


def without_tokens(start: Start) -> dict[str, Any]:
    return {name: value for name, value in asdict(start).items() if name != "tokens"}


if __name__ == "__main__":
    sys.exit(main())
