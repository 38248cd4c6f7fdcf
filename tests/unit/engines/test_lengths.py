"""The longest sequences against the engines' own functions, version by version.

`length_verdicts.json` was recorded by `scripts/engine-lengths`, with transformers 4.57.6 or 5.17.0
as each version requires; `length_cases.json` has the models and overrides.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from packager.engines.lengths import CONFIG, judge_length, length_limit
from tests.support.cases import cases
from tests.support.places import DATA

CASES = json.loads((DATA / "engines" / "length_cases.json").read_bytes())
VERDICTS = json.loads((DATA / "engines" / "length_verdicts.json").read_bytes())
MOST = 2**31 - 1


def limit_of(case: dict[str, Any], engine: str, version: str) -> int | str:
    name = {"vllm": "hf-overrides", "sglang": "json-model-override-args"}[engine]
    options = {name: json.dumps(case["overrides"])} if "overrides" in case else {}
    if case.get("no_window"):
        options["disable-sliding-window"] = "true"
    found = length_limit(engine, version, case["config"], options=options)
    return "refused" if found.refusal else found.tokens or MOST


@pytest.mark.parametrize("of", VERDICTS)
def test_lengths_are_those_that_the_engine_derives(of: str) -> None:
    engine, _, version = of.partition("-")
    assert {name: limit_of(CASES[name], engine, version) for name in VERDICTS[of]} == VERDICTS[of]


@pytest.mark.parametrize("variable", ["VLLM_ALLOW_LONG_MAX_MODEL_LEN"])
@pytest.mark.parametrize(("value", "tokens"), [("1", 0), ("0", 40960)])
def test_a_variable_lifts_the_limit(variable: str, value: str, tokens: int) -> None:
    config = CASES["qwen3"]["config"]
    assert length_limit("vllm", "0.33.0", config, environment={variable: value}).tokens == tokens


def test_an_engine_without_a_row_takes_what_the_model_states() -> None:
    assert length_limit("tgi", "3.3.6", {}, assumed_tokens=4096).tokens == 4096


@cases("a_configuration_with_overrides_is_judged_by_its_version_and_environment")
def test_a_configuration_with_overrides_is_judged_by_its_version_and_environment(
    version: str, environment: dict[str, str], codes: list[str]
) -> None:
    case = CASES["qwen3, yarn in rope_parameters by overrides"]
    options = {"max-model-len": "128K", "hf-overrides": json.dumps(case["overrides"])}
    facts = {CONFIG: json.dumps(case["config"])}
    read, findings = judge_length("vLLM", "vllm", version, options, facts, environment=environment)
    assert [one.code for one in findings] == codes
    assert ("max_positions" in read) is (not environment)
