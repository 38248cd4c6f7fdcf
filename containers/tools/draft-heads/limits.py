"""Which questions are answered together, and how long they and their answers may be, in tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

GROUP = 64  # questions
GROUP_TOKENS = 16384  # questions and answers, with what fills up the shorter ones
LEAST = 8  # tokens that a question must leave to its answer


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of one question and answer."""

    text: int  # both together: what is longer would be cut
    answer: int
    context: int  # of the model

    @property
    def question(self) -> int:
        """The longest question that is answered; 0 or less when none is."""
        return self.text - min(LEAST, self.answer)

    def room(self, question: int) -> int:
        """Say how long the answer to a question of that length may be."""
        return min(self.answer, self.text - question)

    def groups(self, lengths: Mapping[int, int]) -> list[list[int]]:
        """Share out questions by length; those without a token have no answer.

        The longest come first: whether the memory is enough shows early.
        """
        found: list[list[int]] = []
        longest = 0
        for at in sorted(lengths, key=lambda at: (-lengths[at], at)):
            if not lengths[at]:
                break
            size = longest + self.room(lengths[at])
            full = not found or len(found[-1]) == GROUP
            if full or size > self.context or size * (len(found[-1]) + 1) > GROUP_TOKENS:
                found.append([])
                longest = lengths[at]
            found[-1].append(at)
        return found
