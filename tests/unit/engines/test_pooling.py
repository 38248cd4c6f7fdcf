"""Models that give vectors or scores in vLLM's options, version by version."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from jinja2 import Environment

from packager.core.plan import Plan
from packager.core.pooling import Pooling, SentenceModules
from packager.engines.schema import find_schema
from packager.engines.supported_models import check_listed
from packager.engines.vllm.options import planned_options
from packager.engines.vllm.pooling import (
    TEMPLATE,
    TEMPLATE_FILE,
    check_modules,
    check_template,
    pooling_files,
    pooling_tasks,
)
from tests.support.cases import cases_of
from tests.support.engine_plans import CONTAINERS, LLAMA_8B, plan_for

cases = cases_of(__file__)

SPELLED = ("runner", "convert", "pooler-config", "override-pooler-config", "hf-overrides", TEMPLATE)
CARD = (  # of Qwen/Qwen3-Reranker-0.6B, whose code joins these around an instruction and a pair
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n<Instruct>: {}\n<Query>: a?\n<Document>: b {{}}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)


def pooling_plan(version: str, architecture: str, pooling: Pooling) -> Plan:
    container = replace(CONTAINERS["vllm"], engine_version=version)
    profile = replace(LLAMA_8B, architecture=architecture, pooling=pooling, model_type="")
    return replace(plan_for("vllm"), container=container, profile=profile)


@cases("rendered", pooling={})
def test_each_version_gets_its_own_spelling(
    version: str, architecture: str, pooling: dict[str, Any], options: dict[str, Any]
) -> None:
    plan = pooling_plan(version, architecture, Pooling(**{"task": "embed", **pooling}))
    found = {name: value for name, value in planned_options(plan).items() if name in SPELLED}

    assert {
        name: json.loads(value) if isinstance(value, str) and value[0] == "{" else value
        for name, value in found.items()
    } == options


@cases("templates", pooling={}, asked={})
def test_a_judge_reads_what_its_card_says(
    pooling: dict[str, Any], asked: dict[str, Any], instruction: str
) -> None:
    judge = Pooling(task="rerank", judges=True, **pooling)
    plan = pooling_plan("0.32.0", "Qwen3ForCausalLM", judge)
    (file,) = pooling_files(plan, planned_options(plan))
    shape = Environment(trim_blocks=True, lstrip_blocks=True)  # as transformers has it

    pair = [{"role": "query", "content": "a?"}, {"role": "document", "content": "b {}"}]
    told = shape.from_string(file.data.decode()).render(messages=pair, **asked)

    assert told == CARD.format(instruction).replace("{{}}", "{}")
    assert not pooling_files(plan, {TEMPLATE: "/mine.jinja"})
    assert not [*check_template("vLLM", plan)]
    (left_out,) = check_template("vLLM", pooling_plan("0.13.0", "Qwen3ForCausalLM", judge))
    assert left_out.code == "pooling-template"


def test_a_judge_s_own_template_wins() -> None:
    plan = pooling_plan("0.32.0", "", Pooling(task="rerank", judges=True, template="its own"))

    assert [one.data for one in pooling_files(plan, {TEMPLATE: TEMPLATE_FILE})] == [b"its own"]


@cases("listed", code="")
def test_a_class_is_one_of_the_versions_or_turned_from_one(
    version: str, architecture: str, code: str
) -> None:
    plan = pooling_plan(version, architecture, Pooling(task="embed"))

    assert [one.code for one in check_listed("vLLM", plan)] == [code] * bool(code)


@cases("projections")
def test_a_projection_that_a_version_would_leave_out_is_refused(
    version: str, named: str, is_refused: bool
) -> None:
    modules = SentenceModules(types=(named,), projections=((8, 4),))
    plan = pooling_plan(version, "BertModel", Pooling(task="embed", modules=modules))

    assert bool([*check_modules("vLLM", plan)]) is is_refused


def test_versions_without_a_runner_serve_none() -> None:
    assert pooling_tasks(find_schema("vllm", "0.8.4"), "0.8.4") == frozenset()
    assert "rerank" in pooling_tasks(find_schema("vllm", "0.10.2"), "0.10.2")
    assert "reward" in pooling_tasks(find_schema("vllm", "0.33.0"), "0.33.0")
