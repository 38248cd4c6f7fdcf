"""Acceptance from the metrics of each engine. Those of vLLM are a running 0.32.0's own words.

The texts of TGI and SGLang are written after their documentation and source; neither was run.
"""

from __future__ import annotations

import pytest

from packager.cli.serving.acceptance import acceptance, combine, speculates
from packager.core.probes import ProbeResponse
from packager.core.speculation import Acceptance
from tests.support.cases import as_type, read_tables
from tests.support.known import known

TABLES = read_tables(__file__)

VLLM = TABLES["vllm"]
EARLIER = VLLM.format(engine=0, drafts=10.0, drafted=20.0, accepted=5.0, first=4.0, second=1.0)
LATER = VLLM.format(engine=0, drafts=20.0, drafted=40.0, accepted=17.0, first=12.0, second=5.0)
OTHER = VLLM.format(engine=1, drafts=10.0, drafted=20.0, accepted=0.0, first=0.0, second=0.0)
PLAIN_VLLM = 'vllm:generation_tokens_total{engine="0",model_name="model"} 16.0\n'

TGI = TABLES["tgi"]
SGLANG = TABLES["sglang"]


def answer(tokens: int, chunks: int, error: str = "") -> ProbeResponse:
    return ProbeResponse(tokens=tokens, chunks=chunks, first_s=0.1, last_s=0.2, error=error)


def test_vllm_counts_and_differences_are_taken() -> None:
    assert acceptance([EARLIER, EARLIER, LATER], [], []) == as_type(
        TABLES["differences"], Acceptance
    )


def test_engines_behind_one_server_are_added_up() -> None:
    found = known(acceptance(["", LATER + OTHER], [], []))

    assert (found.drafts, found.draft_tokens, found.accepted_tokens) == (30, 60, 17)
    assert found.by_position == (0.4, 0.1667)


def test_a_draft_that_proposed_nothing_has_no_length() -> None:
    found = known(acceptance([LATER, LATER], [answer(9, 9)], [answer(9, 9)]))

    assert (found.source, found.drafts, found.length, found.rate) == ("vllm", 0, None, None)


def test_counters_that_shrank_tell_nothing() -> None:
    """The server was started again while it was measured."""
    found = known(acceptance([LATER, EARLIER], [answer(7, 3)], [answer(7, 3)]))

    assert (found.source, found.length) == ("chunks", 3.0)


@pytest.mark.parametrize(
    ("metrics", "told"), [(LATER, True), (PLAIN_VLLM, False), ("", None), ("<html>", None)]
)
def test_vllm_tells_whether_it_has_a_draft(metrics: str, told: bool | None) -> None:
    assert speculates(metrics) is told


def test_tgi_counts_what_a_step_gave_beyond_one_token() -> None:
    """Each of the two prompts made one token that nobody proposed: 22 - 2 - 10 steps are left."""
    texts = [TGI.format(total=4, count=10), TGI.format(total=19, count=22)]

    found = acceptance(texts, [answer(9, 3), answer(9, 3), answer(0, 0, "no")], [])

    assert found == Acceptance(source="tgi", length=2.5, rate=None, accepted_tokens=15)


def test_sglang_tells_of_its_last_interval_and_we_take_the_mean() -> None:
    texts = [
        SGLANG.format(length=9.0, rate=0.9),  # of what was before
        SGLANG.format(length=2.0, rate=0.2),
        SGLANG.format(length=3.0, rate=0.4),
        SGLANG.format(length=0.0, rate=0.0),  # of an interval without work
    ]

    assert acceptance(texts, [], []) == Acceptance(source="sglang", length=2.5, rate=0.3)


def test_without_metrics_chunks_are_an_estimate() -> None:
    """The first chunk is the prompt's; what failed tells nothing."""
    alone = [answer(9, 5), answer(7, 4), answer(0, 0, "refused"), answer(1, 1)]

    found = acceptance(["", ""], [*alone, answer(50, 2)], alone)

    assert found == Acceptance(source="chunks", length=2.0, rate=None)
    assert found.is_estimate


def test_without_metrics_and_answers_nothing_tells() -> None:
    assert acceptance(["", "<html>"], [], [answer(1, 1)]) is None


@pytest.mark.parametrize("position", ["01", "\N{ARABIC-INDIC DIGIT THREE}", "1" * 5000, "-1", "a"])
def test_a_position_that_is_none_is_left_out(position: str) -> None:
    odd = LATER.replace('position="1"', f'position="{position}"')

    found = known(acceptance([EARLIER, odd], [], []))

    assert (found.length, found.by_position) == (2.2, (0.8,))


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "1e309", "1e300"])
def test_numbers_that_nothing_counts_to_tell_nothing(value: str) -> None:
    vllm = LATER.replace("20.0", value, 1)
    tgi = TGI.format(count=value, total=value)
    sglang = SGLANG.format(length=value, rate=value)

    assert acceptance([EARLIER, vllm], [], []) is None
    assert acceptance(["", tgi], [answer(4, 2)], []) is None
    assert acceptance(["", sglang], [], []) is None


def test_rounds_with_counters_are_added() -> None:
    one = as_type(TABLES["first_round"], Acceptance)
    two = as_type(TABLES["second_round"], Acceptance)

    assert combine([one, two]) == as_type(TABLES["all_servers"], Acceptance)


def test_rounds_without_counters_count_the_same() -> None:
    one = Acceptance(source="sglang", length=2.0, rate=0.5)
    two = Acceptance(source="sglang", length=3.0, rate=None)

    assert combine([one, two]) == Acceptance(source="sglang", length=2.5, rate=0.5)


def test_one_round_stays_as_it_is_and_none_tells_nothing() -> None:
    one = Acceptance(source="tgi", length=2.1234, rate=None, accepted_tokens=7)

    assert combine([one]) is one
    assert combine([]) is None


def test_rounds_that_proposed_nothing_have_no_length() -> None:
    nothing = Acceptance(
        source="vllm", length=None, rate=None, drafts=0, draft_tokens=0, accepted_tokens=0
    )

    assert combine([nothing, nothing]) == nothing
