"""Configurations that nobody would write by accident: every check answers, none crashes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases import read_tables
from tests.unit.models.architectures.test_profile import JSON
from tests.unit.optimize.drafts.test_hostile import HEADS, answers

pytestmark = pytest.mark.extended

KEYS: list[str] = read_tables(__file__)["keys"]
CHANGES = st.dictionaries(st.sampled_from(KEYS), JSON, min_size=1, max_size=6)


@pytest.mark.parametrize("kind", HEADS)
@settings(max_examples=60, deadline=None)
@given(changes=CHANGES)
def test_no_config_json_crashes_a_check(kind: str, changes: dict[str, Any]) -> None:
    files = HEADS[kind]

    found = answers(kind, replace(files, config={**files.config, **changes}))

    assert all(len(one.message) < 500 for one in found)
