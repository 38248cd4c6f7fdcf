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

import json
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


def question_of(
    messages: Sequence[Mapping[str, Any]], tokenizer: Any, row: Mapping[str, Any] | None = None
) -> list[int]:
    """Tokenize a conversation up to where its next answer begins; raises `TemplateError`.

    `row` is the sample that it is of: it may have tools and other arguments of the template.
    """
    if tokenizer.chat_template is None:
        return _sent("".join(map(_turn, messages)) + "assistant:", tokenizer)
    asked = _rendered(messages, tokenizer, row or {}, add_generation_prompt=True)
    return _plain(asked, tokenizer)


class Row(NamedTuple):
    """What a head is trained on: one text, and which of its tokens a model would have written."""

    ids: list[int]
    answered: list[bool]  # as long as `ids`


def to_rows(sample: Mapping[str, Any], tokenizer: Any, max_tokens: int) -> list[Row]:
    """Tokenize one sample and cut it. All of a plain text counts as the model's own.

    Templates that write an answer otherwise once another turn follows, without its reasoning or
    with another end, give one row for each answer: what the model read there, and what it wrote.
    """
    ids, is_answer, _ = tokens_of(sample, tokenizer)
    if "text" in sample:
        return [Row(ids[:max_tokens], [True] * len(ids[:max_tokens]))]
    found = [(ids, is_answer)]
    answers = _answers(sample.get("messages", ()))
    if len(answers) > 1 and tokenizer.chat_template is not None and not _nests(sample, tokenizer):
        found = []
        for number in answers:
            some = {**sample, "messages": sample["messages"][: number + 1]}
            ids, is_answer, asked = tokens_of(some, tokenizer)
            found.append((ids, [mark and at >= asked for at, mark in enumerate(is_answer)]))
    rows = ((ids, _ended(ids, is_answer, tokenizer)) for ids, is_answer in found)
    return [Row(ids[:max_tokens], answered[:max_tokens]) for ids, answered in rows]


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
        yield from _templated(row, tokenizer)


def _turn(turn: Mapping[str, Any]) -> str:
    """Write a turn for a model without a template."""
    return f"{turn['role']}: {turn['content']}\n"


def _answers(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """Number the answers; what opens a conversation answers nothing."""
    return [number for number, turn in enumerate(messages) if number and _is_answer(turn)]


def _is_answer(turn: Mapping[str, Any]) -> bool:
    return bool(turn["role"] == "assistant")


def _nests(row: Mapping[str, Any], tokenizer: Any) -> bool:
    """Check whether all answers stand in the whole conversation as the model wrote them."""
    messages = row["messages"]
    try:
        whole = _rendered(messages, tokenizer, row)
        return bool(_split(messages, _answers(messages), whole, tokenizer, row))
    except TemplateError:
        return False


def _templated(row: Mapping[str, Any], tokenizer: Any) -> Iterator[tuple[str, bool]]:
    """Split the templated conversation where answers begin and end.

    A template may write turns differently by what follows them, as those that
    leave out earlier thoughts do; then only the last answer is told apart.  Where
    even that is not the rest of what was asked, it counts as one text without answers.
    """
    messages = row["messages"]
    answers = _answers(messages)
    whole = _rendered(messages, tokenizer, row)
    for among in (answers, answers[-1:]):
        pieces = _split(messages, among, whole, tokenizer, row)
        if pieces:
            yield from pieces
            return
    yield whole, False


def _split(
    messages: Sequence[Mapping[str, Any]],
    answers: Sequence[int],
    whole: str,
    tokenizer: Any,
    row: Mapping[str, Any],
) -> list[tuple[str, bool]]:
    """Cut `whole` at these answers; nothing where the template does not nest.

    An answer whose reasoning the template leaves out is none that the model wrote.
    """
    done = ""
    pieces = []
    for number in answers:
        asked = _rendered(messages[:number], tokenizer, row, add_generation_prompt=True)
        answered = _rendered(messages[: number + 1], tokenizer, row)
        said = answered[len(asked) :]
        if not (
            asked.startswith(done) and answered.startswith(asked) and whole.startswith(answered)
        ) or not _reasons(messages[number], said):
            return []
        pieces += [(asked[len(done) :], False), (said, True)]
        done = answered
    return [*pieces, (whole[len(done) :], False)]


def _reasons(turn: Mapping[str, Any], said: str) -> bool:
    return str(turn.get("reasoning", "")).strip() in said


def _rendered(
    messages: Sequence[Mapping[str, Any]], tokenizer: Any, row: Mapping[str, Any], **more: Any
) -> str:
    """Apply the template as an engine does: calls and tools are objects, not JSON texts."""
    if "tools" in row:
        more["tools"] = json.loads(row["tools"])
    told = json.loads(row.get("template", "{}"))
    turns = [_for_template(turn) for turn in messages]
    text: str = tokenizer.apply_chat_template(turns, tokenize=False, **{**told, **more})
    return text


def _for_template(turn: Mapping[str, Any]) -> dict[str, Any]:
    told = dict(turn)
    if "tool_calls" in told:
        told["tool_calls"] = json.loads(told["tool_calls"])
    if "reasoning" in told:  # as templates have called it
        told |= {"reasoning_content": told["reasoning"], "thinking": told["reasoning"]}
    return told
