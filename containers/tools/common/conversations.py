"""Samples as tokens, and which of them the model answered. Needs a tokenizer and what it runs on.

Rows are those of `packager.core.samples.Sample.row()`: a conversation, a prompt
with or without its completion, or a plain text.  Only conversations get the
model's template: a prompt was templated by whoever sent it.

Calibration, evaluation and training read all rows by `tokens_of`, so that they see
the tokens that an engine would.  vLLM tokenizes what `/v1/completions` is sent with
the tokenizer's special tokens (BOS, CLS, SEP, EOS as it sets them), and a templated
conversation without: the template writes those itself.
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
    """Tokenize a sample so that no token is half question, half answer.

    An answer has the tokens that it has behind the question; where a token would hold of both,
    those that it has alone.  A conversation that the template refuses, as some do without a
    question first, has no tokens.
    """
    writes_special = "messages" in row and tokenizer.chat_template is not None
    text = ""
    asked = 0
    ids: list[int] = []
    marks: list[bool] = []
    before: list[int] = []
    try:
        for piece, is_answer in _pieces(row, tokenizer):
            text += piece
            whole = _plain(text, tokenizer)
            if not ids and not writes_special:
                tokens = _sent(piece, tokenizer)
            elif whole[: len(before)] == before:
                tokens = whole[len(before) :]
            else:
                tokens = _plain(piece, tokenizer)
            if is_answer:
                asked = len(ids)
            ids += tokens
            marks += [is_answer] * len(tokens)
            before = whole
    except TemplateError:
        return Tokens([], [], 0)
    return Tokens(ids, marks, asked)


def question_of(messages: Sequence[Mapping[str, str]], tokenizer: Any) -> list[int]:
    """Tokenize a conversation up to where its next answer begins; raises `TemplateError`."""
    if tokenizer.chat_template is None:
        return _sent("".join(map(_turn, messages)) + "assistant:", tokenizer)
    asked = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return _plain(asked, tokenizer)


class Row(NamedTuple):
    """What a head is trained on: one text, and which of its tokens a model would have written."""

    ids: list[int]
    answered: list[bool]  # as long as `ids`


def to_row(sample: Mapping[str, Any], tokenizer: Any, max_tokens: int) -> Row:
    """Tokenize one sample and cut it. All of a plain text counts as the model's own."""
    ids, is_answer, _ = tokens_of(sample, tokenizer)
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


def _plain(text: str, tokenizer: Any) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def _sent(text: str, tokenizer: Any) -> list[int]:
    """Tokenize a text with the tokenizer's special tokens; BOS once where the text has it, too."""
    ids: list[int] = tokenizer(text)["input_ids"]
    plain = _plain(text, tokenizer)
    is_doubled = (
        plain[:1] == [tokenizer.bos_token_id] and ids[: len(plain) + 1] == plain[:1] + plain
    )
    return ids[1:] if is_doubled else ids


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
            yield _turn(turn), turn["role"] == "assistant"
    else:
        yield from _templated(row["messages"], tokenizer)


def _turn(turn: Mapping[str, str]) -> str:
    """Write a turn for a model without a template."""
    return f"{turn['role']}: {turn['content']}\n"


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
