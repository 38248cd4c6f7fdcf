"""Pictures in requests: tokens, memory, first token, the engine's limit, refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from packager.core.artifact import Artifacts
from packager.core.errors import PlanRejected
from packager.core.plan import Plan
from packager.core.workload import QUESTIONS
from packager.estimate.performance.predict import predict_point
from packager.estimate.performance.served import setup_of
from packager.pipeline.planning.pictures import with_pictures
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.services import PlannerServices
from tests.support.headers import FAMILIES, LLAMA_3_8B, accelerator_of, facts_of, model_of

VISION = {"depth": 32, "hidden_size": 1280, "intermediate_size": 5120, "spatial_merge_size": 2}
QWEN = {
    **LLAMA_3_8B,
    "architectures": ["Qwen2VLForConditionalGeneration"],
    "model_type": "qwen2_vl",
    "vision_config": {**VISION, "patch_size": 14},
    "max_position_embeddings": 32768,
}
SETTINGS = {"min_pixels": 3136, "max_pixels": 12_845_056, "patch_size": 14, "merge_size": 2}


def plan_with(config: dict[str, Any], images: str | None, **asked: Any) -> Plan:
    model = replace(model_of(config), picture_settings=SETTINGS)
    facts = facts_of(model, "ml.g6e.xlarge", images=images, **asked)
    seen = replace(facts, workload=with_pictures(QUESTIONS, model, images))
    services = PlannerServices(family=FAMILIES["vllm"], accelerator_of=accelerator_of)
    return make_plan(seen, services)


def codes(error: PlanRejected) -> list[str]:
    return [one.code for one in error.findings if one.severity == "error"]


def test_pictures_are_in_prompts_and_in_the_engines_limit() -> None:
    plan = plan_with(QWEN, "2x1024x1024")

    assert plan.workload.picture_tokens == 2 * 1369
    assert plan.workload.input_tokens == 622 + 2 * 1369
    assert "2738 of them of 2 pictures" in plan.workload.words
    [note] = [one for one in plan.findings if one.code == "pictures-counted"]
    assert note.data == {"picture_tokens": 1369, "request_tokens": 2738}
    rendered = json.dumps(dict(FAMILIES["vllm"].render(plan, Artifacts(model=())).env))
    assert "LIMIT_MM_PER_PROMPT" in rendered
    assert json.dumps({"image": 2}, separators=(",", ":")).replace('"', '\\"') in rendered


def test_larger_pictures_take_longer_to_the_first_token() -> None:
    first_s = {}
    for images in (None, "1x448x448", "1x1792x1792"):
        plan = plan_with(QWEN, images)
        setup = setup_of(plan, accelerator_of(plan.instance))
        seen = predict_point(setup, plan.workload, 1).ttft_s
        blind = predict_point(setup, replace(plan.workload, pictures=0, picture_tokens=0), 1).ttft_s
        first_s[images] = (seen, seen - blind)

    assert first_s[None][1] == 0
    assert 0 < first_s["1x448x448"][1] < first_s["1x1792x1792"][1]
    assert first_s[None][0] < first_s["1x448x448"][0] < first_s["1x1792x1792"][0]


@pytest.mark.parametrize(
    ("config", "asked", "code"),
    [
        (LLAMA_3_8B, {}, "pictures-not-seen"),
        ({**QWEN, "model_type": "unheard_of"}, {}, "pictures-unknown"),
        (QWEN, {"engine_options": {"limit-mm-per-prompt": '{"image": 1}'}}, "pictures-limited"),
        (QWEN, {"engine_options": {"limit_mm_per_prompt": '{"image": {"count": 0}}'}},
         "pictures-limited"),
    ],
)  # fmt: skip
def test_pictures_that_cannot_be_are_refused(
    config: dict[str, Any], asked: dict[str, Any], code: str
) -> None:
    with pytest.raises(PlanRejected) as error:
        plan_with(config, "2x640x480", **asked)

    assert code in codes(error.value)


def test_a_limit_that_is_wide_enough_stays_as_it_is() -> None:
    options = {"limit-mm-per-prompt": '{"image": 4}'}
    plan = plan_with(QWEN, "2x640x480", engine_options=options)

    rendered = json.dumps(dict(FAMILIES["vllm"].render(plan, Artifacts(model=())).env))
    assert '{\\"image\\": 4}' in rendered or "image" in rendered
    assert '\\"image\\":2' not in rendered
