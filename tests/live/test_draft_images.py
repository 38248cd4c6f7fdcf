"""Images that speculate, served by a real vLLM: a draft model, n-grams, heads trained here.

At temperature 0 a draft changes nothing but the speed, so that every answer is held against those
of one image without a draft, which is started once for all.  Where two tokens are equally likely
either may be chosen: which one is up to the processor's kernels, and such ties are few.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from packager.addons.bench.load.run import run_load
from packager.addons.bench.load.values import Level, LoadPlan, LoadRequest
from packager.cli.serving.openai import Server
from packager.core.probes import probe_request
from packager.core.samples import Message, Sample
from packager.core.speculation import NUMERIC_NOISE
from tests.live.building import build, ran, told
from tests.live.processors import cap_words, caps, need_kernel
from tests.live.servers import SMALL_MODEL, ask, served, small_model_words
from tests.support.cases import read_tables
from tests.support.commandline import TINY, Packager, packager_in
from tests.support.places import ROOT

Report = dict[str, Any]
pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]

everything = pytest.mark.skipif(
    os.environ.get("PACKAGER_SERVE") != "all", reason="PACKAGER_SERVE=all starts this too"
)

DRAFT = ROOT / "examples" / "tiny-llama-draft"
SHIPPED = ROOT / "packager" / "catalog" / "data" / "samples.jsonl"
BUSY = {**SMALL_MODEL, **caps()}
ON_ONE = (*small_model_words(), *cap_words())
CORPUS = read_tables(__file__)
TRAINING: dict[str, list[str]] = CORPUS["training"]
AT_LEAST: dict[str, float] = CORPUS["at_least"]


@pytest.fixture(scope="module")
def packager_here(docker_host: str, tmp_path_factory: pytest.TempPathFactory) -> Packager:
    """The command line with one cache for all tests: the model answers for both heads at once."""
    place = tmp_path_factory.mktemp("drafts")
    env = {
        "DOCKER_HOST": docker_host,
        "DOCKER_CONFIG": str(place / "docker"),
        "PACKAGER_CACHE": str(place / "cache"),
        "XDG_STATE_HOME": str(place / "state"),
    }
    return partial(packager_in(place, timeout_s=1200), env=env)


@pytest.fixture(scope="module")
def heads(
    packager_here: Packager, training_fast: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """An EAGLE-3 head and Medusa heads for the model, trained on its own answers."""
    place = tmp_path_factory.mktemp("heads")
    train = partial(packager_here, env=packager_here.keywords["env"] | training_fast)
    for method, how in TRAINING.items():
        ran(
            train,
            *("draft", "train", "--model", str(TINY), "--data", "default", "--method", method),
            *("--answers", "model", "--output", str(place / method), "--quiet"),
            *(*CORPUS["small"], *how),
        )
    return {method: place / method for method in TRAINING}


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Conversations and texts such as the model was trained on, and code that repeats itself."""
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    code = [json.dumps({"prompt": prompt, "completion": ""}) for prompt in CORPUS["prompts"]]
    lines = [*SHIPPED.read_text().splitlines()[::12], *code]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str, Report], None]:
    """Print what was accepted, for whoever reads the run."""

    def line(what: str, found: Report) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n{what}: {found['length']} tokens a step, {found['by_position']}\n")

    return line


def built(packager: Packager, base: str, draft: str, *more: str) -> str:
    """Build an image with the draft; give its name."""
    name = f"packager-test:draft-{draft.partition(':')[0].rpartition('/')[2]}"
    build(packager, f"docker:{name}", "--draft", draft, *more, base=base)
    return name


def measured(packager: Packager, server: str, plain: str, prompts: Path, *more: str) -> Report:
    """Measure with every prompt; the answers must be those of the plain server."""
    report = told(
        packager,
        *("draft", "measure", server, "--plain", plain, "--data", str(prompts)),
        *("--samples", "100", "--max-tokens", "48", "--concurrency", "1", *more),
        "--require-identical",
    )
    same = report["sameness"]
    found: Report = report["acceptance"]
    assert same["compared"] == same["identical"] + same["ties"] == report["samples"] >= 20
    assert same["ties"] <= same["compared"] // 5, same
    assert found["source"] == "vllm"
    return found


@pytest.mark.parametrize(
    "sample",
    [
        Sample(prompt="def main():\n    parser ="),
        Sample(messages=(Message(role="user", content="What does loads do?"),)),
    ],
    ids=["prompt", "conversation"],
)
def test_a_server_tells_its_prompts_tokens_and_the_chances_of_the_next_one(
    plain_server: str, sample: Sample
) -> None:
    """Which is how a tie is told from a difference."""
    server = Server(plain_server)
    asked = probe_request(sample, 6)
    request = LoadRequest(endpoint=asked.endpoint, body=asked.body)
    plan = LoadPlan(level=Level(concurrency=1), requests=1)
    (answer,) = run_load(plain_server, TINY.name, [request], plan, token_ids=True).results

    assert answer.is_answered, answer.reason
    assert len(answer.prompt_token_ids) > 3
    for place, token in enumerate(answer.token_ids[:4]):
        before = (*answer.prompt_token_ids, *answer.token_ids[:place])
        chances = server.next_token_chances(before, TINY.name)
        assert len(chances) == 5
        assert max(chances.values()) - chances[token] <= NUMERIC_NOISE["bf16"]


@pytest.mark.capability("draft")
def test_a_draft_model_is_accepted_and_is_no_second_model(
    packager_here: Packager,
    docker_host: str,
    serving_base: str,
    plain_server: str,
    prompts: Path,
    say: Callable[[str, Report], None],
) -> None:
    image = built(packager_here, serving_base, str(DRAFT))
    with served(docker_host, image, **BUSY) as (_, url):
        models = ask(url, "/v1/models")["data"]
        found = measured(packager_here, url, plain_server, prompts)
        alone = packager_here(
            *("draft", "measure", url, "--plain", "none", "--require-identical"),
            *("--samples", "4", "--max-tokens", "16", "--concurrency", "1"),
        )

    assert alone.status == 7
    assert "no answers were compared with a plain server's" in alone.err
    assert "tokens a step, by vLLM's own count" in alone.out
    assert "of the proposed tokens taken" in alone.out
    assert [model["id"] for model in models] == [TINY.name]
    say("draft model", found)
    assert found["length"] > AT_LEAST["draft model"]


def test_n_grams_are_accepted_where_text_repeats_itself(
    packager_here: Packager,
    serving_base: str,
    plain_server: str,
    prompts: Path,
    say: Callable[[str, Report], None],
) -> None:
    image = built(packager_here, serving_base, "ngram")

    found = measured(packager_here, image, plain_server, prompts, *ON_ONE)

    say("ngram", found)
    assert found["length"] > AT_LEAST["ngram"]


@pytest.mark.parametrize("method", TRAINING)
def test_heads_that_were_trained_are_accepted(
    packager_here: Packager,
    docker_host: str,
    serving_base: str,
    plain_server: str,
    prompts: Path,
    heads: dict[str, Path],
    say: Callable[[str, Report], None],
    method: str,
) -> None:
    report = json.loads((heads[method] / "training.json").read_text())
    assert report["loss"] < 0.75 * report["loss_before"]
    assert report["expected_length"] > report["expected_length_before"] + 0.1

    image = built(packager_here, serving_base, f"{method}:{heads[method]}")
    with served(docker_host, image, **BUSY) as (_, url):
        found = measured(packager_here, url, plain_server, prompts)

    say(method, found)
    assert found["length"] > AT_LEAST[method]
    assert len(found["by_position"]) == 3


@everything
@pytest.mark.parametrize("method", TRAINING)
@pytest.mark.parametrize(
    "more",
    [
        ("--quantize", "awq", "--calibration-samples", "16", "--calibration-tokens", "128"),
        ("--compile", "vllm_cache", "--executor", "docker"),
    ],
    ids=["awq", "compiled"],
)
def test_heads_propose_for_a_model_that_was_quantized_or_compiled(
    packager_here: Packager,
    serving_base: str,
    prompts: Path,
    heads: dict[str, Path],
    say: Callable[[str, Report], None],
    method: str,
    more: tuple[str, ...],
) -> None:
    if "awq" in more:
        need_kernel("w4a16")
    image = built(packager_here, serving_base, f"{method}:{heads[method]}", *more)

    found = measured(packager_here, image, "auto", prompts)

    say(f"{method} {more[1]}", found)
    assert found["length"] > AT_LEAST[method]
