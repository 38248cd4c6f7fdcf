"""Configurations that nobody would write by accident: every check answers, none crashes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.architectures.test_profile import JSON
from tests.unit.drafts.test_hostile import HEADS, answers

pytestmark = pytest.mark.extended

KEYS = (
    "architectures", "model_type", "num_hidden_layers", "num_nextn_predict_layers", "text_config",
    "mtp_config", "mtp_num_hidden_layers", "hidden_size", "num_attention_heads", "head_dim",
    "num_key_value_heads", "vocab_size", "draft_vocab_size", "block_size", "dflash_config",
    "mask_token_id", "aux_hidden_state_layer_ids", "target_layer_ids", "layer_types",
    "transformer_layer_config", "speculators_config", "speculators_model_type",
    "backbone_hidden_size", "eagle_aux_hidden_state_layer_ids", "sample_from_anchor",
)  # fmt: skip
CHANGES = st.dictionaries(st.sampled_from(KEYS), JSON, min_size=1, max_size=6)


@pytest.mark.parametrize("kind", HEADS)
@settings(max_examples=60, deadline=None)
@given(changes=CHANGES)
def test_no_config_json_crashes_a_check(kind: str, changes: dict[str, Any]) -> None:
    files = HEADS[kind]

    found = answers(kind, replace(files, config={**files.config, **changes}))

    assert all(len(one.message) < 500 for one in found)
