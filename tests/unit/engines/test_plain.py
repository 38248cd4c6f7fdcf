"""Every family's image with a draft, as rendered, and what starts it without."""

from __future__ import annotations

import json
from typing import Any

import pytest

from packager.core.artifact import Artifacts
from packager.core.plan import Plan
from packager.engines.without_draft import draft_of, without_draft
from packager.pipeline.record import draft_of as recorded
from tests.support.cases import cases_of
from tests.support.engine_plans import DRAFTS, MEDUSA_V1, NGRAM, plan_for
from tests.support.engine_rows import family_of

cases = cases_of(__file__, "without_draft")


def config_of(plan: Plan) -> dict[str, Any]:
    """The image's configuration as an engine shows it."""
    rendered = family_of(plan).render(plan, Artifacts(model=()))
    record = {"draft": recorded(plan.draft)} if plan.draft else {}
    return {
        "Entrypoint": list(rendered.entrypoint) or ["base"],
        "Env": [f"{name}={value}" for name, value in rendered.env.items()],
        "Labels": {"dev.packager.record": json.dumps(record)},
    }


@cases("switched off", changes=None)
def test_the_draft_is_switched_off_and_nothing_else(
    container: str, draft: str, changes: dict[str, str] | None
) -> None:
    found = without_draft(config_of(plan_for(container, draft=DRAFTS[draft])))

    assert found == (changes and {name: value or None for name, value in changes.items()})


def test_the_environment_is_then_that_of_the_image_without_a_draft() -> None:
    """Of vLLM by variables and of TGI with n-grams, whose model and memory stay the same.

    TGI prefills as much at once as beside the draft, where it computes no prompt in pieces.
    """
    for container, stays in (("vllm", set()), ("tgi", {"MAX_BATCH_PREFILL_TOKENS=4096"})):
        config = config_of(plan_for(container, draft=NGRAM))
        removed = set(without_draft(config) or {})
        kept = {pair for pair in config["Env"] if pair.partition("=")[0] not in removed}

        assert kept == set(config_of(plan_for(container))["Env"]) | stays


def test_mounted_medusa_heads_cannot_be_switched_off() -> None:
    """The mount's root is the heads; no variable of the image says so."""
    assert without_draft(config_of(plan_for("tgi", draft=MEDUSA_V1, weights="mounted"))) is None


@cases("the_kind_of_draft_is_read_from_the_label")
def test_the_kind_of_draft_is_read_from_the_label(record: str, kind: str | None) -> None:
    assert draft_of({"Labels": {"dev.packager.record": record}}) == kind
    assert draft_of({"Labels": None}) is None
    assert draft_of({}) is None


@pytest.mark.parametrize(
    "config", [{}, {"Env": None, "Entrypoint": None}, {"Env": ["SPECULATE=3"]}]
)
def test_of_an_image_of_others_nothing_is_guessed(config: dict[str, Any]) -> None:
    assert without_draft(config) is None
