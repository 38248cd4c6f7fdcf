"""Configurations that nobody would write by accident: every check answers, none crashes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packager.catalog.containers import find_container
from packager.core.findings import Finding
from packager.core.model import ModelFiles
from packager.core.techniques import Draft
from packager.planning.drafts.assistant import assistant_draft, check_assistant
from packager.planning.drafts.dflash import check_dflash, dflash_draft, read_dflash
from packager.planning.drafts.eagle import check_eagle, eagle_draft, read_eagle
from packager.planning.drafts.mtp import check_mtp, mtp_draft
from packager.planning.profile import make_profile
from tests.planning import heads
from tests.planning.drafts import mtp_models
from tests.planning.headers import LLAMA_3_8B, model_of
from tests.planning.test_profile import JSON

LLAMA = model_of(LLAMA_3_8B)
PROFILE = make_profile(LLAMA)[0]
MIMO = mtp_models.mimo_7b()
MIMO_PROFILE = make_profile(MIMO)[0]
CONTAINERS = tuple(
    find_container(family, "nvidia", None, None, "ml.g5.xlarge", ())
    for family in ("vllm", "lmi", "sglang", "tgi")
)
KEYS = (
    "architectures", "model_type", "num_hidden_layers", "num_nextn_predict_layers", "text_config",
    "mtp_config", "mtp_num_hidden_layers", "hidden_size", "num_attention_heads", "head_dim",
    "num_key_value_heads", "vocab_size", "draft_vocab_size", "block_size", "dflash_config",
    "mask_token_id", "aux_hidden_state_layer_ids", "target_layer_ids", "layer_types",
    "transformer_layer_config", "speculators_config", "speculators_model_type",
    "backbone_hidden_size", "eagle_aux_hidden_state_layer_ids", "sample_from_anchor",
)  # fmt: skip
CHANGES = st.dictionaries(st.sampled_from(KEYS), JSON, min_size=1, max_size=6)
HEADS = {
    "mtp": MIMO,
    "dflash": heads.dflash(LLAMA_3_8B),
    "dflash-speculators": heads.dflash_of_speculators(LLAMA_3_8B),
    "peagle": heads.peagle(LLAMA_3_8B),
    "peagle-speculators": heads.peagle_of_speculators(LLAMA_3_8B),
    "assistant": heads.assistant(LLAMA_3_8B),
}


def answers(kind: str, files: ModelFiles) -> list[Finding]:
    """What the checks say, and the draft that would be planned."""
    if kind == "mtp":
        asked = Draft(kind="mtp", speculative_tokens=0)
        for container in CONTAINERS:
            mtp_draft(asked, files, container, MIMO_PROFILE)
        return [
            found
            for container in CONTAINERS
            for found in check_mtp(files, MIMO_PROFILE, container, 3)
        ]
    if kind == "assistant":
        assistant_draft(Draft(kind="mtp", reference="r", speculative_tokens=0), files)
        return list(check_assistant(files, mtp_models.gemma_4(), PROFILE, CONTAINERS[0]))
    if kind.startswith("dflash"):
        head = read_dflash(files)
        dflash_draft(Draft(kind="dflash", reference="r", speculative_tokens=0), head)
        return list(check_dflash(head, files, LLAMA, PROFILE, 0))
    head = read_eagle(files)
    eagle_draft(Draft(kind="peagle", reference="r", speculative_tokens=0), head)
    return list(check_eagle("peagle", head, files, LLAMA, PROFILE))


@pytest.mark.parametrize("kind", HEADS)
@settings(max_examples=60, deadline=None)
@given(changes=CHANGES)
def test_no_config_json_crashes_a_check(kind: str, changes: dict[str, Any]) -> None:
    files = HEADS[kind]

    found = answers(kind, replace(files, config={**files.config, **changes}))

    assert all(len(one.message) < 500 for one in found)


@pytest.mark.parametrize("kind", HEADS)
def test_a_whole_head_is_answered_with_silence(kind: str) -> None:
    codes = {found.code for found in answers(kind, HEADS[kind])}

    # Gemma's hidden size and words are not Llama's; TGI and older images serve no such head.
    assert codes <= {"draft-shape", "draft-vocabulary"}
