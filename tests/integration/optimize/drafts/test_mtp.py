"""`--draft mtp`: the head that a checkpoint brings along, checked from headers of real sizes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cases import cases_of
from tests.support.mtp_models import MODELS, without
from tests.unit.optimize.drafts.test_mtp import named, plan, refusal, told

cases = cases_of(__file__)


@named
@pytest.mark.parametrize("tokens", [1, 2, 3])
def test_vllm_is_told_the_method_and_no_model(case: dict[str, Any], tokens: int) -> None:
    for version in (case["since"], "0.27.1"):
        planned = plan(MODELS[case["model"]](), version=version, draft=f"mtp:{tokens}")

        assert told(planned) == {"method": "mtp", "num_speculative_tokens": tokens}


@cases("lost")
def test_a_head_that_is_not_whole_is_refused_by_the_tensor(model: str, part: str) -> None:
    found = refusal(without(MODELS[model](), part))

    assert found.code == "draft-mtp-missing"
    assert part.rpartition(".")[0].rpartition(".")[2] in found.message
