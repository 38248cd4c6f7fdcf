"""Adapters in a real vLLM: each name reaches its adapter on every path, and nobody's none."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import OWN_PLACES
from tests.live.building import build, ran, told
from tests.live.processors import cap_words, caps, need_true_flags
from tests.live.servers import SMALL_MODEL, ask, served, small_model_words
from tests.support.adapters import read_adapter, tiny_modules, write_adapter
from tests.support.commandline import TINY, packager_in
from tests.support.tiny_forward import log_odds, weights_of

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]

PROMPT = "def loads("
NAMES = ("tiny-llama", "one", "three", "two")


@dataclass(frozen=True)
class Adapted:
    """A server with adapters, and what arithmetic says of each name."""

    url: str
    places: Mapping[str, Path]

    def ask(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> Any:
        data = json.dumps(body).encode()
        said = {"Content-Type": "application/json", **(headers or {})}
        request = urllib.request.Request(f"{self.url}{path}", data, said)
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)

    def status(self, path: str, body: Mapping[str, Any]) -> int:
        try:
            self.ask(path, body)
        except urllib.error.HTTPError as error:
            return error.code
        return 200


def write_three(place: Path) -> dict[str, Path]:
    """Write adapters of three ranks: plain, by the root of the rank, by patterns."""
    alike = tiny_modules("q_proj", "v_proj")
    ranks = {path: 24 if ".0." in path else 8 for path in alike}
    every = tiny_modules(
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"
    )
    return {
        "one": write_adapter(place / "one", r=8, lora_alpha=16, seed=1, size=4.0),
        "two": write_adapter(
            place / "two", every, r=4, lora_alpha=3, use_rslora=True, seed=2, size=3.0
        ),
        "three": write_adapter(
            place / "three",
            alike,
            ranks=ranks,
            rank_pattern={r"layers\.0\..*_proj": 24},
            alpha_pattern={"v_proj": 3},
            dtype="F32",
            seed=3,
            size=6.0,
        ),
    }


@pytest.fixture(scope="module")
def adapted(
    docker_host: str, serving_base: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Adapted]:
    place = tmp_path_factory.mktemp("adapters")
    adapters = write_three(place / "all")
    own = {variable: str(place / folder) for variable, folder in OWN_PLACES.items()}
    name = "packager-test:adapters"
    words = ("--adapters", str(place / "all"), "--max-adapters", "2")
    environment = {"DOCKER_HOST": docker_host, **own}
    build(packager_in(place), f"docker:{name}", *words, base=serving_base, env=environment)
    small = {**SMALL_MODEL, **caps()}
    with served(docker_host, name, None, None, **small) as (_, url):
        yield Adapted(url, adapters)


@pytest.mark.capability("adapters")
def test_every_name_answers_as_arithmetic_says(adapted: Adapted) -> None:
    config = json.loads((TINY / "config.json").read_text())
    listed = [one["id"] for one in ask(adapted.url, "/v1/models")["data"]]
    assert sorted(listed) == sorted(NAMES)
    tokens = ask(adapted.url, "/tokenize", {"model": "tiny-llama", "prompt": PROMPT})["tokens"]
    firsts = set()
    for name in NAMES:
        adapter = read_adapter(adapted.places[name], name) if name in adapted.places else None
        meant = log_odds(weights_of(TINY, adapter), config, tokens)
        body = {"model": name, "prompt": PROMPT, "max_tokens": 1, "temperature": 0, "logprobs": 1}
        choice = adapted.ask("/v1/completions", {**body, "return_token_ids": True})["choices"][0]

        (token,) = choice["token_ids"]
        assert meant[token] > meant.max() - 0.1, name
        assert choice["logprobs"]["token_logprobs"][0] == pytest.approx(meant[token], abs=0.15)
        firsts.add(round(float(meant[token]), 3))
    assert len(firsts) == len(NAMES), "the four are told apart"


def test_every_path_reaches_the_adapter_that_is_named(adapted: Adapted) -> None:
    header = "X-Amzn-SageMaker-Adapter-Identifier"
    texts = {}
    for name in NAMES:
        plain = {"prompt": PROMPT, "max_tokens": 16, "temperature": 0}
        inputs = {"inputs": PROMPT, "parameters": {"max_new_tokens": 16, "do_sample": False}}
        text = adapted.ask("/v1/completions", {"model": name, **plain})["choices"][0]["text"]
        by_body = adapted.ask("/invocations", {"model": name, **plain})["choices"][0]["text"]
        by_header = adapted.ask("/invocations", plain, {header: name})["choices"][0]["text"]
        lmi = adapted.ask("/invocations", {"model": name, **inputs})["generated_text"]
        tgi = adapted.ask("/generate", {"model": name, **inputs})["generated_text"]
        tgi_header = adapted.ask("/generate", inputs, {header: name})["generated_text"]

        assert {by_body, by_header, lmi, tgi, tgi_header} == {text}, name
        texts[name] = text

        chat = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 8}
        chat |= {"temperature": 0}
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
        said = adapted.ask("/v1/chat/completions", {"model": name, **chat})
        through = adapted.ask("/invocations", {"model": name, **chat})
        with_tool = {"model": name, "tools": [tool], "tool_choice": "none", **chat}
        assert said["choices"][0]["message"] == through["choices"][0]["message"]
        assert adapted.ask("/v1/chat/completions", with_tool)["model"] == name
    assert len(set(texts.values())) == len(NAMES)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": PROMPT}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": PROMPT}]}),
        ("/invocations", {"prompt": PROMPT}),
        ("/invocations", {"messages": [{"role": "user", "content": PROMPT}]}),
        ("/invocations", {"inputs": PROMPT}),
        ("/generate", {"inputs": PROMPT}),
    ],
)
def test_a_name_that_is_nobodys_is_not_found(
    adapted: Adapted, path: str, body: dict[str, Any]
) -> None:
    assert adapted.status(path, {**body, "model": "nobody"}) == 404


def test_adapters_cannot_be_loaded_from_outside(adapted: Adapted) -> None:
    body = {"lora_name": "x", "lora_path": "/opt/packager/adapters/one"}
    assert adapted.status("/v1/load_lora_adapter", body) == 404
    assert adapted.status("/adapters", {"name": "x", "src": "/opt/packager/adapters/one"}) == 404


def test_a_load_is_measured_adapter_by_adapter(adapted: Adapted, tmp_path: Path) -> None:
    mix = ("--adapter", "one=4", "--adapter", "*", "--adapter", "tiny-llama")
    load = ("--requests", "40", "--concurrency", "2", "--workload", "20:4", "--warm-up", "0")
    ran(packager_in(tmp_path), "bench", adapted.url, *mix, *load, "--output", "bench.json")

    (variant,) = json.loads((tmp_path / "bench.json").read_text())["variants"]
    (found,) = variant["loads"]
    assert {one["name"]: one["answered"] == one["requests"] for one in found["adapters"]} == (
        dict.fromkeys(NAMES, True)
    )
    assert max(found["adapters"], key=lambda one: one["requests"])["name"] == "one"
    assert not any("is not shown" in note for note in found["notes"])


def test_two_adapters_are_asked_the_same_questions(adapted: Adapted, tmp_path: Path) -> None:
    asked = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 4, "temperature": 0}
    rows = []
    for name in ("one", "two"):
        said = adapted.ask("/v1/chat/completions", {"model": name, **asked})["choices"][0]
        rows.append({"messages": asked["messages"], "answer": said["message"]["content"]})
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = ("--base", adapted.url, "--base-adapter", "one", "--candidate", adapted.url,
             "--adapter", "two", "--tasks", "tasks.jsonl", "--task-tokens", "4")  # fmt: skip

    found = told(packager_in(tmp_path), "evaluate", *words)

    assert [found[name] for name in ("questions", "lost", "gained", "changed")] == [2, 1, 1, 2]
    assert found["base"]["right"] == found["candidate"]["right"] == 1


def test_a_tune_measures_slots_of_adapters(engine: str, serving_base: str, tmp_path: Path) -> None:
    need_true_flags()  # `packager tune` mounts no files into its servers
    adapters = write_three(tmp_path / "all")
    found = told(
        packager_in(tmp_path, timeout_s=1200),
        *("tune", "--model", str(TINY), "--instance", "local", "--base", serving_base),
        *("--goal", "throughput", "--adapters", "all", "--only", "--try", "--max-adapters 1"),
        *("--workload", "8:4", "--concurrency", "2", "--requests", "12", "--rounds", "2"),
        *("--figures", "figures.json", *small_model_words(), *cap_words(), "--quiet"),
    )

    assert {one["name"]: one["rounds"] for one in found["candidates"]} == {
        "as requested": 2,
        "--max-adapters 1": 2,
    }
    for variant in json.loads((tmp_path / "figures.json").read_text())["variants"]:
        (load,) = variant["loads"]
        assert {one["name"] for one in load["adapters"] if one["answered"]} == {*adapters}
