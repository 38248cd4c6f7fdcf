"""Tokenizers that a benchmark counts with: of a hub, alone, and without it the server's count."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from packager.core.bench import BenchReport
from tests.support.commandline import TINY, Packager
from tests.support.doubles.fake_hub import FakeHub
from tests.support.llm_double import Behaviour, LlmDouble

LOAD = ("--workload", "40:2", "--requests", "3", "--concurrency", "1", "--format", "json")


@pytest.fixture
def server() -> Iterator[LlmDouble]:
    with LlmDouble(Behaviour(ttft_s=0.001, itl_s=0.0)) as double:
        yield double


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as served:
        served.add("acme/tiny", TINY)
        yield served


@pytest.fixture
def environment(hub: FakeHub, tmp_path: Path) -> dict[str, str]:
    return {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf")}


def metrics_of(out: str) -> set[str]:
    (load,) = BenchReport.model_validate_json(out).variants[0].loads
    return set(load.metrics)


COUNTED_HERE = "usage_prompt_tokens_diff_pct"  # the server's count against the client's


def test_a_model_of_a_hub_gives_its_tokenizer_and_nothing_else(
    packager: Packager, server: LlmDouble, hub: FakeHub, environment: dict[str, str]
) -> None:
    done = packager(
        "bench", server.url, "--tokenizer", "acme/tiny", *LOAD, env=environment, status=0
    )

    assert COUNTED_HERE in metrics_of(done.out)
    assert hub.asked("tokenizer.json")
    assert not hub.asked("safetensors") and not hub.asked("config.json")


def test_a_model_that_no_hub_has_is_refused(
    packager: Packager, server: LlmDouble, environment: dict[str, str]
) -> None:
    done = packager("bench", server.url, "--tokenizer", "acme/tony", *LOAD, env=environment)

    assert done.status in (66, 77)
    assert "acme/tony" in done.err
    assert server.records() == []


@pytest.mark.parametrize(("name", "is_used"), [("acme/tiny", True), ("acme/tony", False)])
def test_the_tokenizer_of_a_specification_is_used_where_it_can_be_had(
    packager: Packager,
    server: LlmDouble,
    environment: dict[str, str],
    tmp_path: Path,
    name: str,
    is_used: bool,
) -> None:
    parameters = {"tokenizer": name, "concurrency": 1, "request_count": 3,
                  "output_tokens_mean": 2}  # fmt: skip
    spec = tmp_path / "workload.json"
    spec.write_text(json.dumps({"benchmark": {"type": "aiperf"}, "parameters": parameters}))

    done = packager(
        *("bench", server.url, "--workload-spec", str(spec), "--format", "json"),
        env=environment,
        status=0,
    )

    assert (COUNTED_HERE in metrics_of(done.out)) is is_used
    told = "the tokenizer of 'workload.json' is not used, so the server counts" in done.err
    assert told is not is_used
