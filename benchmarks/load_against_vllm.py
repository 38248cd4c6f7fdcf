"""The load client against `vllm bench serve`: the same server, the same requests, in turns.

    python benchmarks/load_against_vllm.py [--concurrency 1,4,16] [--rounds 9] [--minutes 6]

One container of examples/tiny-llama on vLLM for processors.  Both clients run inside it, on the
same interpreter and aiohttp, in a process each that stays: neither pays for imports.  Either sends
the same prompts and asks for the same tokens (`ignore_eos`), one load after the other; who is
first changes with every round.  A figure is the median of the rounds' ratios, ours over theirs.

- Answers differ in length, as the replies of the conversations do: where all have one length they
  end together, all requests of a wave wait for the same step of the engine, and the median of a
  load's first tokens is that of three waves, whatever measures it.
- All prompts were sent before, so that nobody finds the prefix cache colder than the other.
- Either client sends one request that it does not count, and then the load.
- vLLM's client takes the first chunk for the first token, also one without text, as a model with
  random weights often begins: half of a character.  `packager bench` waits for text.  What is
  compared is vLLM's meaning, from before a connection is opened to the first bytes of the answer;
  ours, from the request's writing to the first text, is beside it as `ttft_text`.
- The clients have one processor, the server the others: on a shared one, the client that takes
  less of it finds a faster server.
- Processor time is of the client's process, from that first request to the figures.

Starts its own Docker Engine (root on Debian; see scripts/) unless `--docker` names one.  The last
line of stdout is one JSON object with every figure.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from drafts import LONGEST_PROMPT, PACKAGER, ROOT, TINY, conversations, own_address
from judging import Judged, at_most, verdict, within
from measuring import call, say
from servers import engine

from tests.live.servers import served

RATIO = (0.9, 1.1)
MOST_CPU = 1.0
COMPARED = ("throughput", "ttft", "tpot", "cpu")
CLIENTS = ("packager", "vllm")
IMAGE = "packager-bench:load"
ANSWER = (80, 320)  # characters of a reply, which vLLM's tokenizer counts
# Requests of a load: enough that one does not move the median, at one as well as at 16 at a time.
LEAST, EACH = 24, 6
LEAST_ROUNDS = 3
CLIENT = max(os.sched_getaffinity(0))  # the processor of the clients
SERVER = os.sched_getaffinity(0) - {CLIENT}
INSIDE = "/tmp/packager-load"


@dataclass(frozen=True, slots=True)
class Talk:
    """A prompt, and a reply as long as the answer shall be."""

    prompt: str
    reply: str


def main() -> int:
    """Measure both in turns and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--concurrency", default="1,4,16", help="requests at a time")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--minutes", type=float, default=6.0, help="after which no round begins")
    parser.add_argument("--docker", default="", help="DOCKER_HOST of an engine")
    asked = parser.parse_args()
    levels = tuple(map(int, asked.concurrency.split(",")))
    load_at_start = os.getloadavg()[0]
    with started(asked.docker) as docker_host:
        found = measured(docker_host, levels, asked.rounds, 60 * asked.minutes)
    ratios = ratios_of(found, levels)
    figures = {
        "benchmark": "load_against_vllm",
        "figures": found,
        "rounds": min(map(len, found.values())),
        **{f"ratio_{name}": value for name, value in ratios.items()},
        "targets": {"ratio": RATIO, "ratio_cpu": MOST_CPU},
        "load_at_start": load_at_start,
        "load_at_end": os.getloadavg()[0],
        **verdict([judge(name, value) for name, value in ratios.items()]),
    }
    print(json.dumps(figures))
    return 0 if figures["targets_met"] else 1


@contextmanager
def started(docker_host: str) -> Iterator[str]:
    """Name an engine that has the image: the one that is named, else one of our own."""
    with tempfile.TemporaryDirectory(prefix="load-") as directory:
        own = engine(Path(directory) / "engine")
        with nullcontext((docker_host, 0)) if docker_host else own as (host, _):
            os.environ["DOCKER_HOST"] = host
            say("building the image")
            call(
                [
                    *(*PACKAGER, "build", "--model", str(TINY), "--instance", "local"),
                    *("--base", "embedded:vllm-cpu", "--output", f"docker:{IMAGE}", "--quiet"),
                    *("--max-batch", "16"),  # else some wait for others to end
                ]
            )
            yield host


def measured(
    docker_host: str, levels: Sequence[int], rounds: int, seconds: float
) -> dict[str, list[dict[str, float]]]:
    """Return what each client said in every round, by client and concurrency."""
    found: dict[str, list[dict[str, float]]] = {}
    talks = talks_of(max(map(size_of, levels)))
    with served(docker_host, IMAGE, OMP_NUM_THREADS="1") as (container, published):
        send_sources(container)
        keep_apart(container)
        url = own_address(container) or published
        with Client("packager", container, url) as ours, Client("vllm", container, url) as theirs:
            clients = dict(zip(CLIENTS, (ours, theirs), strict=True))
            told = theirs.measure(max(levels), talks, ())  # it counts the tokens of the replies
            lengths = told.pop("lengths")
            ours.measure(max(levels), talks, lengths)
            began = time.monotonic()
            for number in range(rounds):
                if number >= LEAST_ROUNDS and time.monotonic() - began > seconds:
                    break
                for level in levels:
                    size = size_of(level)
                    for who in CLIENTS if number % 2 == 0 else reversed(CLIENTS):
                        told = clients[who].measure(level, talks[:size], lengths[:size])
                        assert told.pop("lengths") == lengths[:size], (who, level)
                        found.setdefault(f"{who}_{level}", []).append(told)
                        say(f"{number + 1}: {who}, concurrency {level}: {json.dumps(told)}")
    return found


def size_of(level: int) -> int:
    """Return how many requests a load has."""
    return max(LEAST, EACH * level)


def talks_of(count: int) -> list[Talk]:
    """Return prompts that differ, with replies whose lengths differ."""
    chance = random.Random(0)
    found: dict[str, Talk] = {}
    for one in conversations(2 * count):
        prompt, reply = (" ".join(said.content.split()) for said in one.messages[:2])
        long_enough = f"{reply} " * ANSWER[1]
        shown = prompt[:LONGEST_PROMPT]
        found[shown] = Talk(shown, long_enough[: chance.randint(*ANSWER)])
    assert len(found) >= count, len(found)
    return list(found.values())[:count]


def send_sources(container: Any) -> None:
    """Put both clients into the container: ours with the packages that it needs."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in ("packager", "artifact_cache", "benchmarks/load_inside.py"):
            path = ROOT / name
            for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
                tar.add(file, f"{INSIDE.strip('/')}/{file.relative_to(ROOT)}")
    assert container.put_archive("/", archive.getvalue())


def keep_apart(container: Any) -> None:
    """Leave the clients a processor of their own: who takes more of it gets no slower server."""
    rows = container.top()
    column = rows["Titles"].index("PID")
    for pid in (int(row[column]) for row in rows["Processes"]):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), SERVER)


class Client:
    """A client inside the server's container, from `__enter__` to `__exit__`."""

    def __init__(self, name: str, container: Any, url: str) -> None:
        self._name = name
        self._order = {"url": url, "model": TINY.name, "tokenizer": "/opt/packager/model"}
        command = [
            *("docker", "exec", "-i", "-e", "HF_HUB_OFFLINE=1", str(container.id)),
            *("taskset", "--cpu-list", str(CLIENT)),
            *("python3", f"{INSIDE}/benchmarks/load_inside.py", name),
        ]
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the client
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, text=True
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate()
        self._said.close()

    def measure(
        self, concurrency: int, talks: Sequence[Talk], lengths: Sequence[int]
    ) -> dict[str, Any]:
        """Put the server under load; give the client's figures."""
        order = {
            **self._order,
            "concurrency": concurrency,
            "prompts": [one.prompt for one in talks],
            "answers": [one.reply for one in talks],
            "lengths": lengths,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._said.seek(0)
            said = self._said.read().decode(errors="replace")
            raise SystemExit(f"the client {self._name} failed:\n{said[-3000:]}")
        told: dict[str, Any] = json.loads(line)
        return told


def ratios_of(
    found: Mapping[str, Sequence[Mapping[str, float]]], levels: Sequence[int]
) -> dict[str, float]:
    """Return the median of the rounds' ratios, ours over theirs, by figure and concurrency."""
    ours, theirs = CLIENTS
    return {
        f"{name}_{level}": round(
            statistics.median(
                one[name] / two[name]
                for one, two in zip(
                    found[f"{ours}_{level}"], found[f"{theirs}_{level}"], strict=True
                )
            ),
            3,
        )
        for level in levels
        for name in COMPARED
    }


def judge(name: str, value: float) -> Judged:
    """Hold a ratio against its target."""
    shown = f"ratio_{name}"
    return (
        at_most(shown, value, MOST_CPU) if name.startswith("cpu") else within(shown, value, *RATIO)
    )


if __name__ == "__main__":
    sys.exit(main())
