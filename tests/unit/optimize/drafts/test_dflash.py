"""What a DFlash or P-EAGLE head says of itself, in both formats that are published."""

from __future__ import annotations

from typing import Any

import pytest

from packager.core.model import ModelFiles
from packager.core.techniques import Draft
from packager.optimize.drafts.dflash import block_tokens, dflash_draft, read_dflash
from packager.optimize.drafts.eagle import eagle_draft, read_eagle, stated_kind
from tests.support import heads
from tests.support.cases import cases_of
from tests.support.headers import LLAMA_3_8B, model_of

cases = cases_of(__file__, "kinds")

OWN, LIBRARY = heads.dflash(LLAMA_3_8B), heads.dflash_of_speculators(LLAMA_3_8B)


@pytest.mark.parametrize(("files", "layout"), [(OWN, "dflash"), (LIBRARY, "speculators")])
def test_both_formats_name_the_same_layers_of_the_model(files: ModelFiles, layout: str) -> None:
    head = read_dflash(files)

    assert head.aux_layers == (2, 10, 18, 26, 30)  # the authors state 1, 9, 17, 25 and 29
    assert (head.layout, head.layers, head.stated_kind) == (layout, 5, "dflash")


def test_a_draft_has_the_size_of_its_layers_and_a_block_of_tokens() -> None:
    asked = Draft(kind="dflash", reference="org/head", speculative_tokens=0)

    whole = dflash_draft(asked, read_dflash(OWN))
    mapped = dflash_draft(asked, read_dflash(LIBRARY))

    assert (whole.speculative_tokens, whole.vocab_size) == (15, 128256)
    assert (mapped.speculative_tokens, mapped.vocab_size) == (7, 32000)
    assert whole.kv_bytes_per_token == 5 * 2 * 8 * 128 * 2


@cases("blocks")
def test_a_block_proposes_all_its_tokens_but_the_first(config: dict[str, Any], tokens: int) -> None:
    assert block_tokens(config) == tokens


def test_a_p_eagle_head_proposes_what_it_was_trained_for() -> None:
    asked = Draft(kind="peagle", reference="org/head", speculative_tokens=0)

    stated = eagle_draft(asked, read_eagle(heads.peagle_of_speculators(LLAMA_3_8B)))
    unsaid = eagle_draft(asked, read_eagle(heads.peagle(LLAMA_3_8B)))

    assert (stated.speculative_tokens, unsaid.speculative_tokens) == (8, 5)


@cases("stated")
def test_the_kind_is_read_from_config_json(config: dict[str, Any], kind: str) -> None:
    assert stated_kind(config) == kind


def test_a_model_that_is_no_head_is_read_without_a_crash() -> None:
    head = read_dflash(model_of(LLAMA_3_8B))

    assert (head.aux_layers, head.stated_tokens) == ((), 0)
