"""Compares a candidate model with its base on the same texts.

Both models are loaded at once; each text passes through both, and only figures
are kept.  The noise floor compares the base with itself, computed in another
batch: a difference below it is none.

Parameters: `samples` (JSON lines), `max_tokens` of a text, `dtype` to compute
with, `noise_texts`, `prompts` and `answer_tokens` of the greedy answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from loading import load_model, load_tokenizer
from measures import Comparison, Generations
from packager_worker import BadInput, Rejected, Report, Spec


@dataclass(frozen=True)
class Text:
    """Token ids, which of them belong to a reference answer, and where that starts."""

    ids: torch.Tensor  # [T]
    is_answer: torch.Tensor  # [T], bool
    prompt: torch.Tensor  # ids up to the last answer; empty when there is none


def compare(spec: Spec, report: Report) -> dict[str, Any]:
    """Measure; the figures are the result, in `quality.json` too."""
    torch.manual_seed(0)
    asked = spec.parameters
    texts = _read_texts(spec)
    with report.busy("loading the base"):
        base = load_model(spec.inputs["base"], "base", asked["dtype"], spec.gpus)
    with report.busy("loading the candidate"):
        candidate = load_model(spec.inputs["candidate"], "candidate", asked["dtype"], spec.gpus)
    sizes = [model.get_output_embeddings().weight.shape[0] for model in (base, candidate)]
    if sizes[0] != sizes[1]:
        raise Rejected(f"base and candidate have vocabularies of {sizes[0]} and {sizes[1]} tokens")
    _check_ids(texts, sizes[0])

    comparison, noise = Comparison(), Comparison()
    for number, text in enumerate(texts):
        report.progress("comparing", number, len(texts))
        told = _logits(base, "base", text.ids)
        theirs = _logits(candidate, "candidate", text.ids)
        comparison.add(told, theirs, text.ids[1:], text.is_answer[1:])
        if number < asked["noise_texts"]:
            again = _logits(base, "base", text.ids, beside=True)
            noise.add(told, again, text.ids[1:], text.is_answer[1:])
    generations = Generations()
    prompts = [text.prompt for text in texts if len(text.prompt)][: asked["prompts"]]
    for number, prompt in enumerate(prompts):
        report.progress("answering", number, len(prompts))
        answers = (_answer(model, prompt, asked["answer_tokens"]) for model in (base, candidate))
        generations.add(*answers)
    figures = {
        "quality": comparison.report(),
        "noise": noise.report() if asked["noise_texts"] else None,
        "generation": generations.report() if prompts else None,
    }
    (spec.output / "quality.json").write_text(json.dumps(figures, indent=1), encoding="utf-8")
    return figures


def _read_texts(spec: Spec) -> list[Text]:
    """Tokenize the samples; figures mean nothing where base and candidate read other tokens."""
    base = load_tokenizer(spec.inputs["base"], "base")
    candidate = load_tokenizer(spec.inputs["candidate"], "candidate")
    most = spec.parameters["max_tokens"]
    texts = []
    for row in (spec.inputs["samples"] / "samples.jsonl").read_text(encoding="utf-8").splitlines():
        text = _text(json.loads(row), base, most)
        if not torch.equal(text.ids, _text(json.loads(row), candidate, most).ids):
            raise Rejected("base and candidate have different tokenizers")
        if len(text.ids) > 1:
            texts.append(text)
    if not texts:
        raise BadInput("no sample has two tokens or more")
    return texts


def _check_ids(texts: list[Text], size: int) -> None:
    largest = max(int(text.ids.max()) for text in texts)
    if largest >= size:
        raise Rejected(f"the tokenizer gives token {largest}, the models know {size}")


@torch.no_grad()
def _logits(model: Any, role: str, ids: torch.Tensor, *, beside: bool = False) -> torch.Tensor:
    """Logits for every token but the first, `[T-1, V]`; `beside` computes in a batch of two."""
    batch = ids[None].to(model.device)
    if beside:
        batch = torch.cat((batch, batch.flip(-1)))
    logits = model(batch).logits[0, :-1].cpu()
    if logits.isnan().any():
        raise Rejected(f"the {role} computes what is no number", "its weights are broken")
    return logits


@torch.no_grad()
def _answer(model: Any, prompt: torch.Tensor, tokens: int) -> list[int]:
    batch = prompt[None].to(model.device)
    made = model.generate(
        batch, attention_mask=torch.ones_like(batch), max_new_tokens=tokens, do_sample=False,
        temperature=None, top_p=None, top_k=None, pad_token_id=model.config.eos_token_id
        if isinstance(model.config.eos_token_id, int) else 0,
    )  # fmt: skip
    return [int(token) for token in made[0, len(prompt) :]]


def _text(row: dict[str, Any], tokenizer: Any, most: int) -> Text:
    """Tokens of a sample. The template is the model's; prompts were templated already."""
    pieces = list(_pieces(row, tokenizer))
    ids: list[int] = _beginning(row, tokenizer)
    marks = [False] * len(ids)
    start = 0
    for piece, is_answer in pieces:
        tokens = tokenizer(piece, add_special_tokens=False)["input_ids"]
        if is_answer:
            start = len(ids)
        ids += tokens
        marks += [is_answer] * len(tokens)
    has_prompt = any(is_answer for _, is_answer in pieces) and 0 < start < most
    return Text(
        ids=torch.tensor(ids[:most], dtype=torch.long),
        is_answer=torch.tensor(marks[:most], dtype=torch.bool),
        prompt=torch.tensor(ids[:start] if has_prompt else [], dtype=torch.long),
    )


def _beginning(row: dict[str, Any], tokenizer: Any) -> list[int]:
    """The token that opens a text, where the tokenizer sets one; templates set it themselves."""
    first = row.get("text", row.get("prompt"))
    if first is None or (tokenizer.bos_token and first.startswith(tokenizer.bos_token)):
        return []
    opening = tokenizer("")["input_ids"][:1]
    return opening if opening == [tokenizer.bos_token_id] else []


def _pieces(row: dict[str, Any], tokenizer: Any) -> Iterator[tuple[str, bool]]:
    """The sample's text in order, and which pieces are reference answers."""
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


def _templated(messages: list[dict[str, str]], tokenizer: Any) -> Iterator[tuple[str, bool]]:
    """Split the templated conversation where answers begin and end.

    A template may write turns differently by what follows them; then the parts
    do not add up, and the conversation counts as one text without answers.
    """
    whole = tokenizer.apply_chat_template(messages, tokenize=False)
    done = ""
    pieces = []
    for number, turn in enumerate(messages):
        if turn["role"] != "assistant":
            continue
        asked = tokenizer.apply_chat_template(
            messages[:number], tokenize=False, add_generation_prompt=True
        )
        answered = tokenizer.apply_chat_template(messages[: number + 1], tokenize=False)
        if not (
            asked.startswith(done) and answered.startswith(asked) and whole.startswith(answered)
        ):
            yield whole, False
            return
        pieces += [(asked[len(done) :], False), (answered[len(asked) :], True)]
        done = answered
    yield from (*pieces, (whole[len(done) :], False))
