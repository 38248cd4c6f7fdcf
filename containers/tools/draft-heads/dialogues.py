"""Samples as questions to the model, one after the other. Needs nothing but a tokenizer.

An answer is written where one is recorded, and where one is missing: after the last
turn of a conversation, and after a prompt alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conversations import question_of, tokens_of
from jinja2 import TemplateError

ANSWERS = "assistant"


class Dialogue:
    """One sample as far as it is answered."""

    def __init__(self, sample: Mapping[str, Any], tokenizer: Any, most: int) -> None:
        self.sample = sample
        self._tokenizer = tokenizer
        self._most = most  # tokens of a question; a longer one ends the dialogue
        self._questions = _questions(sample)
        self._said: list[str] = []
        self.cut = False  # it ends before its last question

    @property
    def place(self) -> int:
        """How many answers there are."""
        return len(self._said)

    def question(self) -> list[int]:
        """Give the tokens to answer now; none when there is nothing more to ask."""
        if self.cut or self.place == len(self._questions):
            return []
        try:
            ids = self._tokens()
        except TemplateError:  # templates refuse what their model was not trained on
            ids = []
        self.cut = not 0 < len(ids) <= self._most
        return [] if self.cut else ids

    def take(self, answer: str) -> None:
        """Go on after an answer."""
        self._said.append(answer)

    def row(self) -> dict[str, Any] | None:
        """Give the sample with the model's answers; None where it gave none."""
        if "text" in self.sample:
            return dict(self.sample)
        if not any(self._said):
            return None
        if "prompt" in self.sample:
            return {**self.sample, "completion": self._said[0]}
        return {**self.sample, "messages": self._messages(self.place)}

    def _tokens(self) -> list[int]:
        if "prompt" in self.sample:
            return tokens_of({"prompt": self.sample["prompt"]}, self._tokenizer).ids
        messages = self._messages(self.place) + self._questions[self.place]
        return question_of(messages, self._tokenizer, self.sample)

    def _messages(self, answered: int) -> list[dict[str, str]]:
        """Give the conversation up to an answer."""
        return [
            turn
            for asked, said in zip(self._questions[:answered], self._said, strict=False)
            for turn in (*asked, {"role": ANSWERS, "content": said})
        ]


def _questions(sample: Mapping[str, Any]) -> list[list[dict[str, str]]]:
    """Give the turns before each answer. A greeting answers nothing, and stays as it is.

    So do recorded calls of tools, whose results follow; a last one is answered anew.
    """
    if "text" in sample:
        return []
    if "prompt" in sample:
        return [[]]
    turns = list(sample["messages"])
    while turns and turns[-1]["role"] == ANSWERS and "tool_calls" in turns[-1]:
        turns.pop()
    found: list[list[dict[str, str]]] = [[]]
    for turn in turns:
        if turn["role"] != ANSWERS or (found[-1] and "tool_calls" in turn):
            found[-1].append(turn)
        elif any(one["role"] != ANSWERS for one in found[-1]):
            found.append([])
        elif len(found) == 1:
            found[-1].append(turn)
    return found if found[-1] else found[:-1]
