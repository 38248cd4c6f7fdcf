"""What `--draft auto` takes, and what it says about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.mtp_models import MODELS
from tests.unit.drafts.test_known import HEAD, chosen


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("family", "version"), [("vllm", None), ("lmi", None), ("sglang", None), ("vllm", "0.17.0")]
)
def test_the_checkpoints_own_head_comes_first(name: str, family: str, version: str | None) -> None:
    other = replace(HEAD, kind="draft_model")
    choice = chosen(other, model=name, family=family, version=version, instance="p5en.48xlarge")

    assert choice.reference == "mtp"
    (finding,) = choice.findings
    assert "auto takes mtp: the checkpoint brings 1 MTP layer" in finding.message
    assert "org/head would fit too" in finding.message
