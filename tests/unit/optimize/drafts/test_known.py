"""What `--draft auto` takes, and what it says about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from packager.catalog.compatibility import rules
from packager.catalog.containers import find_container
from packager.catalog.models import drafts_of
from packager.core.catalog import KnownDraft
from packager.engines.vllm.family import VllmFamily
from packager.optimize.drafts.published import KnownChoice, choose_known
from packager.optimize.drafts.request import parse_draft
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.services import PlannerServices
from tests.support import heads
from tests.support.cases import cases_of
from tests.support.headers import LLAMA_3_8B, facts_of, model_of
from tests.support.mtp_models import MODELS, without

cases = cases_of(__file__, "kinds")

LLAMA = model_of(LLAMA_3_8B, name="meta-llama/Llama-3.1-8B-Instruct")
HEAD = KnownDraft(kind="eagle3", reference="org/head", source="a test", date="2026-11-21")


def chosen(
    *drafts: KnownDraft,
    model: str = "llama",
    lost: str = "",
    family: str = "vllm",
    instance: str = "g5.12xlarge",
    version: str | None = None,
) -> KnownChoice:
    """Choose for a model, without the tensors whose names have `lost` in them."""
    files = LLAMA if model == "llama" else replace(MODELS[model](), ref=LLAMA.ref)
    files = without(files, lost) if lost else files
    machine = facts_of(files, instance, family=family).instance
    container = find_container(family, machine.kind, version, instance_name=machine.name)
    return choose_known(drafts, files, machine, container, rules())


@cases("chosen", drafts=[{}], says=[], license="")
def test_the_first_that_fits_is_taken_and_the_others_are_named_with_the_reason(
    on: dict[str, Any], drafts: list[dict[str, str]], says: list[str], reference: str, license: str
) -> None:
    choice = chosen(*(replace(HEAD, **changed) for changed in drafts), **on)

    assert (choice.reference, choice.license) == (reference, license)
    (finding,) = choice.findings
    code = "draft-chosen" if reference else "draft-none-fits"
    assert (finding.severity, finding.code) == ("note", code)
    assert finding.hint
    assert [text for text in says if text not in finding.message] == []


def test_where_nothing_is_known_nothing_is_said() -> None:
    assert chosen() == KnownChoice()


def test_the_plan_for_auto_serves_the_head() -> None:
    choice = chosen(model="deepseek-v3", instance="p5en.48xlarge")
    facts = replace(
        facts_of(MODELS["deepseek-v3"](), "p5en.48xlarge", family="vllm", draft="auto"),
        draft_request=parse_draft(choice.reference),
        draft_findings=choice.findings,
    )

    plan = make_plan(facts, PlannerServices(family=VllmFamily(), rules=rules()))

    assert plan.draft is not None
    assert (plan.draft.kind, plan.draft.speculative_tokens) == ("mtp", 1)
    assert "draft-chosen" in [finding.code for finding in plan.findings]


def test_what_is_known_and_does_not_fit_is_not_said_to_be_unknown() -> None:
    choice = chosen(HEAD, family="tgi")
    facts = facts_of(LLAMA, "g5.12xlarge", family="vllm", draft="auto")

    plan = make_plan(
        replace(facts, draft_findings=choice.findings), PlannerServices(family=VllmFamily())
    )

    assert plan.draft is None
    codes = [finding.code for finding in plan.findings]
    assert ("draft-none-fits" in codes, "draft-none-known" in codes) == (True, False)


def test_the_plan_says_what_auto_took_and_under_which_licence() -> None:
    choice = chosen(*drafts_of("meta-llama/Llama-3.1-8B-Instruct"))
    assert choice.reference == "eagle3:RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3"
    facts = replace(
        facts_of(LLAMA, "g5.12xlarge", family="vllm", draft="auto"),
        draft=heads.eagle3_of_speculators(LLAMA_3_8B),
        draft_request=parse_draft(choice.reference),
        draft_findings=choice.findings,
        draft_license="apache-2.0",
    )

    plan = make_plan(facts, PlannerServices(family=VllmFamily(), rules=rules()))

    assert plan.draft is not None
    assert plan.draft.license == "apache-2.0"
    assert plan.draft.ref == facts.draft.ref  # type: ignore[union-attr]
    assert "draft-chosen" in [finding.code for finding in plan.findings]
