"""Texts of a given number of tokens, made of whole sentences.

Random bytes or words would be slower to tokenize than users' texts, and a draft could not predict
them.  The sentences are those of the samples that packager ships.

Tokenizers cut at spaces, so what sentences cost adds up: each is counted once, and a text of
thousands of tokens costs a sum.  Where counting is cheap the text is counted once more, and
corrected by words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from random import Random

from packager.addons.bench.load.draws import draws, pick, shuffled
from packager.addons.bench.load.tokenizer import TokenizerFailed

CountTokens = Callable[[str], int]

ASKED_SENTENCES, ASKED_WORDS = 32, 16  # of those that a server counts, each with a request
_SENTENCE = re.compile(r"[A-Z][A-Za-z ,;'()-]{20,200}[.?!]", re.ASCII)
_BETWEEN = re.compile(r"(?<=[.!?]) (?=[A-Z])")
_WORD = re.compile(r"\b[a-z]{4,6}\b", re.ASCII)
_TAG_WORDS, _ASKED_TAG_WORDS = 4, 6  # of some 300: two of 10,000 texts hardly begin alike
_MENDS = 8  # times that a text is counted again
_CLOSE = 200  # part of a text's tokens that is close enough: none of a short one
_FILLERS = ("the", "of", "and", "to", "in", "is", "for", "that")  # a token each, nearly everywhere
_BASE = "Return what is there."  # sentences are counted behind it, as they stand in a text


@dataclass(frozen=True, slots=True)
class WrittenText:
    """A text, and its tokens as they were counted or add up."""

    text: str
    tokens: int
    failed: bool = False  # it could not be counted as a whole


class TextWriter:
    """Writes texts of a given number of tokens."""

    def __init__(self, count: CountTokens, *, asks: bool = False) -> None:
        """Count sentences and words with `count`; `asks`: each count is a request.

        Then few of them are used, and no text is recounted.  Raises the errors of `count`.
        """
        self._count = count
        self._mends = not asks
        self._sentences = shipped_sentences()[: ASKED_SENTENCES if asks else None]
        self._words = shipped_words()[: ASKED_WORDS if asks else None]
        self._tag_words = _ASKED_TAG_WORDS if asks else _TAG_WORDS
        self._base = count(_BASE)
        self._costs: dict[str, int] = {}
        costs = {word: self.cost(word) for word in _FILLERS}
        self._filler_cost = min(costs.values())
        self._fillers = [word for word, cost in costs.items() if cost == self._filler_cost]
        self._shortest = min(map(self.cost, self._sentences))
        for word in self._words:
            self.cost(word)

    def cost(self, part: str) -> int:
        """Return the tokens that `part` adds to a text."""
        if part not in self._costs:
            self._costs[part] = max(1, self._count(f"{_BASE} {part}") - self._base)
        return self._costs[part]

    def measured(self, text: str, added: int) -> WrittenText:
        """Return a text with its tokens, which are `added` where they cannot be counted again."""
        if not self._mends:
            return WrittenText(text, added)
        try:
            return WrittenText(text, self._count(text))
        except TokenizerFailed:
            return WrittenText(text, added, failed=True)

    def write(
        self,
        tokens: int,
        *key: object,
        tagged: bool = True,
        ending: str = "",
        mends: bool = True,
    ) -> WrittenText:
        """Return a text of so many tokens, the same one for the same key.

        A tagged text begins as no other one: servers keep what they computed for the beginning
        of a prompt.  `ending` is the last sentence, where there is room for it.  Without
        `mends` the text is part of one that is counted as a whole.
        """
        random = draws("text", *key)
        left = tokens
        tail: list[str] = []
        if ending and self.cost(ending) <= left // 2:
            tail = [ending]
            left -= self.cost(ending)
        head: list[str] = []
        while tagged and len(head) < self._tag_words:
            word = pick(random, self._words)
            if self.cost(word) > left:
                break
            head.append(word)
            left -= self.cost(word)
        body, left = self._fill(random, left)
        fillers = [pick(random, self._fillers) for _ in range(left // self._filler_cost)]
        if not (head or fillers or body or tail):
            fillers = [pick(random, self._fillers)]
        draft = _Draft(head=head, fillers=fillers, tail=[*body, *tail])
        if self._mends and mends:
            return self._mended(random, tokens, draft)
        return WrittenText(draft.text, sum(map(self.cost, draft.parts)))

    def _fill(self, random: Random, left: int) -> tuple[list[str], int]:
        """Return sentences that cost nearly `left` tokens together, and what is left of it."""
        chosen: list[str] = []
        waiting: list[str] = []
        while left >= self._shortest:
            if not waiting:
                fitting = [one for one in self._sentences if self.cost(one) <= left]
                waiting = shuffled(random, fitting)
            sentence = waiting.pop()
            if self.cost(sentence) <= left:
                chosen.append(sentence)
                left -= self.cost(sentence)
        return chosen, left

    def _mended(self, random: Random, tokens: int, draft: _Draft) -> WrittenText:
        """Add or remove words until the count is right, or comes no nearer."""
        best: WrittenText | None = None
        for _ in range(_MENDS):
            found = self.measured(draft.text, sum(map(self.cost, draft.parts)))
            nearer = best is None or abs(found.tokens - tokens) < abs(best.tokens - tokens)
            best = found if best is None or nearer else best
            if abs(found.tokens - tokens) <= tokens // _CLOSE or not nearer:
                break
            words = max(1, abs(tokens - found.tokens) // self._filler_cost)
            if found.tokens < tokens:
                draft.fillers.extend(pick(random, self._fillers) for _ in range(words))
            elif draft.fillers:
                del draft.fillers[-words:]
            elif len(draft.parts) > 1:
                (draft.tail or draft.head).pop(0)
            else:
                break
        assert best is not None
        return best


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """Parts of a text: words that make it unique, words that fill it up, sentences."""

    head: list[str]
    fillers: list[str]
    tail: list[str]

    @property
    def parts(self) -> list[str]:
        return [*self.head, *self.fillers, *self.tail]

    @property
    def text(self) -> str:
        return " ".join(self.parts)


@cache
def shipped_sentences() -> tuple[str, ...]:
    """Return the sentences of the samples that packager ships, in an order that stays."""
    found: dict[str, None] = {}
    for text in _shipped_texts():
        for paragraph in text.split("\n\n"):
            for sentence in _BETWEEN.split(" ".join(paragraph.split())):
                if _SENTENCE.fullmatch(sentence):
                    found[sentence] = None
    return tuple(shuffled(draws("sentences"), sorted(found)))


@cache
def shipped_words() -> tuple[str, ...]:
    """Return the words of the sentences that are short and stand there more than once."""
    counts: dict[str, int] = {}
    for sentence in shipped_sentences():
        for word in _WORD.findall(sentence):
            counts[word] = counts.get(word, 0) + 1
    found = sorted(word for word, count in counts.items() if count > 1)
    return tuple(shuffled(draws("words"), found))


def _shipped_texts() -> list[str]:
    shipped = resources.files("packager.catalog") / "data" / "samples.jsonl"
    texts: list[str] = []
    for line in shipped.read_text("utf-8").splitlines():
        row = json.loads(line)
        texts += [turn["content"] for turn in row.get("messages", ())]
        texts += [row["text"]] if "text" in row else []
    return texts
