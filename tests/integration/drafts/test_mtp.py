"""`--draft mtp`: the head that a checkpoint brings along, checked from headers of real sizes."""

from __future__ import annotations

import pytest

from tests.support.mtp_models import MODELS, without
from tests.unit.drafts.test_mtp import Served, named, plan, refusal, told


@named
@pytest.mark.parametrize("tokens", [1, 2, 3])
def test_vllm_is_told_the_method_and_no_model(case: Served, tokens: int) -> None:
    for version in (case.since, "0.27.1"):
        planned = plan(MODELS[case.model](), version=version, draft=f"mtp:{tokens}")

        assert told(planned) == {"method": "mtp", "num_speculative_tokens": tokens}


@pytest.mark.parametrize(
    ("model", "part"),
    [
        ("deepseek-v3", "61.eh_proj.weight"),
        ("deepseek-v3", "61.hnorm.weight"),
        ("glm-4.5-air", "46.enorm.weight"),
        ("qwen3-next", "mtp.pre_fc_norm_hidden.weight"),
        ("qwen3.5", "mtp.fc.weight"),
        ("mimo", "mtp_layers.0.token_layernorm.weight"),
    ],
)
def test_a_head_that_is_not_whole_is_refused_by_the_tensor(model: str, part: str) -> None:
    found = refusal(without(MODELS[model](), part))

    assert found.code == "draft-mtp-missing"
    assert part.rpartition(".")[0].rpartition(".")[2] in found.message
