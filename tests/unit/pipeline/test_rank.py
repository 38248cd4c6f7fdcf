"""One model on every instance of the catalog, with the model found once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from packager.catalog.instances import find_instance, instances
from packager.cli.wiring.builds import services_for
from packager.cli.wiring.settings import Settings
from packager.core.errors import NotFound, PlanRejected
from packager.core.findings import Finding
from packager.core.model import ModelFiles
from packager.core.request import BuildRequest
from packager.core.units import GIB, MIB
from packager.estimate.performance.ranking import Ranking
from packager.pipeline.planning import planner
from packager.pipeline.rank import rank_instances
from tests.support.headers import LLAMA_3_8B, LLAMA_3_70B, awq_model_of, model_of
from tests.support.mtp_models import mimo_7b, without

LLAMA_70B = model_of(LLAMA_3_70B, name="meta-llama/Meta-Llama-3-70B-Instruct")


class Counted:
    """Finds one model and counts how often."""

    def __init__(self, model: ModelFiles) -> None:
        self.model = model
        self.calls = 0

    def __call__(self, name: str) -> ModelFiles:
        self.calls += 1
        return self.model


def ranked(model: ModelFiles, *names: str, **asked: Any) -> Ranking:
    tools = replace(services_for(Settings()), find_model=Counted(model))
    request = BuildRequest(model="org/m", instance="all", **asked)
    chosen = [find_instance(name) for name in names] if names else instances()
    return rank_instances(request, tools, chosen)


def names_of(ranking: Ranking) -> list[str]:
    return [option.plan.instance.name for option in ranking.options]


def test_nothing_replaces_an_instance_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other shapes and methods were planned for each that is refused, and shown nowhere."""
    sought: list[str] = []
    monkeypatch.setattr(planner, "find_nearest", lambda *_: sought.append("nearest") or ())
    monkeypatch.setattr(planner, "_note_smaller", lambda *_: sought.append("smaller") or ())

    ranking = ranked(model_of(LLAMA_3_70B), "ml.g5.xlarge", quantize="none")

    assert [one.instance for one in ranking.skipped] == ["ml.g5.xlarge"]
    assert sought == []


def test_weights_are_left_as_they_are_where_that_is_asked_for_or_they_are_quantized() -> None:
    asked = ranked(LLAMA_70B, "ml.g5.12xlarge", "ml.p5.48xlarge", quantize="none")
    arrived = ranked(awq_model_of(LLAMA_3_70B), "ml.g5.12xlarge")

    assert names_of(asked) == ["ml.p5.48xlarge"]
    assert arrived.options[0].candidate.options == ""


def test_latency_takes_every_device_and_looks_at_one_request() -> None:
    asked: dict[str, Any] = {"quantize": "none", "family": "lmi"}
    latency = ranked(LLAMA_70B, "ml.p5.48xlarge", goal="latency", **asked)
    cost = ranked(LLAMA_70B, "ml.p5.48xlarge", **asked)

    assert latency.options[0].plan.tp_degree == 8
    assert latency.options[0].point.concurrency == 1
    assert cost.options[0].point.concurrency > 64
    assert latency.options[0].point.tpot_s < cost.options[0].point.tpot_s


def test_a_server_that_runs_one_copy_is_given_all_devices() -> None:
    best = ranked(LLAMA_70B, "ml.p5.48xlarge", quantize="none", family="vllm").options[0]

    assert best.candidate.options == ""
    assert best.plan.split.devices == 8


def test_a_first_token_in_time_goes_before_faster_tokens_that_come_too_late() -> None:
    # All-reduces over PCIe make the prompt of 70B slower on 8 L40S together than on 4.
    asked: dict[str, Any] = {"goal": "latency", "workload": "6000:100", "quantize": "none"}
    model, name = model_of(LLAMA_3_70B), "ml.g6e.48xlarge"

    (free,) = ranked(model, name, **asked).options
    (kept,) = ranked(model, name, **asked, ttft_limit_ms=12000).options

    assert (free.plan.split.words, free.in_time) == ("TP 8", True)
    assert kept.plan.split.words == "TP 4 x 2 copies (data parallel)"
    assert kept.in_time
    assert kept.point.tpot_s > free.point.tpot_s
    assert kept.point.ttft_s <= 12.0 < free.point.ttft_s


def test_an_instance_in_time_is_ranked_before_one_with_faster_tokens() -> None:
    asked: dict[str, Any] = {"goal": "latency", "workload": "6000:100", "quantize": "none"}
    names = ("ml.g5.12xlarge", "ml.g6e.xlarge")
    model = model_of(LLAMA_3_8B)

    free = ranked(model, *names, **asked)
    kept = ranked(model, *names, **asked, ttft_limit_ms=600)

    assert (names_of(free), names_of(kept)) == ([*names], [*names[::-1]])
    assert [one.in_time for one in (*free.options, *kept.options)] == [True, True, True, False]


def test_a_strict_limit_takes_fewer_requests_at_once() -> None:
    loose = ranked(LLAMA_70B, "ml.p5.48xlarge", quantize="none")
    strict = ranked(LLAMA_70B, "ml.p5.48xlarge", tpot_limit_ms=18.0, quantize="none")

    assert strict.options[0].point.concurrency < loose.options[0].point.concurrency
    assert strict.options[0].in_time


def test_a_model_that_is_not_there_ends_it() -> None:
    tools = services_for(Settings())

    with pytest.raises(NotFound):
        rank_instances(BuildRequest(model="./nowhere", instance="all"), tools, instances())


def test_latency_drafts_with_the_head_that_a_model_brings_where_it_is_served() -> None:
    asked: dict[str, Any] = {"goal": "latency", "family": "vllm", "quantize": "none"}
    asked |= {"tp_degree": 4, "max_batch": 4}

    (served,) = ranked(mimo_7b(), "ml.g5.12xlarge", **asked).options
    (lost,) = ranked(without(mimo_7b(), "mtp_layers"), "ml.g5.12xlarge", **asked).options

    assert (served.candidate.options, lost.candidate.options) == ("--draft mtp", "")
    assert served.plan.draft is not None
    assert served.plan.draft.kind == "mtp"
    assert served.point.tpot_s < lost.point.tpot_s


def test_the_closest_miss_is_found_by_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """80 MiB are less than 1 GiB, whatever numbers and words a message has."""
    misses = iter([GIB, 80 * MIB, 2 * GIB] + [3 * GIB] * 100)

    def refuse(*_: object) -> None:
        data = {"needed_bytes": next(misses), "usable_bytes": 10 * MIB}
        raise PlanRejected((Finding("error", "any", "reworded", data=data),))

    monkeypatch.setattr("packager.pipeline.rank.pipeline.plan", refuse)

    (skipped,) = ranked(LLAMA_70B, "ml.g5.12xlarge").skipped

    assert skipped.reason.endswith("a device needs 80.0 MiB and has 10.0 MiB usable")
