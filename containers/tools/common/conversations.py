"""Samples as tokens, and which of them the model answered. Needs a tokenizer and what it runs on.

Rows are those of `packager.core.samples.Sample.row()`: a conversation, a prompt
with or without its completion, or a plain text.  Only conversations get the
model's template: a prompt was templated by whoever sent it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jinja2 import TemplateError


class Tokens(NamedTuple):
    """A sample's tokens in order."""

    ids: list[int]
    is_answer: list[bool]
    asked: int  # how many tokens stand before the last answer; 0 when there is none


def tokens_of(row: Mapping[str, Any], tokenizer: Any) -> Tokens:
    """Tokenize a sample piece by piece, so that no token is half question, half answer."""
    ids = _opening(row, tokenizer)
    marks = [False] * len(ids)
    asked = 0
    for piece, is_answer in _pieces(row, tokenizer):
        tokens = tokenizer(piece, add_special_tokens=False)["input_ids"]
        if is_answer:
            asked = len(ids)
        ids += tokens
        marks += [is_answer] * len(tokens)
    return Tokens(ids, marks, asked)


class Row(NamedTuple):
    """What a head is trained on: one text, and which of its tokens a model would have written."""

    ids: list[int]
    answered: list[bool]  # as long as `ids`


def to_row(sample: Mapping[str, Any], tokenizer: Any, max_tokens: int) -> Row:
    """Tokenize one sample and cut it. All of a plain text counts as the model's own.

    A conversation that the template refuses, as some do without a question first, has no tokens.
    """
    try:
        ids, is_answer, _ = tokens_of(sample, tokenizer)
    except TemplateError:
        return Row([], [])
    answered = [True] * len(ids) if "text" in sample else _ended(ids, is_answer, tokenizer)
    return Row(ids[:max_tokens], answered[:max_tokens])


def _ended(ids: Sequence[int], is_answer: Sequence[bool], tokenizer: Any) -> list[bool]:
    """Count what templates write after the token that ends an answer to what follows."""
    answered = []
    ended = False
    for token, mark in zip(ids, is_answer, strict=True):
        ended = ended and mark
        answered.append(mark and not ended)
        ended = ended or (mark and token == tokenizer.eos_token_id)
    return answered


def _opening(row: Mapping[str, Any], tokenizer: Any) -> list[int]:
    """The token that opens a text, where the tokenizer sets one; templates set it themselves."""
    first = row.get("text", row.get("prompt"))
    if first is None or (tokenizer.bos_token and first.startswith(tokenizer.bos_token)):
        return []
    opening: list[int] = tokenizer("")["input_ids"][:1]
    return opening if opening == [tokenizer.bos_token_id] else []


def _pieces(row: Mapping[str, Any], tokenizer: Any) -> Iterator[tuple[str, bool]]:
    """The sample's text in order, and which pieces are answers."""
    if "text" in row:
        yield row["text"], False
    elif "prompt" in row:
        yield row["prompt"], False
        if row.get("completion"):
            yield row["completion"], True
    elif tokenizer.chat_template is None:
        for turn in row["messages"]:
            yield f"{turn['role']}: {turn['content']}\n", turn["role"] == "assistant"
    else:
        yield from _templated(row["messages"], tokenizer)


def _templated(messages: Sequence[Mapping[str, str]], tokenizer: Any) -> Iterator[tuple[str, bool]]:
    """Split the templated conversation where answers begin and end.

    A template may write turns differently by what follows them, as those that
    leave out earlier thoughts do; then only the last answer is told apart.  Where
    even that is not the rest of what was asked, it counts as one text without answers.
    """
    answers = [
        number for number, turn in enumerate(messages) if number and turn["role"] == "assistant"
    ]  # what opens a conversation answers nothing
    whole = tokenizer.apply_chat_template(messages, tokenize=False)
    for among in (answers, answers[-1:]):
        pieces = _split(messages, among, whole, tokenizer)
        if pieces:
            yield from pieces
            return
    yield whole, False


def _split(
    messages: Sequence[Mapping[str, str]], answers: Sequence[int], whole: str, tokenizer: Any
) -> list[tuple[str, bool]]:
    """Cut `whole` at these answers; nothing where the template does not nest."""
    done = ""
    pieces = []
    for number in answers:
        asked = tokenizer.apply_chat_template(
            messages[:number], tokenize=False, add_generation_prompt=True
        )
        answered = tokenizer.apply_chat_template(messages[: number + 1], tokenize=False)
        if not (
            asked.startswith(done) and answered.startswith(asked) and whole.startswith(answered)
        ):
            return []
        pieces += [(asked[len(done) :], False), (answered[len(asked) :], True)]
        done = answered
    return [*pieces, (whole[len(done) :], False)]
