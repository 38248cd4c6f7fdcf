from __future__ import annotations

from packager.catalog.models import (
    drafts_for,
    drafts_of,
    find_model,
    models,
    similar_model,
)
from packager.core.catalog import CatalogModel
from tests.support.cases import as_type, cases, read_tables
from tests.support.known import known

TABLES = read_tables(__file__)


def test_a_model_is_found_by_hub_id_and_by_jumpstart_id() -> None:
    by_hub = known(find_model("meta-llama/Meta-Llama-3-70B"))

    assert by_hub == find_model("meta-textgeneration-llama-3-70b")
    assert by_hub == find_model("META-LLAMA/meta-llama-3-70b")
    assert (by_hub.family, by_hub.architecture) == ("LLaMA", "LlamaForCausalLM")
    assert (by_hub.preoptimized, by_hub.precompiled_neuron) == (True, True)


def test_an_unknown_model_is_none_not_a_guess() -> None:
    assert find_model("acme/unheard-of") is None
    assert find_model("") is None


def test_statements_about_one_model_are_one_row() -> None:
    mixtral = known(find_model("mistralai/Mixtral-8x7B-Instruct-v0.1"))

    assert mixtral.quantization is True
    assert "awq: ybelkada/Mixtral-8x7B-Instruct-v0.1-AWQ" in mixtral.techniques
    assert [(draft.kind, draft.reference) for draft in mixtral.drafts] == [
        ("medusa", "text-generation-inference/Mixtral-8x7B-Instruct-v0.1-medusa")
    ]
    assert [row.hf_id for row in models()].count("mistralai/Mixtral-8x7B-Instruct-v0.1") == 1


def test_what_a_source_leaves_blank_is_not_known() -> None:
    phi = known(find_model("microsoft/phi-2"))

    assert (phi.quantization, phi.speculative) == (True, None)


def test_published_heads_are_known_for_models_outside_the_table() -> None:
    assert [draft.reference for draft in drafts_for("Qwen/Qwen3-8B")] == [
        "AngelSlim/Qwen3-8B_eagle3",
        "z-lab/Qwen3-8B-DFlash-b16",
    ]
    assert drafts_for("acme/unheard-of") == ()


def test_own_rows_win_by_hub_id() -> None:
    own = as_type(TABLES["phi_2"], CatalogModel)

    assert find_model("microsoft/phi-2", (own,)) == own
    assert len(models((own,))) == len(models())


def test_draft_auto_takes_the_users_own_draft_before_a_published_one() -> None:
    own = as_type(TABLES["qwen3"], CatalogModel)

    drafts = drafts_of("qwen/qwen3-8b", (own,))

    assert [[draft.kind, draft.reference] for draft in drafts] == TABLES["own_drafts"]
    assert drafts_of("Qwen/Qwen3-8B")[0].kind == "eagle3"
    assert drafts_of("acme/unheard-of") == ()


@cases("a_misspelt_model_is_guessed_among_published_ones")
def test_a_misspelt_model_is_guessed_among_published_ones(name: str, meant: str) -> None:
    assert similar_model(name) == meant
