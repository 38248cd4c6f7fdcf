"""Draft heads: training one, going on after a kill, having it again, and measuring one.

    python benchmarks/drafts.py [--texts 120] [--epochs 3] [--rounds 3] [--kill-epochs 8]

An EAGLE-3 head for tiny-llama is trained by `packager draft train`, the whole command with an
empty cache, and in turn with the speculators library's own commands (`drafts_bare.py`): the
same texts, packs, steps and float32, one thread each, in one environment.  One tool measures
both heads on the texts that were kept aside.  Then the same command again, which finds the
head in its cache; a longer training, and the same one killed at half of its time with all its
processes and run again.  At last a server with the head is put under load by `packager draft
measure` and by `vllm bench serve` from inside its container, with the same prompts.

Starts its own Docker Engine (root on Debian; see scripts/) and stops it; `--rounds-client 0`
does without.  The last line of stdout is one JSON object with every figure.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import statistics
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from judging import Judged, all_at_most, holds, verdict, within
from measuring import call, say
from servers import engine
from trees import Used, use

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from packager.core.samples import DEFAULT, Sample, Samples, choose_samples  # noqa: E402
from packager.models.samples.load import load_samples  # noqa: E402
from tests.live.servers import run_inside, served  # noqa: E402

TINY = ROOT / "examples" / "tiny-llama"
BARE = Path(__file__).with_name("drafts_bare.py")
PACKAGER = (sys.executable, "-m", "packager")
HELD_OUT, SEED = 24, 0
TOKENS, BATCH, LAYERS, AHEAD, RATE = 256, 512, (1, 2, 3), 3, 1e-3
ANSWER_TOKENS, LONGEST_PROMPT = 128, 400  # characters
LOADS = (1, 4)
MOST = {
    "ratio_time": 1.15,
    "ratio_memory": 1.10,
    "ratio_loss": 1.05,
    "ratio_resume": 1.15,
    "second_s": 2.0,
}
CLIENT = (0.9, 1.1)


def main() -> int:
    """Measure everything in turn and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", type=int, default=120, help="conversations to train on")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3, help="of both trainings")
    parser.add_argument("--kill-epochs", type=int, default=8, help="of the training to kill")
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--rounds-client", type=int, default=3, help="0: no server")
    arguments = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # installed programs are compiled once
    load_at_start = os.getloadavg()[0]
    call([*PACKAGER, "tools", "install", "draft-heads"])
    with tempfile.TemporaryDirectory(prefix="drafts-") as directory:
        place = Path(directory)
        os.environ["XDG_STATE_HOME"] = str(place / "state")
        training = Training(place, arguments.texts)
        figures = compare(training, arguments.epochs, arguments.rounds)
        figures |= killed(training, arguments.kill_epochs)
        if arguments.rounds_client:
            figures |= clients(place, arguments.prompts, arguments.rounds_client)
    figures |= {
        "benchmark": "drafts",
        "load_at_start": load_at_start,
        "load_at_end": os.getloadavg()[0],
        "targets": {**MOST, "ratio_client": CLIENT},
        **verdict(compared(figures)),
    }
    print(json.dumps(figures))
    return 0 if figures["targets_met"] else 1


class Training:
    """The texts, and how both train on them."""

    def __init__(self, place: Path, texts: int) -> None:
        self.place = place
        self.python = call([*PACKAGER, "tools", "path", "draft-heads"]).strip() + "/bin/python"
        self.texts, self.held_out = place / "train.jsonl", place / "held-out.jsonl"
        chosen = conversations(texts + HELD_OUT)
        self.held_out.write_bytes(Samples(source="", samples=chosen[:HELD_OUT]).jsonl())
        self.texts.write_bytes(Samples(source="", samples=chosen[HELD_OUT:]).jsonl())
        self.share = (texts + 0.5) / (texts + HELD_OUT)  # it is rounded down to whole texts

    def ours(
        self, cache: Path, head: Path, epochs: int, *more: str, kill_after_s: float | None = None
    ) -> Used:
        """The whole command, as a user writes it."""
        command = [
            *(*PACKAGER, "draft", "train", "--model", str(TINY), "--method", "eagle3"),
            *("--answers", "data", "--data", str(self.texts), "--held-out", str(self.held_out)),
            *("--output", str(head), "--cache-dir", str(cache), "--seed", str(SEED)),
            *("--aux-layers", ",".join(map(str, LAYERS)), "--speculative-tokens", str(AHEAD)),
            *("--epochs", str(epochs), "--learning-rate", str(RATE), "--max-tokens", str(TOKENS)),
            *("--batch-tokens", str(BATCH), "--format", "json", "--quiet", *more),
        ]
        return use(command, environment(), kill_after_s=kill_after_s)

    def theirs(self, place: Path, epochs: int) -> tuple[Used, Used]:
        """The library's commands: making the data, then training on them."""
        layers = map(str, LAYERS)
        command = [self.python, str(BARE), "data", str(TINY), str(self.texts), str(self.held_out)]
        data = use([*command, str(place), str(TOKENS), *layers], environment(), cwd=self.place)
        command = [
            *(self.python, str(BARE), "train", "--speculator-type", "eagle3"),
            *("--verifier-name-or-path", str(TINY), "--data-path", str(place / "data")),
            *("--save-path", str(place / "head"), "--log-dir", str(place / "logs")),
            *("--train-data-ratio", str(self.share), "--total-seq-len", str(BATCH)),
            *("--epochs", str(epochs), "--lr", str(RATE), "--optimizer", "adamw"),
            *("--ttt-steps", str(AHEAD), "--target-layer-ids", *map(str, LAYERS)),
            *("--no-norm-before-residual", "--no-norm-before-fc", "--no-norm-output"),
            *("--full-attention-indices", "0", "--draft-attn-impl", "sdpa"),
            *("--loss-implementation", "eager", "--hidden-states-dtype", "float32"),
            *("--num-workers", "0", "--on-missing", "raise", "--seed", str(SEED)),
            # Its best case: one checkpoint between, a line now and then.
            *("--checkpoint-freq", str(epochs), "--log-freq", "50"),
        ]
        return data, use(command, environment(), cwd=self.place)


def compare(training: Training, epochs: int, rounds: int) -> dict[str, Any]:
    """Train in turn; who begins changes. Then measure both heads with one tool."""
    ours: list[Used] = []
    theirs: list[Used] = []
    again: list[Used] = []
    stages: list[dict[str, float]] = []
    head, bare = training.place / "head", training.place / "bare"
    cache = training.place / "cache"
    for number in range(rounds):
        for which in ("bare", "ours") if number % 2 == 0 else ("ours", "bare"):
            if which == "bare":
                shutil.rmtree(bare, ignore_errors=True)
                data, trained = training.theirs(bare, epochs)
                theirs.append(data + trained)
                stages.append(
                    {**json.loads(data.out.splitlines()[-1]), "train_s": round(trained.wall_s, 2)}
                )
                tell("speculators", theirs[-1])
            else:
                for path in (cache, head):
                    shutil.rmtree(path, ignore_errors=True)
                ours.append(training.ours(cache, head, epochs))
                tell("packager", ours[-1])
                again.append(training.ours(cache, head, epochs))
                tell("packager again", again[-1])
    report = json.loads((head / "training.json").read_text())
    loss, length = loss_of(training, bare / "head" / str(epochs - 1))
    return {
        "texts": report["texts"],
        "tokens": report["tokens"],
        "steps": report["steps"],
        "rounds": {"packager": rounded(ours), "speculators": rounded(theirs)},
        "speculators_stages": stages,
        "ratio_time": ratio(ours, theirs, "wall_s"),
        "ratio_time_without_prepare_data": round(
            middle(ours, "wall_s")
            / statistics.median(
                one.wall_s - stage["prepare_s"] for one, stage in zip(theirs, stages, strict=True)
            ),
            3,
        ),
        "ratio_cpu": ratio(ours, theirs, "cpu_s"),
        # All of ours together over one of theirs: their commands could run one after another.
        "ratio_memory": round(
            middle(ours, "peak_rss_bytes") / middle(theirs, "largest_rss_bytes"), 3
        ),
        "ratio_written": ratio(ours, theirs, "written_bytes"),
        "loss_before": report["loss_before"],
        "loss": report["loss"],
        "loss_speculators": loss,
        "ratio_loss": round(report["loss"] / loss, 4),
        "expected_length": report["expected_length"],
        "expected_length_speculators": length,
        "again": rounded(again),
        "second_s": round(middle(again, "wall_s"), 2),
        "second_read_mb": round(middle(again, "read_bytes") / 1e6, 1),
    }


def loss_of(training: Training, head: Path) -> tuple[float, float]:
    """Measure a head on held-out texts: training it on says it before the first step."""
    place = training.place / "measured"
    training.ours(
        *(training.place / "cache-measured", place, 1),
        *("--from", str(head), "--max-steps", "1"),
    )
    report = json.loads((place / "training.json").read_text())
    return report["loss_before"], report["expected_length_before"]


def killed(training: Training, epochs: int) -> dict[str, Any]:
    """Train undisturbed; then kill it at half of that time, and have it go on."""
    whole_head, head = training.place / "whole", training.place / "resumed"
    whole = training.ours(training.place / "cache-whole", whole_head, epochs)
    tell("undisturbed", whole)
    cache = training.place / "cache-killed"
    first = training.ours(cache, head, epochs, kill_after_s=whole.wall_s / 2)
    tell("until it was killed", first)
    rest = training.ours(cache, head, epochs)
    tell("the rest", rest)
    both = first.wall_s + rest.wall_s
    return {
        "undisturbed_s": round(whole.wall_s, 2),
        "killed_at_s": round(first.wall_s, 2),
        "rest_s": round(rest.wall_s, 2),
        "resume_lost_s": round(both - whole.wall_s, 2),
        "ratio_resume": round(both / whole.wall_s, 3),
        "was_killed": first.killed,
        "identical_after_kill": contents(head) == contents(whole_head),
    }


def clients(place: Path, prompts: int, rounds: int) -> dict[str, Any]:
    """Put one server under the same load from both, in turn."""
    talks = conversations(prompts)
    texts = [" ".join(talk.messages[0].content.split())[:LONGEST_PROMPT] for talk in talks]
    texts = list(dict.fromkeys(texts))
    questions = place / "prompts.jsonl"
    lines = (json.dumps({"prompt": text, "completion": ""}) + "\n" for text in texts)
    questions.write_text("".join(lines))
    found: dict[str, list[float]] = {
        f"{who}_{load}": [] for load in LOADS for who in ("packager", "vllm")
    }
    image = "packager-bench:drafts"
    with engine(place / "engine") as (docker_host, _):
        os.environ["DOCKER_HOST"] = docker_host
        say("building the image that serves the head")
        call(
            [
                *(*PACKAGER, "build", "--model", str(TINY), "--instance", "local"),
                *("--base", "embedded:vllm-cpu", "--draft", f"eagle3:{place / 'head'}"),
                *("--output", f"docker:{image}", "--quiet"),
            ]
        )
        with served(docker_host, image, OMP_NUM_THREADS="1") as (container, published):
            url = own_address(container) or published
            bench = Bench(container, url, texts)
            asked_by_us(url, questions)  # the engine's prefix cache knows all prompts from here on
            for number in range(rounds):
                for who in ("packager", "vllm") if number % 2 == 0 else ("vllm", "packager"):
                    rates = asked_by_us(url, questions) if who == "packager" else bench.rates()
                    for load, rate in rates.items():
                        found[f"{who}_{load}"].append(rate)
                    say(f"{who}: " + ", ".join(f"{rate:.1f} tok/s" for rate in rates.values()))
    return {
        "client_tokens_per_s": found,
        **{
            f"ratio_client_{load}": round(
                statistics.median(found[f"packager_{load}"])
                / statistics.median(found[f"vllm_{load}"]),
                3,
            )
            for load in LOADS
        },
    }


def asked_by_us(url: str, questions: Path) -> dict[int, float]:
    """Have `packager draft measure` ask; give tokens a second by load."""
    said = call(
        [
            *(*PACKAGER, "draft", "measure", url, "--plain", "none", "--data", str(questions)),
            *("--samples", "100000", "--max-tokens", str(ANSWER_TOKENS), "--format", "json"),
            *("--concurrency", ",".join(map(str, LOADS)), "--quiet"),
        ]
    )
    speeds = {one["concurrency"]: one["speculative"] for one in json.loads(said)["speeds"]}
    assert not any(speeds[load]["failed"] for load in LOADS)
    return {load: speeds[load]["tokens_per_second"] for load in LOADS}


def own_address(container: Any) -> str:
    """Where a container on a bridge is without Docker's proxy, which takes time of its own."""
    container.reload()
    networks = container.attrs["NetworkSettings"]["Networks"].values()
    found = [one["IPAddress"] for one in networks if one.get("IPAddress")]
    return f"http://{found[0]}:8080" if found else ""


class Bench:
    """`vllm bench serve` inside the server's own container, with the same prompts."""

    def __init__(self, container: Any, url: str, prompts: Sequence[str]) -> None:
        self._container = container
        self._url = url
        self._count = len(prompts)
        talks = [[{"from": "human", "value": one}, {"from": "gpt", "value": ""}] for one in prompts]
        data = json.dumps([{"conversations": talk} for talk in talks]).encode()
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            member = tarfile.TarInfo("prompts.json")
            member.size, member.mode = len(data), 0o644
            tar.addfile(member, io.BytesIO(data))
        assert container.put_archive("/tmp", archive.getvalue())

    def rates(self) -> dict[int, float]:
        """Give tokens a second by load."""
        return {load: self._rate(load) for load in LOADS}

    def _rate(self, load: int) -> float:
        command = [
            *("python3", "-m", "vllm.entrypoints.cli.main", "bench", "serve"),
            *("--backend", "openai", "--base-url", self._url, "--endpoint", "/v1/completions"),
            *("--model", "model", "--tokenizer", "/opt/packager/model", "--temperature", "0"),
            *("--dataset-name", "sharegpt", "--dataset-path", "/tmp/prompts.json"),
            *("--sharegpt-output-len", str(ANSWER_TOKENS), "--num-prompts", str(self._count)),
            *("--max-concurrency", str(load), "--disable-shuffle", "--disable-tqdm"),
        ]
        offline = {"HF_HUB_OFFLINE": "1"}
        status, out, err = run_inside(self._container, command, offline)
        told = (out + err).decode(errors="replace")
        answered = re.search(r"Successful requests: +([0-9]+)", told)
        rate = re.search(r"Output token throughput \(tok/s\): +([0-9.]+)", told)
        if status or not answered or not rate or int(answered[1]) != self._count:
            raise SystemExit(f"vllm bench serve failed:\n{told[-3000:]}")
        return float(rate[1])


def conversations(count: int) -> tuple[Sample, ...]:
    """Take so many of the shipped conversations."""
    found = load_samples(DEFAULT)
    talks = tuple(one for one in found.samples if one.messages and one.answered)
    chosen = choose_samples(Samples(source=DEFAULT, samples=talks), count, SEED).samples
    if len(chosen) < count:
        raise SystemExit(f"there are {len(chosen)} conversations, {count} are asked for")
    return chosen


def environment() -> dict[str, str]:
    """What packager's worker sees, for both."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONHASHSEED": "0"}


def middle(of: Sequence[Used], name: str) -> float:
    """The median of one figure."""
    return statistics.median(float(getattr(one, name)) for one in of)


def ratio(ours: Sequence[Used], theirs: Sequence[Used], name: str) -> float:
    """Our median over theirs."""
    return round(middle(ours, name) / middle(theirs, name), 3)


def rounded(of: Sequence[Used]) -> list[dict[str, float]]:
    """Every round's figures."""
    return [
        {
            "wall_s": round(one.wall_s, 2),
            "cpu_s": round(one.cpu_s, 2),
            "peak_rss_mb": round(one.peak_rss_bytes / 1e6),
            "largest_rss_mb": round(one.largest_rss_bytes / 1e6),
            "read_mb": round(one.read_bytes / 1e6, 1),
            "written_mb": round(one.written_bytes / 1e6, 1),
        }
        for one in of
    ]


def tell(what: str, used: Used) -> None:
    """For a watching person."""
    say(
        f"{what:20} {used.wall_s:7.1f} s  {used.cpu_s:7.1f} s CPU  "
        f"{used.peak_rss_bytes / 1e6:6.0f} MB, {used.largest_rss_bytes / 1e6:.0f} MB in one"
    )


def contents(place: Path) -> dict[str, bytes]:
    """Every file's bytes."""
    return {path.name: path.read_bytes() for path in sorted(place.iterdir())}


def compared(figures: dict[str, Any]) -> list[Judged]:
    """Hold every figure against its target; without a server there are none of clients."""
    rows = all_at_most(figures, MOST)
    rows += [holds(name, figures[name]) for name in ("was_killed", "identical_after_kill")]
    names = (f"ratio_client_{load}" for load in LOADS)
    return rows + [within(name, figures[name], *CLIENT) for name in names if name in figures]


if __name__ == "__main__":
    sys.exit(main())
