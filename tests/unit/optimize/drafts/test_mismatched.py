"""Pairs that no engine could serve: refused from headers, in a moment, with a way out.

Nothing here has a byte of weights, so none can have been read.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from packager.catalog.compatibility import rules
from packager.catalog.containers import find_container
from packager.core.errors import PlanRejected
from packager.core.findings import errors_in
from packager.core.image import Inline
from packager.core.model import ModelFile, ModelFiles
from packager.core.plan import Plan
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.services import PlannerServices
from tests.support.cases import cases_of
from tests.support.doubles.containers import FAMILIES
from tests.support.head_rows import made_of
from tests.support.headers import LLAMA_3_8B, facts_of, model_of
from tests.support.heads import values_of

cases = cases_of(__file__, "pairs")


NOTHING: Mapping[str, Any] = {}
DEFAULTS = {"family": "vllm", "instance": "g5.12xlarge", "model": NOTHING, "asked": NOTHING}


def plan_of(
    head: ModelFiles,
    model_files: ModelFiles,
    *,
    kind: str,
    family: str = "vllm",
    instance: str = "g5.12xlarge",
    engine_version: str = "",
    asked: Mapping[str, Any] = NOTHING,
    **_: Any,
) -> Plan:
    """Plan a pair as a row asks for it."""
    facts = facts_of(model_files, instance, family=family, draft=f"{kind}org/draft", **asked)
    version, machine = asked.get("container_version"), facts.instance
    container = find_container(family, machine.kind, version, None, machine.name, ())
    if engine_version:
        container = replace(container, engine_version=engine_version)
    facts = replace(facts, container=container, draft=head, head_values=values_of(head))
    return make_plan(facts, PlannerServices(family=FAMILIES[family], rules=rules()))


@cases("refused", **DEFAULTS)
def test_a_draft_that_does_not_fit_is_refused_from_headers(case: dict[str, Any]) -> None:
    code, pair = case["code"], (made_of(case["draft"]), made_of(case["model"]))
    rules()  # read once, as in a run
    started = time.process_time()
    with pytest.raises(PlanRejected) as caught:
        plan_of(*pair, **case)
    seconds = time.process_time() - started

    refusals = {finding.code: finding for finding in errors_in(caught.value.findings)}
    assert code in refusals, refusals
    assert refusals[code].hint
    assert seconds < 10  # and never the minutes that reading weights takes


@cases("fitting", **DEFAULTS)
def test_what_fits_is_planned_with_its_numbers(case: dict[str, Any]) -> None:
    head = made_of(case["draft"])
    plan = plan_of(head, made_of(case["model"]), **case)

    assert plan.draft is not None
    assert plan.draft.weight_bytes > 0
    assert plan.budget.draft_weights_bytes > 0
    assert (plan.budget.draft_kv_bytes > 0) == (plan.draft.kind not in ("medusa", "mtp"))
    assert plan.draft.ref == head.ref
    assert plan.draft.layout


@cases("remarked", **DEFAULTS)
def test_what_engines_stand_is_remarked_on_or_passed(case: dict[str, Any]) -> None:
    try:
        found = plan_of(made_of(case["draft"]), made_of(case["model"]), **case).findings
    except PlanRejected as rejected:  # for something else
        found = rejected.findings

    assert next((one.severity for one in found if one.code == case["code"]), "") == case["severity"]


def warned(kind: str, draft: ModelFiles, model: ModelFiles, family: str = "vllm") -> list[str]:
    found = plan_of(draft, model, kind=kind, family=family).findings
    return [finding.code for finding in found if finding.severity == "warning"]


@cases("eagle_is_asked_about_where_vllm_does_not_dispatch_it")
def test_eagle_is_asked_about_where_vllm_does_not_dispatch_it(
    architecture: str, is_asked_about: bool
) -> None:
    model = made_of({"but": {"architectures": [architecture]}})

    codes = warned("eagle3:", made_of({"head": "eagle3"}), model)

    assert ("eagle-not-dispatched" in codes) == is_asked_about


@pytest.mark.parametrize(("digest", "is_asked_about"), [("a", False), ("b", True)])
def test_tokenizers_of_other_bytes_are_asked_about_where_digests_are_known(
    digest: str, is_asked_about: bool
) -> None:
    def with_digest(model: ModelFiles, sha256: str) -> ModelFiles:
        content = Inline(b"{}")
        file = ModelFile(path="tokenizer.json", role="tokenizer", content=content, sha256=sha256)
        return replace(model, files=(file,))

    draft, model = made_of({"of": "small"}), made_of({})

    codes = warned("", with_digest(draft, digest), with_digest(model, "a"))

    assert ("draft-tokenizer" in codes) == is_asked_about


@cases("a_head_for_a_model_of_another_name_is_asked_about")
def test_a_head_for_a_model_of_another_name_is_asked_about(base: str, is_asked_about: bool) -> None:
    model = model_of(LLAMA_3_8B, name="meta-llama/Llama-3.1-8B-Instruct")
    draft = made_of({"head": "medusa", "config": {"base_model_name_or_path": base}})

    assert ("draft-other-model" in warned("medusa:", draft, model, "tgi")) == is_asked_about
