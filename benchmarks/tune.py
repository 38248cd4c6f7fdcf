"""`packager tune` against measuring everything: the variant it finds, and what that costs.

    python benchmarks/tune.py [--rounds 3] [--requests 48] [--concurrency 4] [--tries 6]
        [--docker HOST]

tiny-llama as it is, AWQ, FP8, n-grams, a draft model and two settings of the engine are first
measured in every round, in turns.  Then `packager tune` looks for the best of them, with a journal
of its own, is killed twice with SIGKILL once it has written down some measurements, and run again.
What it finds is held against the intervals of the exhaustive run: on a processor several variants
are alike within noise, and any of those is right.

Starts its own Docker Engine (root on Debian; see scripts/) unless `--docker` names one.  The last
line of stdout is one JSON object with every figure.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from judging import at_most, holds, verdict
from measuring import say
from servers import engine

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from packager.addons.bench.commands.tune_choices import named_variations  # noqa: E402
from packager.addons.bench.commands.tune_work import (  # noqa: E402
    Loads,
    TuneWork,
    make_candidates,
    make_work,
    work_in_engine,
)
from packager.addons.bench.load.spec import RequestSpec  # noqa: E402
from packager.addons.bench.options import BenchOptions  # noqa: E402
from packager.addons.bench.tune.candidates import Field  # noqa: E402
from packager.addons.bench.tune.halving import Done, HalvingState, Standing, next_work  # noqa: E402
from packager.addons.bench.tune.journal import Rated, open_journal  # noqa: E402
from packager.addons.bench.tune.options import TuneOptions  # noqa: E402
from packager.addons.bench.tune.session import failures_in, journal_work, state_of  # noqa: E402
from packager.cli.run.containers import find_engine  # noqa: E402
from packager.core.events import ignore  # noqa: E402
from packager.core.request import BuildRequest  # noqa: E402

GOAL, WORKLOAD = "throughput", "64:32"
TRIES = (
    "--quantize awq",
    "--quantize fp8",
    "--draft ngram",
    f"--draft {ROOT / 'examples/tiny-llama-draft'}",
    "--engine-option max-num-batched-tokens=256",
    "--engine-option block-size=32",
)
FEW = {"calibration_samples": 16, "calibration_tokens": 128}
ENV = {"OMP_NUM_THREADS": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
KILLED_AFTER = (2, 6)  # measurements that were written down
MOST_SHARE = 0.6
POLL_S = 0.2


def main(arguments: Sequence[str]) -> int:
    """Measure everything, then tune; print the figures and return 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=48)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--tries", type=int, default=len(TRIES), help="how many of the variants")
    parser.add_argument("--docker", default="", help="DOCKER_HOST of an engine")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tune-") as name:
        place = Path(name)
        started = nullcontext((asked.docker, 0)) if asked.docker else engine(place / "engine")
        with started as (host, _):
            os.environ |= {"DOCKER_HOST": host, "XDG_STATE_HOME": str(place / "state")}
            found = compare(asked, place)
    print(json.dumps(found))
    return 0 if found["targets_met"] else 1


def compare(asked: argparse.Namespace, place: Path) -> dict[str, Any]:
    """Return the figures of both."""
    work = work_of(asked)
    field = make_candidates(work, (), named_variations(TRIES[: asked.tries], ()), only=True)
    say(f"{len(field.candidates)} candidates, {asked.rounds} rounds of each")
    began = time.monotonic()
    whole = measure_all(work, field, place / "all.jsonl", asked.rounds)
    exhaustive_s = time.monotonic() - began
    journal = place / "tune.jsonl"
    began = time.monotonic()
    report = tune_killed(asked, journal)
    tune_s = time.monotonic() - began
    rounds = [(one["candidate"], one["round"]) for one in lines_of(journal, "measured")]
    best = whole[0]
    mine = next(one for one in report["candidates"] if one["state"] == "best")
    same = next((one for one in whole if one.candidate == mine["id"]), None)
    if same is None:
        raise SystemExit(f"{mine['name']} was best for tune, and failed when all were measured")
    assert best.interval is not None
    assert same.interval is not None
    share = len(rounds) / report["exhaustive"]
    names = {one.id: one.name for one in field.candidates}
    return {
        "benchmark": "tune",
        "candidates": {
            names[one.candidate]: one.interval and [one.interval.low, one.interval.high]
            for one in whole
        },
        "exhaustive_best": names[best.candidate],
        "alike": [  # with the best, as far as the exhaustive run can tell: any of them is right
            names[one.candidate]
            for one in whole
            if one.interval and one.interval.high >= best.interval.low
        ],
        "tune_best": mine["name"],
        "within_noise": same.interval.high >= best.interval.low,
        "behind": 1 - same.interval.mean / best.interval.mean,
        "measurements": len(rounds),
        "exhaustive": report["exhaustive"],
        "share": share,
        "kills": len(KILLED_AFTER),
        "repeated": len(rounds) - len(set(rounds)),
        "exhaustive_s": exhaustive_s,
        "tune_s": tune_s,
        **verdict(
            [
                holds("within_noise", same.interval.high >= best.interval.low),
                at_most("share", share, MOST_SHARE),
                at_most("repeated", len(rounds) - len(set(rounds)), 0),
            ]
        ),
    }


def work_of(asked: argparse.Namespace) -> TuneWork:
    """Return the question that both answer."""
    request = BuildRequest(
        model=str(ROOT / "examples/tiny-llama"),
        instance="local",
        goal=GOAL,
        workload=WORKLOAD,
        **FEW,
    )
    loads = Loads(
        spec=RequestSpec(workload=WORKLOAD),
        load=BenchOptions(requests=asked.requests, warm_up=8),
        env=ENV,
        deadline_s=1800.0,
    )
    rounds = TuneOptions(concurrency=(asked.concurrency,), rounds=asked.rounds, keep_images=True)
    return make_work(request, rounds, loads, {}, budget_s=None, usd_per_hour=None)


def measure_all(work: TuneWork, field: Field, path: Path, rounds: int) -> list[Standing]:
    """Measure every candidate in every round; return how they stand, the best first."""
    docker = find_engine()
    with (
        open_journal(path, work.asked(), now="") as journal,
        work_in_engine(work, docker, journal, ignore) as workshop,
    ):
        for number in range(rounds):
            for one in field.candidates:
                if one.id not in failures_in(journal.events):
                    journal_work(one, number, journal, workshop, time.monotonic, work.race.limits)
                    say(f"round {number + 1}: {one.name}")
        state = state_of(field, work.race, journal.events)
        assert any(isinstance(one, Rated) for one in journal.events)
    kept = HalvingState(candidates=state.candidates, measured=state.measured, rounds=rounds)
    done = next_work(kept)
    assert isinstance(done, Done)
    measured = [one for one in done.standings if one.interval is not None]
    return sorted(measured, key=lambda one: -(one.interval.mean if one.interval else 0.0))


def tune_killed(asked: argparse.Namespace, journal: Path) -> dict[str, Any]:
    """Run the command to its end, killed on the way; return its report."""
    command = [
        *(sys.executable, "-m", "packager", "tune", "--model", str(ROOT / "examples/tiny-llama")),
        *("--instance", "local", "--goal", GOAL, "--workload", WORKLOAD, "--only"),
        *("--concurrency", str(asked.concurrency), "--requests", str(asked.requests)),
        *("--rounds", str(asked.rounds), "--warm-up", "8", "--format", "json", "--keep-images"),
        *(f"--try={one}" for one in TRIES[: asked.tries]),
        *(f"--{name.replace('_', '-')}={value}" for name, value in FEW.items()),
        *(f"--env={name}={value}" for name, value in ENV.items()),
        *("--journal", str(journal)),
    ]
    for least in KILLED_AFTER:
        with running(command) as process:
            while process.poll() is None and len(list(lines_of(journal, "measured"))) < least:
                time.sleep(POLL_S)
            process.send_signal(signal.SIGKILL)
            say(f"killed after {least} measurements")
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@contextmanager
def running(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        yield process


def lines_of(journal: Path, event: str) -> Iterator[dict[str, Any]]:
    """Yield the whole lines of a journal that say this."""
    if not journal.exists():
        return
    for line in journal.read_text().split("\n")[:-1]:
        found = json.loads(line)
        if found["event"] == event:
            yield found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
