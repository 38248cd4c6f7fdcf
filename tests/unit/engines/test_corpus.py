"""Requests of the corpus: packager and the engines' own parsers and checks say the same.

The verdicts were recorded by `scripts/engine-verdicts`; docs/engine-versions.md says how.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pytest

from tests.support.corpus import FAMILIES, VERDICTS, Request, judge, read_corpus

AGREED = {"vllm": 0.99, "sglang": 0.985, "lmi": 0.975, "tgi": 0.99, "neuron": 0.97}


@dataclass(frozen=True, slots=True)
class Case:
    """One verdict of an engine beside packager's."""

    request: Request
    version: str
    theirs: str
    words: str
    ours: str

    @property
    def agrees(self) -> bool:
        match self.theirs:
            case "accepted":
                return self.ours in {"accepted", "warned"}
            case "dropped":
                return self.ours in {"refused", "warned"}
        return self.ours == self.theirs

    def __str__(self) -> str:
        where = f"{self.request.family} {self.version}: {self.request.name}"
        return f"{where}: {self.theirs} ({self.words}), and packager: {self.ours}"


@cache
def cases(family: str) -> tuple[Case, ...]:
    return tuple(_cases(family))


def _cases(family: str) -> Iterator[Case]:
    for request in read_corpus(family):
        for version, (theirs, words) in request.verdicts.items():
            if theirs == "undecided":
                continue
            ours, _ = judge(request, version)
            if ours != "policy":  # refused for packager's own reasons
                yield Case(request, version, theirs, words, ours)


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_that_an_engine_drops_without_a_word_is_accepted(family: str) -> None:
    unseen = [case for case in cases(family) if case.theirs == "dropped" and not case.agrees]

    assert unseen == [], "\n".join(map(str, unseen))


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_of_the_corpus_have_one_verdict_a_version_and_a_source(family: str) -> None:
    requests = list(read_corpus(family))

    assert len({one.name for one in requests}) == len(requests)
    for one in requests:
        assert one.source, one.name
        assert one.verdicts, one.name
        assert {said for said, _ in one.verdicts.values()} <= set(VERDICTS), one.name
