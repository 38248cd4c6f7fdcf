from __future__ import annotations

import json
from typing import Any

import pytest

from packager.core.artifact import Artifacts
from packager.core.facts import ContainerFacts
from packager.core.plan import Plan
from packager.core.serving import ServingConfig
from packager.families.sglang import SglangFamily
from tests.families.plans import CONTAINERS, EAGLE3, MEDUSA_V1, NGRAM, plan_for


def render(plan: Plan) -> ServingConfig:
    return SglangFamily().render(plan, Artifacts(model=()))


def errors(plan: Plan) -> list[str]:
    return [finding.code for finding in SglangFamily().check(plan) if finding.severity == "error"]


def told(plan: Plan) -> dict[str, str]:
    prefix = "SM_SGLANG_"
    env = render(plan).env
    return {key.removeprefix(prefix): env[key] for key in env if key.startswith(prefix)}


def test_the_plan_is_spelled_in_variables() -> None:
    assert told(plan_for("sglang")) == {
        "MODEL_PATH": "/opt/packager/model",
        "SERVED_MODEL_NAME": "chat",
        "DTYPE": "bfloat16",
        "TP_SIZE": "4",
        "CONTEXT_LENGTH": "8192",
        "MAX_RUNNING_REQUESTS": "16",
        "MEM_FRACTION_STATIC": "0.78",
    }
    assert errors(plan_for("sglang")) == []


def test_an_eagle_head_proposes_a_chain() -> None:
    read = told(plan_for("sglang", draft=EAGLE3, weights="mounted"))

    assert read["SPECULATIVE_ALGORITHM"] == "EAGLE3"
    assert read["SPECULATIVE_DRAFT_MODEL_PATH"].startswith("/opt/ml/additional-model-data-sources")
    assert read["SPECULATIVE_NUM_STEPS"] == "3"
    assert read["SPECULATIVE_EAGLE_TOPK"] == "1"
    assert read["SPECULATIVE_NUM_DRAFT_TOKENS"] == "4"


def test_n_grams_need_no_draft_model() -> None:
    read = told(plan_for("sglang", draft=NGRAM))

    assert read["SPECULATIVE_ALGORITHM"] == "NGRAM"
    assert "SPECULATIVE_DRAFT_MODEL_PATH" not in read


def test_everything_decided_has_its_option() -> None:
    read = told(plan_for("sglang", pp_degree=2, kv_dtype="fp8", max_prefill_tokens=2048))

    assert (read["PP_SIZE"], read["KV_CACHE_DTYPE"]) == ("2", "fp8_e4m3")
    assert read["CHUNKED_PREFILL_SIZE"] == "2048"


def test_upstreams_image_gets_a_command_without_vllms_middleware(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    upstream = ContainerFacts(
        family="sglang",
        kind="nvidia",
        engine="sglang",
        engine_version="0.5.17",
        version="v0.5.17",
        variant="upstream",
        default_base="",
    )
    monkeypatch.setitem(CONTAINERS, "upstream", upstream)
    plan = plan_for("upstream", engine_options=(("disable-radix-cache", "true"),))
    command, launcher = render(plan).files

    argv = json.loads(command.data)["argv"]
    assert argv[:3] == ["python3", "-m", "sglang.launch_server"]
    assert argv[argv.index("--port") + 1] == "8080"
    assert "--disable-radix-cache" in argv
    assert launcher.path.endswith("launch.py")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"draft": MEDUSA_V1}, "draft-unsupported"),
        ({"served_name": "true"}, "value-refused"),
        ({"engine_options": (("tp_size", "2"),)}, "options-conflict"),
        ({"engine_options": (("max-runing-requests", "2"),)}, "key-dropped"),
        ({"engine_options": (("speculative-algorithm", "medusa"),)}, "value-refused"),
    ],
    ids=str,
)
def test_what_sglang_would_refuse_is_an_error(changes: dict[str, Any], code: str) -> None:
    assert code in errors(plan_for("sglang", **changes))
