"""Parsers of answers, as each family renders them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from packager.core.artifact import Artifacts
from packager.core.parsers import ChosenParser
from packager.engines.lmi.family import LmiFamily
from packager.engines.neuron.family import NeuronFamily
from packager.engines.sglang.family import SglangFamily
from packager.engines.tgi.family import TgiFamily
from packager.engines.vllm.family import VllmFamily
from packager.findings import errors_in
from packager.plugins.tables import FAMILIES
from tests.support.engine_plans import CONTAINERS, plan_for

NOTHING = Artifacts(model=())
CHOSEN = {
    "tool_parser": ChosenParser(name="hermes", reason="the chat template writes <tool_call>"),
    "reasoning_parser": ChosenParser(name="qwen3", reason="the chat template writes <think>"),
}
BY_OPTION = {
    "tool_parser": ChosenParser(name="pythonic", reason="asked"),
    "reasoning_parser": ChosenParser(name="mistral", reason="asked"),
    "engine_options": (("tool-call-parser", "pythonic"), ("reasoning_parser", "mistral")),
}


def argv(container: str, **changes: object) -> list[str]:
    plan = plan_for(container, **changes)
    family = FAMILIES.find(plan.container.family).make()
    files = {one.path: one.data for one in family.render(plan, NOTHING).files}
    return list(json.loads(files["/opt/packager/serving/command.json"])["argv"])


def env(container: str, **changes: object) -> dict[str, str]:
    plan = plan_for(container, **changes)
    family = FAMILIES.find(plan.container.family).make()
    assert not errors_in(family.check(plan))
    return dict(family.render(plan, NOTHING).env)


@pytest.mark.parametrize("container", ["vllm-cpu", "vllm-upstream"])
def test_vllm_gets_them_on_its_command_line(container: str) -> None:
    words = argv(container, **CHOSEN)

    assert words[words.index("--tool-call-parser") + 1] == "hermes"
    assert words[words.index("--reasoning-parser") + 1] == "qwen3"
    assert "--enable-auto-tool-choice" in words


def test_images_for_sagemaker_get_them_as_variables() -> None:
    rendered = env("vllm", **CHOSEN)

    assert rendered["SM_VLLM_ENABLE_AUTO_TOOL_CHOICE"] == "true"
    assert rendered["SM_VLLM_TOOL_CALL_PARSER"] == "hermes"
    assert rendered["SM_VLLM_REASONING_PARSER"] == "qwen3"


def test_lmi_gets_its_own_keys() -> None:
    rendered = env("lmi", **CHOSEN)

    assert rendered["OPTION_ENABLE_AUTO_TOOL_CHOICE"] == "true"
    assert rendered["OPTION_TOOL_CALL_PARSER"] == "hermes"
    assert rendered["OPTION_REASONING_PARSER"] == "qwen3"
    assert "OPTION_ENABLE_REASONING" not in rendered


def test_lmi_with_a_rolling_batch_must_be_told_to_read_reasoning_at_all() -> None:
    rendered = env("lmi-16", **CHOSEN)

    assert rendered["OPTION_REASONING_PARSER"] == "qwen3"
    assert rendered["OPTION_ENABLE_REASONING"] == "true"


def test_lmi_13_reads_neither() -> None:
    able = LmiFamily().traits(CONTAINERS["lmi-13"])

    assert (able.tool_parsers, able.reasoning_parsers) == ((), ())


def test_sglang_gets_them_without_a_switch() -> None:
    chosen = {**CHOSEN, "tool_parser": ChosenParser(name="qwen25", reason="")}
    rendered = env("sglang", **chosen)

    assert rendered["SM_SGLANG_TOOL_CALL_PARSER"] == "qwen25"
    assert rendered["SM_SGLANG_REASONING_PARSER"] == "qwen3"


def test_an_option_of_the_engine_is_rendered_once_and_switched_on() -> None:
    words = argv("vllm-upstream", **BY_OPTION)

    assert words.count("--tool-call-parser") == words.count("--reasoning-parser") == 1
    assert words[words.index("--tool-call-parser") + 1] == "pythonic"
    assert "--enable-auto-tool-choice" in words


def test_an_option_may_switch_tool_calls_off_again() -> None:
    words = argv("vllm-upstream", **CHOSEN, engine_options=(("enable-auto-tool-choice", "false"),))

    assert "--no-enable-auto-tool-choice" in words
    assert "--enable-auto-tool-choice" not in words


def test_nothing_chosen_changes_nothing() -> None:
    assert not [word for word in argv("vllm-cpu") if "tool" in word or "reasoning" in word]


def test_what_a_version_can_read_is_in_its_traits() -> None:
    sglang = SglangFamily().traits(replace(CONTAINERS["sglang"], engine_version="0.5.5"))
    tgi, neuron = TgiFamily().traits(CONTAINERS["tgi"]), NeuronFamily()

    assert sglang.tool_parsers == (
        *("deepseekv3", "deepseekv31", "glm", "glm45", "gpt-oss", "kimi_k2", "llama3"),
        *("mistral", "pythonic", "qwen", "qwen25", "qwen3_coder", "step3", "minimax-m2"),
    )
    assert (tgi.tool_parsers, tgi.reasoning_parsers) == ((), ())
    assert neuron.traits(CONTAINERS["neuron-tgi"]).tool_parsers == ()
    assert "deepseek_r1" in (
        VllmFamily().traits(replace(CONTAINERS["vllm"], engine_version="0.10.2")).reasoning_parsers
        or ()
    )
