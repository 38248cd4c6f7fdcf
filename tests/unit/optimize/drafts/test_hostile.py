"""Configurations that nobody would write by accident: every check answers, none crashes."""

from __future__ import annotations

import pytest

from packager.catalog.containers import find_container
from packager.core.findings import Finding
from packager.core.model import ModelFiles
from packager.core.techniques import Draft
from packager.models.architectures.profile import make_profile
from packager.optimize.drafts.assistant import assistant_draft, check_assistant
from packager.optimize.drafts.dflash import check_dflash, dflash_draft, read_dflash
from packager.optimize.drafts.eagle import check_eagle, eagle_draft, read_eagle
from packager.optimize.drafts.mtp import check_mtp, mtp_draft
from tests.support import heads, mtp_models
from tests.support.headers import LLAMA_3_8B, model_of

LLAMA = model_of(LLAMA_3_8B)
PROFILE = make_profile(LLAMA)[0]
MIMO = mtp_models.mimo_7b()
MIMO_PROFILE = make_profile(MIMO)[0]
CONTAINERS = tuple(
    find_container(family, "nvidia", None, None, "ml.g5.xlarge", ())
    for family in ("vllm", "lmi", "sglang", "tgi")
)
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
        return list(check_dflash(head, files, LLAMA, PROFILE, 0, heads.values_of(files)))
    head = read_eagle(files)
    eagle_draft(Draft(kind="peagle", reference="r", speculative_tokens=0), head)
    return list(check_eagle("peagle", head, files, LLAMA, PROFILE, heads.values_of(files)))


@pytest.mark.parametrize("kind", HEADS)
def test_a_whole_head_is_answered_with_silence(kind: str) -> None:
    codes = {found.code for found in answers(kind, HEADS[kind])}

    # Gemma's hidden size and words are not Llama's; TGI and older images serve no such head.
    assert codes <= {"draft-shape", "draft-vocabulary"}
