"""What an endpoint served before, and goes back to."""

from __future__ import annotations

import pytest

from packager.addons.deploy.sagemaker.history import (
    NEEDS_TAG,
    SERVED_TAG,
    last_served,
    needs_text,
    specification_of,
)
from tests.support.cases import read_tables
from tests.support.known import known

SPECIFICATION = read_tables(__file__)["specification"]


def test_what_was_never_in_service_is_not_gone_back_to() -> None:
    found = [
        ("failed", {}),
        ("second", {SERVED_TAG: "2026-11-02"}),
        ("first", {SERVED_TAG: "2026-11-01"}),
        ("now", {SERVED_TAG: "2026-11-09"}),
    ]
    served = known(last_served(found, "now"))
    assert served.name == "second"
    assert last_served(found[:1], "now") is None


def test_a_component_gets_back_what_it_asked_for() -> None:
    text = needs_text(SPECIFICATION)
    assert len(text) <= 256
    bigger = read_tables(__file__)["bigger"]
    assert specification_of("llama-11111111", text, bigger) == SPECIFICATION


@pytest.mark.parametrize("needs", ["", "startup=", "startup=x devices=y"])
def test_a_tag_that_somebody_changed_is_not_believed(needs: str) -> None:
    made = specification_of("m", needs, SPECIFICATION)
    assert made["ModelName"] == "m"
    assert {NEEDS_TAG, "Container"}.isdisjoint(made)
