"""A real image whose weights a real vLLM split before: loaded by it at TP 2, and equally right."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.live.servers import SMALL_MODEL, ask, greedy_tokens, run_inside, served
from tests.support.commandline import TINY, Packager

pytestmark = [pytest.mark.live, pytest.mark.timeout(1800)]

SPLIT, PLAIN = "packager-test:sharded", "packager-test:two-ranks"
PROMPTS = ("The quick brown fox", "def main():")
MODEL = "/opt/packager/model"
NEAR = 0.1  # two ranks add in another order, in 16 bits


def chances(url: str) -> list[list[float]]:
    """Logarithms of what each token of the prompts is given, behind those before it."""
    found = []
    for prompt in PROMPTS:
        body = {"model": "tiny-llama", "prompt": prompt, "max_tokens": 1, "temperature": 0}
        answer = ask(url, "/v1/completions", {**body, "echo": True, "logprobs": 1})
        told = answer["choices"][0]["logprobs"]["token_logprobs"]
        found.append(told[1:-1])  # nothing is before the first; the last is no prompt's
    assert all(len(told) > 2 for told in found)
    return found


def test_two_ranks_load_what_was_split_for_them_and_answer_as_before(
    tmp_path: Path, packager: Packager, engine: str, serving_base: str, plain_server: str
) -> None:
    """The step itself compares both ways to load: its two starts give the same tokens or it fails.

    Here the image is held against one rank, and for `PACKAGER_SERVE=all` against two.
    """
    common = (
        *("build", "--model", str(TINY), "--instance", "local", "--base", serving_base),
        *("--tp-degree", "2", "--quiet"),
    )
    split = (*common, "--load-format", "sharded_state", "--executor", "docker")
    record = tmp_path / "record.json"
    packager(*split, "--output", f"docker:{SPLIT}", "--record", str(record), status=0)
    [step] = json.loads(record.read_text())["steps"]
    assert (step["name"], step["details"]["files"]) == ("shard", 2)

    packager(*split, "--output", f"oci:{tmp_path / 'out'}", "--require-cached", status=0)

    with served(engine, SPLIT, **SMALL_MODEL) as (container, url):
        names = run_inside(container, ["ls", MODEL])[1].decode().split()
        assert [name for name in names if name.endswith(".safetensors")] == [
            "model-rank-0-part-0.safetensors",
            "model-rank-1-part-0.safetensors",
        ]
        assert "model.safetensors.index.json" not in names
        found = greedy_tokens(url, PROMPTS)
        for ours, whole in zip(chances(url), chances(plain_server), strict=True):
            assert ours == pytest.approx(whole, abs=NEAR)

    if os.environ.get("PACKAGER_SERVE") != "all":
        return
    packager(*common, "--output", f"docker:{PLAIN}", status=0)
    with served(engine, PLAIN, **SMALL_MODEL) as (_, url):
        assert greedy_tokens(url, PROMPTS) == found
