"""Answers of vectors and scores, as OpenAI, Cohere, vLLM and TEI have them: one for each text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from packager.addons.bench.load.answers import AnswerFailed, AnswerReader
from packager.core.text import quote_answer

_ROWS = ("data", "results")  # of vectors, labels and scores; of ranks.  TEI's are a list alone.
_VALUES = ("embedding", "relevance_score", "score", "probs")


class PooledAnswerReader(AnswerReader):
    """Reads one answer, which comes in one piece and has something for each of `texts` texts."""

    def __init__(self, content_type: str, texts: int) -> None:
        super().__init__(content_type)
        self._asked = texts

    def _document(self, said: Any) -> None:
        if isinstance(said, Mapping):
            if said.get("error"):
                reason = quote_answer(json.dumps(said["error"]), 300)
                raise AnswerFailed("server", f"it broke off: {reason}")
            usage = said.get("usage")
            if isinstance(usage, Mapping):
                tokens = usage.get("prompt_tokens", usage.get("total_tokens"))
                self.input_tokens = tokens if type(tokens) is int and tokens >= 0 else None
            said = next((said[name] for name in _ROWS if name in said), None)
        if not isinstance(said, list) or not all(map(_has_value, said)):
            raise AnswerFailed("invalid", "its answer has neither vectors nor scores")
        if len(said) != self._asked:
            raise AnswerFailed("invalid", f"{len(said)} answers came to {self._asked} texts")
        self.texts = len(said)


def _has_value(row: object) -> bool:
    """Check that a row has numbers, or a text of their bytes."""
    if isinstance(row, Mapping):
        row = next((row[name] for name in _VALUES if name in row), None)
    if isinstance(row, str):
        return bool(row)
    if isinstance(row, list):  # of a classifier, TEI gives objects for each label
        return bool(row) and (isinstance(row[0], Mapping) or type(row[0]) in (int, float))
    return type(row) in (int, float)
