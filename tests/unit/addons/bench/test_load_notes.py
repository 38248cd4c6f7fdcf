"""What a reader is told before they believe the figures of a load."""

from __future__ import annotations

from packager.addons.bench.metrics import load_figures
from packager.core.bench import Limits
from tests.support.cases import Case, cases
from tests.unit.addons.bench.loads import answer, load, load_of


@cases("notes")
def test_notes_of_a_load(case: Case) -> None:
    made = load_of(case["answers"], **case.get("more", {}))

    assert [*load_figures([made], Limits(**case.get("limits", {}))).notes] == case["notes"]


def test_lengths_that_nobody_counted_in_one_round_of_two() -> None:
    good = answer(at=(0.5, 10.0), input_tokens=10, output_tokens=5)

    assert load_figures([load(good), load(good, estimated_lengths=True)]).notes == (
        "lengths of prompts are estimates: the server does not count the tokens of a prompt; "
        "--tokenizer names who does",
    )
