"""The figures of `evaluate` against the same ones reckoned plainly, and its own formats.

They need torch: each test runs a program with the tool's Python.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from packager.core.share import share_dir
from tests.support.places import ROOT

pytestmark = pytest.mark.live

TOOLS = share_dir("containers") / "tools"
PRELOADED = ROOT / "tests/live/preloaded.py"
START = """
import json, math, random, sys
import torch
torch.manual_seed(0)
random.seed(0)
"""


Told = Callable[[str], Any]


@pytest.fixture(scope="module")
def told(quantizing: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """Run a program among the modules of `evaluate`; give what it printed as JSON.

    Each runs in a fork of one process that has torch, which takes longer to load than they run.
    """
    place = tmp_path_factory.mktemp("programs")
    path = ":".join(str(TOOLS / name) for name in ("evaluate", "common", "llmcompressor"))
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [str(quantizing), str(PRELOADED), str(theirs.fileno()), "torch"],
            env=env,
            pass_fds=(theirs.fileno(),),
        )

    def tell(program: str) -> Any:
        script = place / "program.py"
        script.write_text(START + program)
        asked = {"command": [str(script)], "cwd": str(place), "env": env}
        reading, writing = os.pipe()
        with os.fdopen(reading) as printed, tempfile.TemporaryFile() as complaints:
            try:
                document = json.dumps(asked).encode()
                socket.send_fds(ours, [document], [writing, complaints.fileno()])
            finally:
                os.close(writing)
            ours.recv(64)  # its pid
            out = printed.read()
            complaints.seek(0)
            assert out, complaints.read().decode()
            return json.loads(out)

    with ours:
        yield tell
    assert process.wait(60) == 0


BOTH = """
from measures import Comparison
V, texts = 97, []
for count in (5, 130, 64, 65, 1, 33):
    p = torch.randn(count, V) * 3
    q = p + torch.randn(count, V) * 0.3
    texts.append((p, q, torch.randint(0, V, (count,)), torch.rand(count) < 0.4))
made = Comparison()
for text in texts:
    made.add(*text)
found = made.report()

def row(x):  # log softmax in plain Python
    top = max(x)
    whole = math.log(math.fsum(math.exp(v - top) for v in x)) + top
    return [v - whole for v in x]

nll_p, nll_q, kl, same, flips, deltas, per_text = [], [], [], [], [], [], []
for p, q, truth, answers in texts:
    sums = [0.0, 0.0, 0.0]
    for a, b, t, is_answer in zip(p.tolist(), q.tolist(), truth.tolist(), answers.tolist()):
        lp, lq = row(a), row(b)
        nll_p.append(-lp[t]); nll_q.append(-lq[t])
        kl.append(math.fsum(math.exp(x) * (x - y) for x, y in zip(lp, lq)))
        first_p, first_q = lp.index(max(lp)), lq.index(max(lq))
        same.append(first_p == first_q)
        deltas.append((math.exp(lq[t]) - math.exp(lp[t])) ** 2)
        if is_answer:
            flips.append((first_p == t) != (first_q == t))
        sums = [sums[0] + kl[-1], sums[1] + lp[t] - lq[t], sums[2] + 1]
    per_text.append(sums)
n, tokens = len(texts), len(kl)
mean = sum(kl) / tokens
error = math.sqrt(n / (n - 1) * sum((s[0] - mean * s[2]) ** 2 for s in per_text)) / tokens
kl.sort()
plain = {
    "texts": n, "tokens": tokens,
    "perplexity_base": math.exp(sum(nll_p) / tokens),
    "perplexity_candidate": math.exp(sum(nll_q) / tokens),
    "perplexity_increase": math.exp((sum(nll_q) - sum(nll_p)) / tokens) - 1,
    "kld_mean": mean, "kld_mean_ci95": 2.570582 * error,  # Student's t with 5 degrees
    "kld_median": kl[math.ceil(tokens * 0.5) - 1], "kld_p99": kl[math.ceil(tokens * 0.99) - 1],
    "kld_max": kl[-1],
    "top1_agreement": sum(same) / tokens,
    "probability_delta_rms": math.sqrt(sum(deltas) / tokens),
    "answer_tokens": len(flips), "answer_flips": sum(flips) / len(flips),
}
print(json.dumps([found, plain]))
"""


def test_the_figures_are_those_of_plain_arithmetic(told: Told) -> None:
    found, plain = told(BOTH)

    near = {"kld_median": 4e-3, "kld_p99": 4e-3, "kld_mean_ci95": 2e-3}
    for name, value in plain.items():
        assert found[name] == pytest.approx(value, rel=near.get(name, 1e-6)), name
    assert found["answer_tokens_lost"] + found["answer_tokens_won"] == pytest.approx(
        found["answer_flips"] * found["answer_tokens"]
    )


def test_intervals_hold_the_truth_as_often_as_they_say(told: Told) -> None:
    """Texts of unequal length whose tokens depend on each other; 400 times ten of them."""
    held = told(
        """
from measures import Ratio
held = 0
for _ in range(400):
    ratio = Ratio()
    for _ in range(10):
        tokens = random.randint(20, 200)
        ratio.add(tokens * (2.0 + random.gauss(0, 0.5)), tokens)
    held += abs(ratio.mean - 2.0) <= ratio.ci95
print(held / 400)
"""
    )

    assert 0.90 <= held <= 0.98


def test_students_t_is_the_tables(told: Told) -> None:
    found = told(
        "from measures import t95; print(json.dumps([t95(n + 1) for n in (3, 5, 15, 63, 1000)]))"
    )

    assert found == pytest.approx([3.1824, 2.5706, 2.1314, 1.9983, 1.9623], rel=8e-3)


def test_one_text_gives_figures_without_intervals(told: Told) -> None:
    found = told(
        """
from measures import Comparison
made = Comparison()
p = torch.randn(7, 11)
made.add(p, p, torch.zeros(7, dtype=torch.long), torch.zeros(7, dtype=torch.bool))
print(json.dumps(made.report()))
"""
    )

    assert (found["kld_mean"], found["kld_p99"], found["top1_agreement"]) == (0, 0, 1)
    assert found["perplexity_increase"] == 0
    assert found["perplexity_increase_ci95"] is found["kld_mean_ci95"] is None
    assert (found["answer_tokens"], found["answer_flips"]) == (0, None)


def test_quantiles_hold_over_all_magnitudes(told: Told) -> None:
    pairs = told(
        """
from measures import Histogram
values = 10 ** (torch.rand(20001, dtype=torch.float64) * 11 - 9)
made = Histogram()
for piece in values.split(1000):
    made.add(piece)
ordered = values.sort().values
pairs = [
    (made.quantile(s), float(ordered[max(1, math.ceil(s * 20001)) - 1]))
    for s in (0, 0.01, 0.5, 0.9, 0.99, 0.999, 1)
]
print(json.dumps(pairs))
"""
    )

    for found, true in pairs:
        assert found == pytest.approx(true, rel=4e-3)


def test_impossible_and_hopeless_tokens_are_no_crash(told: Told) -> None:
    """What the base rules out costs nothing; what only the candidate rules out, everything."""
    ruled_out, hopeless = told(
        """
from measures import Comparison
reports = []
p = torch.randn(3, 5)
for rows in ("base", "candidate"):
    masked = p.clone(); masked[:, 4] = -math.inf
    made = Comparison()
    pair = (masked, masked) if rows == "base" else (p, masked)
    made.add(*pair, torch.tensor([0, 1, 4 if rows == "candidate" else 2]),
             torch.zeros(3, dtype=torch.bool))
    reports.append(made.report())
print(json.dumps(reports))
"""
    )

    assert ruled_out["kld_mean"] == 0
    assert hopeless["kld_mean"] is hopeless["perplexity_candidate"] is None


def test_answers_part_where_they_first_differ(told: Told) -> None:
    found = told(
        """
from measures import Generations
made = Generations()
for pair in (([1, 2, 3], [1, 2, 3]), ([1, 2, 3], [1, 9, 3]), ([1, 2], [1, 2, 3]), ([], [])):
    made.add(*pair)
print(json.dumps(made.report()))
"""
    )

    assert found == {
        "prompts": 4,
        "identical": 2,
        "tokens_before_divergence": pytest.approx(6 / 9),
        "first_divergence_median": 2,
    }


def test_the_awq_format_is_read_as_it_was_written(told: Told) -> None:
    """What `gemm.py` writes, `awq.py` reads: zero points, scales, odd groups."""
    worst = told(
        """
from awq import dequantize
from gemm import _pack
outputs, inputs, group = 24, 96, 32
integers = torch.randint(0, 16, (outputs, inputs))
zeros = torch.randint(0, 16, (outputs, inputs // group))
scales = (torch.rand(outputs, inputs // group) + 0.1).half()
meant = (integers - zeros.repeat_interleave(group, 1)) * scales.float().repeat_interleave(group, 1)
made = dequantize(_pack(integers.T), _pack(zeros.T), scales.T.contiguous())
print(float((made - meant).abs().max()))
"""
    )

    assert worst == 0
