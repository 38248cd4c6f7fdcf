"""What `--draft auto` takes, and what it says about it."""

from __future__ import annotations

from dataclasses import replace

from packager.catalog.compatibility import rules
from packager.catalog.containers import find_container
from packager.catalog.models import drafts_of
from packager.core.catalog import KnownDraft
from packager.drafts.known import KnownChoice, choose_known
from packager.drafts.request import parse_draft
from packager.engines.vllm.family import VllmFamily
from packager.planning.planner import make_plan
from tests.support import heads
from tests.support.cases import cases_of
from tests.support.headers import LLAMA_3_8B, facts_of, model_of
from tests.support.mtp_models import MODELS, without

cases = cases_of(__file__, "kinds")

LLAMA = model_of(LLAMA_3_8B, name="meta-llama/Llama-3.1-8B-Instruct")
HEAD = KnownDraft(kind="eagle3", reference="org/head", source="a test", date="2026-11-21")
MEDUSA = replace(HEAD, kind="medusa", reference="org/medusa", license="apache-2.0")


def chosen(*drafts: KnownDraft, family: str = "vllm", instance: str = "g5.12xlarge") -> KnownChoice:
    facts = facts_of(LLAMA, instance, family=family)
    found = facts.instance
    container = find_container(family, found.kind, instance_name=found.name)
    return choose_known(drafts, facts.model, found, container, rules())


def said(choice: KnownChoice) -> str:
    (finding,) = choice.findings
    assert finding.severity == "note"
    assert finding.hint
    return finding.message


def test_the_first_that_fits_is_taken_and_the_others_are_named() -> None:
    choice = chosen(HEAD, replace(HEAD, reference="org/other"))

    assert choice.reference == "eagle3:org/head"
    assert "does not state" in said(choice)
    assert "eagle3:org/other would fit too" in said(choice)


def test_what_the_container_cannot_serve_is_passed_over_with_the_reason() -> None:
    choice = chosen(HEAD, MEDUSA, family="tgi")

    assert (choice.reference, choice.license) == ("medusa:org/medusa", "apache-2.0")
    assert "passed over eagle3:org/head: TGI speculates with Medusa" in said(choice)
    assert chosen(HEAD, family="neuron", instance="inf2.48xlarge").reference == ""
    assert chosen(HEAD, family="neuron", instance="trn2.48xlarge").reference


def test_licences_that_restrict_use_and_pickles_are_not_taken_unasked() -> None:
    for one in (
        replace(HEAD, license="cc-by-nc-4.0"),
        replace(HEAD, weights="pickle"),
        replace(HEAD, kind="eagle2"),
    ):
        choice = chosen(one)

        assert choice.reference == ""
        assert choice.findings[0].code == "draft-none-fits"
        assert "passed over" in said(choice)
    assert chosen() == KnownChoice()


def for_head(name: str, *drafts: KnownDraft, family: str, version: str | None) -> KnownChoice:
    model = replace(MODELS[name](), ref=LLAMA.ref)
    facts = facts_of(model, "p5en.48xlarge", family=family)
    container = find_container(family, "nvidia", version, None, facts.instance.name, ())
    return choose_known(drafts, model, facts.instance, container, rules())


def test_a_head_that_the_engine_does_not_serve_is_passed_over_with_the_reason() -> None:
    published = for_head("qwen3.5", HEAD, family="vllm", version="0.16.0")
    alone = for_head("qwen3.5", family="vllm", version="0.16.0")
    elsewhere = for_head("mimo", MEDUSA, family="tgi", version=None)

    assert published.reference == "eagle3:org/head"
    assert "passed over mtp: vLLM 0.16.0 does not serve" in said(published)
    assert (alone.reference, alone.findings[0].code) == ("", "draft-none-fits")
    assert elsewhere.reference == "medusa:org/medusa"
    assert "passed over mtp: tgi serves no MTP head" in said(elsewhere)


@cases("passed_over")
def test_an_mtp_head_that_cannot_be_used_is_passed_over_with_the_reason(
    family: str, instance: str, is_lost: bool, reason: str
) -> None:
    model = MODELS["mimo"]()
    model = without(model, "mtp_layers") if is_lost else model
    found = facts_of(model, instance, family=family).instance
    container = find_container(family, found.kind, instance_name=found.name)

    choice = choose_known((HEAD,), model, found, container, rules())

    assert choice.reference == "eagle3:org/head"
    assert f"passed over mtp: {reason}" in said(choice)


@cases("published")
def test_a_published_head_that_the_version_does_not_know_is_passed_over(
    kind: str, family: str, version: str, is_taken: bool
) -> None:
    facts = facts_of(LLAMA, "g5.12xlarge", family=family)
    container = find_container(family, "nvidia", version, None, facts.instance.name, ())

    choice = choose_known(
        (replace(HEAD, kind=kind),), facts.model, facts.instance, container, rules()
    )

    assert choice.reference == (f"{kind}:org/head" if is_taken else "")


def test_the_plan_for_auto_serves_the_head() -> None:
    choice = for_head("deepseek-v3", family="vllm", version=None)
    facts = replace(
        facts_of(MODELS["deepseek-v3"](), "p5en.48xlarge", family="vllm", draft="auto"),
        draft_asked=parse_draft(choice.reference),
        draft_findings=choice.findings,
    )

    plan = make_plan(facts, VllmFamily(), rules=rules())

    assert plan.draft is not None
    assert (plan.draft.kind, plan.draft.speculative_tokens) == ("mtp", 1)
    assert "draft-chosen" in [finding.code for finding in plan.findings]


def test_what_is_known_and_does_not_fit_is_not_said_to_be_unknown() -> None:
    choice = chosen(HEAD, family="tgi")
    facts = facts_of(LLAMA, "g5.12xlarge", family="vllm", draft="auto")

    plan = make_plan(replace(facts, draft_findings=choice.findings), VllmFamily())

    assert plan.draft is None
    codes = [finding.code for finding in plan.findings]
    assert ("draft-none-fits" in codes, "draft-none-known" in codes) == (True, False)


def test_the_plan_says_what_auto_took_and_under_which_licence() -> None:
    choice = chosen(*drafts_of("meta-llama/Llama-3.1-8B-Instruct"))
    assert choice.reference == "eagle3:RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3"
    facts = replace(
        facts_of(LLAMA, "g5.12xlarge", family="vllm", draft="auto"),
        draft=heads.eagle3_of_speculators(LLAMA_3_8B),
        draft_asked=parse_draft(choice.reference),
        draft_findings=choice.findings,
        draft_license="apache-2.0",
    )

    plan = make_plan(facts, VllmFamily(), rules=rules())

    assert plan.draft is not None
    assert plan.draft.license == "apache-2.0"
    assert plan.draft.ref == facts.draft.ref  # type: ignore[union-attr]
    assert "draft-chosen" in [finding.code for finding in plan.findings]
