"""Drafts asked for through the engine's own options: checked against the headers like any other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from packager.core.errors import PlanRejected
from packager.core.findings import Finding, errors_in
from packager.core.model import ModelFiles
from packager.core.plan import Plan
from packager.engines.request_options import speculation_of
from tests.support.cases import cases_of
from tests.support.headers import LLAMA_3_8B, model_of
from tests.support.mtp_models import MODELS, without
from tests.unit.optimize.drafts import test_mtp

cases = cases_of(__file__)

LLAMA = model_of(LLAMA_3_8B)


def vllm(**config: Any) -> dict[str, str]:
    return {"speculative-config": json.dumps(config)}


def plan(model: ModelFiles, options: dict[str, str], **asked: Any) -> Plan:
    return test_mtp.plan(model, draft=None, engine_options=options, **asked)


def refusals(model: ModelFiles, options: dict[str, str], **asked: Any) -> list[Finding]:
    with pytest.raises(PlanRejected) as caught:
        plan(model, options, **asked)
    return list(errors_in(caught.value.findings))


@cases("a_head_that_is_not_there_is_refused_however_it_is_asked_for")
def test_a_head_that_is_not_there_is_refused_however_it_is_asked_for(
    options: dict[str, str], family: str
) -> None:
    lost = without(MODELS["mimo"](), "mtp_layers")

    assert refusals(lost, options, family=family)[0].code == "draft-mtp-missing"
    assert refusals(LLAMA, options, family=family)[0].code == "draft-mtp-none"
    counted = plan(MODELS["mimo"](), options, family=family)
    assert counted.draft is None
    assert counted.budget.draft_weights_bytes * counted.tp_degree == 421_568_512
    assert counted.budget.draft_kv_bytes_per_token * counted.tp_degree == 4096


def test_a_draft_model_that_the_option_names_is_left_to_the_engine() -> None:
    options = vllm(method="mtp", model="/opt/other", num_speculative_tokens=1)

    assert plan(LLAMA, options).budget.draft_weights_bytes == 0


@cases("refused", model="llama", says="", hint="")
def test_what_cannot_be_is_refused(
    model: str, config: str, version: str | None, code: str, says: str, hint: str
) -> None:
    files = LLAMA if model == "llama" else MODELS[model]()

    (found,) = refusals(files, {"speculative-config": config}, version=version)

    assert found.code == code
    assert says in found.message
    assert hint in found.hint


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "1", '{"method": NaN}', "[" * 100_000, "\ud800", '{"a": 1, "a": 2}'],
    ids=range(9),
)
def test_text_that_is_no_object_is_left_to_the_check_of_options(text: str) -> None:
    assert speculation_of({"speculative-config": text}) is None


@pytest.mark.parametrize("method", [None, 7, [], {}, "x" * 10_000, "mtp\n"])
def test_a_method_of_any_kind_crashes_nothing(method: object) -> None:
    options = vllm(method=method, num_speculative_tokens=1)

    try:
        plan(LLAMA, options)
    except PlanRejected as rejected:
        assert all(len(found.message) < 300 for found in rejected.findings)
