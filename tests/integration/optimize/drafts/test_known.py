"""What `--draft auto` takes, and what it says about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from packager.catalog.compatibility import rules
from packager.cli.wiring.builds import once_each, services_for
from packager.cli.wiring.settings import Settings
from packager.core.errors import (
    AccessDenied,
    ModelRefused,
    NotFound,
    PackagerError,
    PlanRejected,
    Unavailable,
)
from packager.core.model import ModelFiles
from packager.core.plan import Plan
from packager.core.references import ModelReference
from packager.core.request import BuildRequest
from packager.optimize.drafts.published import KnownChoice, choose_known
from packager.pipeline import pipeline
from tests.support import heads
from tests.support.headers import LLAMA_3_8B, TINY
from tests.support.mtp_models import MODELS
from tests.unit.optimize.drafts.test_known import HEAD, LLAMA, chosen


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


ONE, OTHER = (replace(HEAD, reference=f"org/{name}") for name in ("one", "other"))
GOOD = heads.eagle3(LLAMA_3_8B)
SHORT = heads.eagle3(LLAMA_3_8B, max_position_embeddings=128)
OF_ANOTHER = heads.eagle3(TINY)
GONE, UNREAD = NotFound("the hub has no model 'org/one'"), AccessDenied("'org/one' is gated")
BROKEN = ModelRefused("the model's weights hold no tensor")


@pytest.mark.parametrize(
    ("one", "other", "takes", "says"),
    [
        (GOOD, GOOD, "org/one", "eagle3:org/other would fit too"),
        (GONE, GOOD, "org/other", "eagle3:org/one: the hub has no model"),
        (UNREAD, GOOD, "org/other", "eagle3:org/one: 'org/one' is gated"),
        (BROKEN, GOOD, "org/other", "eagle3:org/one: the model's weights hold no tensor"),
        (SHORT, GOOD, "org/other", "eagle3:org/one: the draft has 128 positions"),
        (OF_ANOTHER, GOOD, "org/other", "eagle3:org/one: the draft's vocabulary"),
        (GONE, SHORT, None, "no published draft of this model fits here; passed over eagle3:org/o"),
    ],
)
def test_the_next_draft_is_taken_where_one_cannot_be_had_or_used(
    one: ModelFiles | PackagerError, other: ModelFiles | PackagerError, takes: str, says: str
) -> None:
    plan = planned({"org/one": one, "org/other": other})

    assert (plan.draft.reference if plan.draft else None) == takes
    (said,) = [one for one in plan.findings if one.code in ("draft-chosen", "draft-none-fits")]
    assert says in said.message


def test_a_hub_that_does_not_answer_is_no_reason_to_take_another() -> None:
    with pytest.raises(Unavailable):
        planned({"org/one": Unavailable("the hub answers 503"), "org/other": GOOD})


def test_a_plan_that_fails_without_a_draft_too_says_why() -> None:
    with pytest.raises(PlanRejected) as refused:
        planned({"org/one": GOOD}, max_total_tokens=9_000_000)

    assert "shape-over-positions" in [found.code for found in refused.value.findings]


def planned(drafts: Mapping[str, ModelFiles | PackagerError], **asked: Any) -> Plan:
    """Plan for LMI 28, whose engine reads past a head's positions."""

    def find_draft(reference: ModelReference) -> ModelFiles:
        found = drafts[reference.text]
        if isinstance(found, PackagerError):
            raise found
        return found

    def known_draft(*of: Any) -> KnownChoice:
        return choose_known((ONE, OTHER), *of[:3], rules(), of[3])

    services = replace(
        services_for(Settings(headers_only=True)),
        find_model=lambda _: LLAMA,
        find_draft=once_each(find_draft),
        known_draft=known_draft,
        read_head_values=lambda *_: None,
    )
    request = BuildRequest(model="org/llama", instance="g5.12xlarge", family="lmi", draft="auto")
    return pipeline.plan(request.model_copy(update=asked), services).plan
