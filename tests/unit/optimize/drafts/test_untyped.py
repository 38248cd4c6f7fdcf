"""Heads whose config.json does not say what reads it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packager.core.findings import Finding
from packager.core.model import ModelFiles
from packager.core.techniques import DraftKind
from packager.models.architectures.profile import make_profile
from packager.optimize.drafts.dflash import check_dflash, read_dflash
from packager.optimize.drafts.eagle import check_eagle, read_eagle
from tests.support import heads
from tests.support.headers import LLAMA_3_8B, model_of

MODEL = model_of(LLAMA_3_8B)
PROFILE = make_profile(MODEL)[0]


def check(kind: DraftKind, head: ModelFiles) -> list[Finding]:
    values = heads.values_of(head)
    if kind == "dflash":
        return list(check_dflash(read_dflash(head), head, MODEL, PROFILE, 0, values))
    return list(check_eagle(kind, read_eagle(head), head, MODEL, PROFILE, values))


@pytest.mark.parametrize("kind", ["eagle", "eagle3", "peagle", "dflash"])
def test_a_head_without_model_type_is_refused(kind: DraftKind) -> None:
    head: ModelFiles = getattr(heads, kind)(LLAMA_3_8B)
    assert not check(kind, head)

    config = {key: value for key, value in head.config.items() if key != "model_type"}
    found = check(kind, replace(head, config=config))

    assert [one.code for one in found] == ["model-type-missing"]


def test_a_head_of_the_speculators_library_needs_no_model_type() -> None:
    head = heads.eagle3_of_speculators(LLAMA_3_8B)
    assert "model_type" not in head.config
    assert not check("eagle3", head)
