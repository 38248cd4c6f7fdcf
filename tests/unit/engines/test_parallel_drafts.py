"""What engines are told of drafts that propose at once, and of those without files."""

from __future__ import annotations

import json
from typing import Any

import pytest

from packager.core.artifact import Artifacts
from packager.core.plan import Plan
from packager.core.techniques import Draft, DraftKind
from packager.engines.schema import versions_with
from packager.plugins.tables import FAMILIES
from packager.ports import ContainerFamily
from tests.support.engine_plans import plan_for


def family_of(plan: Plan) -> ContainerFamily:
    family: ContainerFamily = FAMILIES.find(plan.container.family).make()
    return family


def told(container: str, kind: DraftKind, **changed: Any) -> dict[str, Any]:
    plan = plan_for(container, draft=Draft(kind=kind, speculative_tokens=7), **changed)
    assert [one for one in family_of(plan).check(plan) if one.severity == "error"] == []
    env = family_of(plan).render(plan, Artifacts(model=())).env
    for name in ("SM_VLLM_SPECULATIVE_CONFIG", "OPTION_SPECULATIVE_CONFIG"):
        if name in env:
            read: dict[str, Any] = json.loads(env[name])
            return read
    prefix = "SM_SGLANG_SPECULATIVE_"
    return {name.removeprefix(prefix): env[name] for name in env if name.startswith(prefix)}


def errors(container: str, kind: DraftKind, **changed: Any) -> list[tuple[str, str]]:
    plan = plan_for(container, draft=Draft(kind=kind, speculative_tokens=7), **changed)
    found = family_of(plan).check(plan)
    return [(one.code, one.hint) for one in found if one.severity == "error"]


@pytest.mark.parametrize("container", ["vllm", "lmi"])
def test_p_eagle_is_eagle_3_that_drafts_in_parallel(container: str) -> None:
    assert told(container, "peagle") == {
        "method": "eagle3",
        "model": "/opt/packager/draft",
        "num_speculative_tokens": 7,
        "parallel_drafting": True,
    }


@pytest.mark.parametrize("container", ["vllm", "lmi"])
def test_dflash_is_a_method_of_its_own(container: str) -> None:
    assert told(container, "dflash") == {
        "method": "dflash",
        "model": "/opt/packager/draft",
        "num_speculative_tokens": 7,
    }


@pytest.mark.parametrize("container", ["vllm", "lmi"])
def test_n_grams_on_the_gpu_look_for_the_same_words(container: str) -> None:
    assert told(container, "ngram_gpu") == {
        "method": "ngram_gpu",
        "num_speculative_tokens": 7,
        "prompt_lookup_max": 3,
        "prompt_lookup_min": 1,
    }


@pytest.mark.parametrize("container", ["vllm", "lmi"])
def test_suffix_decoding_is_told_the_most_tokens(container: str) -> None:
    assert told(container, "suffix") == {"method": "suffix", "num_speculative_tokens": 7}


def test_a_head_that_is_a_checkpoint_of_its_own_is_named() -> None:
    named = Draft(kind="mtp", reference="org/assistant", speculative_tokens=4, method="mtp")
    read = {}
    for container in ("vllm", "sglang"):
        plan = plan_for(container, draft=named)
        env = family_of(plan).render(plan, Artifacts(model=())).env
        read |= {key: env[key] for key in env if "SPECULATIVE" in key}

    assert json.loads(read["SM_VLLM_SPECULATIVE_CONFIG"]) == {
        "method": "mtp",
        "model": "/opt/packager/draft",
        "num_speculative_tokens": 4,
    }
    assert read["SM_SGLANG_SPECULATIVE_ALGORITHM"] == "NEXTN"
    assert read["SM_SGLANG_SPECULATIVE_DRAFT_MODEL_PATH"] == "/opt/packager/draft"


def test_sglang_is_told_the_block_of_a_dflash_head_with_its_first_token() -> None:
    assert told("sglang", "dflash") == {
        "ALGORITHM": "DFLASH",
        "DRAFT_MODEL_PATH": "/opt/packager/draft",
        "NUM_DRAFT_TOKENS": "8",
    }


def test_sglang_runs_no_pipeline_with_a_dflash_head() -> None:
    (found,) = errors("sglang", "dflash", pp_degree=2)
    assert found[0] == "options-conflict"


@pytest.mark.parametrize("kind", ["peagle", "suffix", "ngram_gpu"])
def test_sglang_refuses_what_it_does_not_have(kind: DraftKind) -> None:
    assert [code for code, _ in errors("sglang", kind)] == ["draft-unsupported"]


@pytest.mark.parametrize("kind", ["mtp", "peagle", "dflash", "ngram_gpu", "suffix"])
@pytest.mark.parametrize("container", ["tgi", "lmi-14", "neuron-vllm", "neuron-nxdi", "lmi-trt"])
def test_other_servers_refuse_them(container: str, kind: DraftKind) -> None:
    assert "draft-unsupported" in [code for code, _ in errors(container, kind)]


def test_a_version_that_is_too_old_is_told_which_are_not() -> None:
    ((code, hint),) = errors("lmi-16", "ngram_gpu")

    assert code == "draft-unsupported"
    assert "from 0.18.0 to 0.33.0" in hint


def test_what_a_version_has_is_read_from_its_own_parser_or_written_down() -> None:
    assert [versions_with(kind)[0] for kind in ("mtp", "suffix", "ngram_gpu", "dflash")] == [
        "0.11.0",
        "0.11.1",
        "0.18.0",
        "0.20.1",
    ]
    assert versions_with("peagle")[0] == "0.16.0"
    assert versions_with("medusa")[-1] == "0.32.0"
    assert versions_with("nothing of the kind") == ()
