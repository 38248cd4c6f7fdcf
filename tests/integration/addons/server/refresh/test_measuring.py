"""Rounds against servers whose accepted lengths are known: kept, gone on with, compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from packager.addons.bench.draft_measure.servers import MeasuredServer, Opener
from packager.addons.bench.load import run
from packager.addons.server.refresh.gate import GateRules, HeadComparison, decide
from packager.addons.server.refresh.measuring import (
    HeadServers,
    PromptSet,
    RoundWork,
    compare_heads,
)
from packager.core.probes import probe_request
from packager.core.samples import Sample
from tests.support.doubles.speculating import SpeculatingServer

WORDS = "one two three four five six seven eight nine"  # 9 tokens: 1, then 8 in steps
SAMPLES = tuple(Sample(prompt=f"{name} {WORDS}") for name in ("a", "b", "c"))
SLOW = GateRules(throughput=-0.99, first_token=99.0, against_plain=-0.99)  # doubles say nothing


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters of the doubles stand still at once."""
    monkeypatch.setattr(run, "_SETTLE_S", 0.0)


def compared(
    folder: Path, rounds: int, *servers: SpeculatingServer, together: bool = False
) -> HeadComparison:
    old, new, plain = (MeasuredServer(name=one.url, env={}) for one in servers)
    questions = tuple(probe_request(one, 9) for one in SAMPLES)
    work = RoundWork(
        servers=HeadServers(old=old, new=new, plain=plain),
        prompts=PromptSet(questions=questions, groups=("a", "a", "general")),
        concurrency=2,
        opener=Opener(
            connect=lambda: None, deadline_s=60, connections=4, on_progress=lambda _: None
        ),
        together=together,
        on_progress=lambda _: None,
    )
    return compare_heads(work, rounds, folder)


@pytest.mark.parametrize("together", [False, True])
def test_lengths_are_counted_for_each_prompt_and_speeds_for_each_round(
    tmp_path: Path, together: bool
) -> None:
    with (
        SpeculatingServer(step=2) as old,
        SpeculatingServer(step=4) as new,
        SpeculatingServer(step=1) as plain,
    ):
        found = compared(tmp_path, 2, old, new, plain, together=together)

    assert [(one.group, one.old, one.new) for one in found.prompts] == [
        ("a", 2.0, 4.0),
        ("a", 2.0, 4.0),
        ("general", 2.0, 4.0),
    ]
    assert [one.concurrency for one in found.rounds] == [1, 2, 1, 2]
    assert all(one.plain_rate for one in found.rounds)
    assert (found.compared, found.different) == (6, 0)
    assert decide(found, SLOW).checks[0].state == "yes"


def test_rounds_that_are_whole_are_not_measured_again(tmp_path: Path) -> None:
    with (
        SpeculatingServer(step=2) as old,
        SpeculatingServer(step=4) as new,
        SpeculatingServer(step=1) as plain,
    ):
        compared(tmp_path, 1, old, new, plain)
        first = (tmp_path / "round-1.json").read_bytes()
        (tmp_path / "round-2.json").write_text('{"lengths": {"old')
        compared(tmp_path, 2, old, new, plain)
    assert (tmp_path / "round-1.json").read_bytes() == first
    assert json.loads((tmp_path / "round-2.json").read_bytes())["compared"] == 3
    assert compared(tmp_path, 2, old, new, plain).compared == 6  # nothing is asked: they are gone


def test_another_answer_of_the_new_head_is_no(tmp_path: Path) -> None:
    with (
        SpeculatingServer(step=2) as old,
        SpeculatingServer(step=4, answer=lambda _: WORDS.split()[::-1]) as new,
        SpeculatingServer(step=1) as plain,
    ):
        found = compared(tmp_path, 2, old, new, plain)
    assert found.different > 0
    assert decide(found, SLOW).decision == "no"
