"""Drafts that need no files: what they need instead, and how they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.addons.fleet.planning import absolute_draft
from packager.catalog.compatibility import rules
from packager.core.errors import PlanRejected
from packager.core.findings import Finding, errors_in
from packager.engines.vllm.family import VllmFamily
from packager.models.reference import parse_model_reference
from packager.optimize.drafts.request import DraftRequest, nearest_kind, parse_draft, spelled_kind
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.services import PlannerServices
from packager.pipeline.resolve import parse_draft_request
from tests.support.cases import cases_of
from tests.support.headers import LLAMA_3_8B, LOCAL_CPU, TINY, facts_of, model_of

cases = cases_of(__file__, "kinds")

LLAMA = model_of(LLAMA_3_8B)


def findings(draft: str, base: str | None = None) -> tuple[Finding, ...]:
    facts = facts_of(LLAMA, "g5.12xlarge", family="vllm", draft=draft, base=base)
    try:
        return make_plan(facts, PlannerServices(family=VllmFamily(), rules=rules())).findings
    except PlanRejected as rejected:
        return rejected.findings


def test_suffix_decoding_is_refused_where_the_image_lacks_its_package() -> None:
    (found,) = errors_in(findings("suffix"))

    assert found.code == "draft-needs-package"
    assert "'arctic-inference'" in found.message
    assert "arctic-inference==0.1.1" in found.hint and "--base" in found.hint


def test_a_base_of_the_users_own_may_have_the_package() -> None:
    found = findings("suffix:16", base="registry.example/vllm-with-arctic:1")

    assert not errors_in(found)
    (asked,) = [one for one in found if one.code == "draft-needs-package"]
    assert (asked.severity, "registry.example/vllm-with-arctic:1" in asked.hint) == (
        "warning",
        True,
    )


def test_the_default_image_is_not_taken_for_one_of_the_users_own() -> None:
    default = facts_of(LLAMA, "g5.12xlarge", family="vllm").container.default_base

    assert errors_in(findings("suffix", base=default))


def test_n_grams_on_the_gpu_need_one() -> None:
    facts = facts_of(model_of(TINY), LOCAL_CPU, family="vllm", draft="ngram_gpu")

    with pytest.raises(PlanRejected) as caught:
        make_plan(facts, PlannerServices(family=VllmFamily(), rules=rules()))

    (found,) = errors_in(caught.value.findings)
    assert (found.code, "--draft ngram" in found.hint) == ("ngram-gpu-without-gpu", True)


@cases("the_number_of_tokens_is_the_usual_one_or_the_one_written")
def test_the_number_of_tokens_is_the_usual_one_or_the_one_written(draft: str, tokens: int) -> None:
    facts = facts_of(LLAMA, "g5.12xlarge", family="vllm", draft=draft, base="own/base:1")

    plan = make_plan(facts, PlannerServices(family=VllmFamily(), rules=rules()))

    assert plan.draft is not None
    assert (plan.draft.speculative_tokens, plan.draft.weight_bytes) == (tokens, 0)


@cases("misspelled")
def test_a_misspelled_kind_is_guessed(written: str, kind: str) -> None:
    assert spelled_kind(written) == kind
    assert nearest_kind(written) == kind.partition(":")[0]


def test_a_long_text_is_no_misspelled_kind() -> None:
    assert spelled_kind("x" * 4000) == nearest_kind("x" * 4000) == ""


@cases("an_unknown_kind_before_a_colon_is_answered_with_a_known_one")
def test_an_unknown_kind_before_a_colon_is_answered_with_a_known_one(
    written: str, hint: str
) -> None:
    found = parse_draft(written)

    assert isinstance(found, Finding)
    assert found.hint.startswith(hint)


def test_kinds_are_read_with_and_without_numbers() -> None:
    assert parse_draft("mtp") == DraftRequest(kind="mtp")
    assert parse_draft("suffix:9") == DraftRequest(kind="suffix", tokens=9)
    assert parse_draft("peagle:org/head") == DraftRequest(kind="peagle", reference="org/head")
    assert parse_draft("dflash:hf://org/head") == DraftRequest(
        kind="dflash", reference="hf://org/head"
    )


def test_a_directory_of_the_same_name_does_not_turn_a_kind_into_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mtp", "suffix", "2", "auto", "head"):
        (tmp_path / name).mkdir()

    def absolute(written: str) -> str:
        return absolute_draft(written, parse_draft_request(written, parse_model_reference))

    for unchanged in ("mtp", "mtp:2", "suffix", "auto"):
        assert absolute(unchanged) == unchanged
    assert absolute("dflash:head") == f"dflash:{tmp_path}/head"
    assert absolute("head") == f"{tmp_path}/head"
    assert absolute("org/name") == "org/name"
