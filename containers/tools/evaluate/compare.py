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
from pathlib import Path
from typing import Any

import torch
from measures import Comparison, Generations
from packager_worker import BadInput, Rejected, Report, Spec
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer


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
    tokenizer = _tokenizer(spec.inputs["base"], spec.inputs["candidate"])
    rows = (spec.inputs["samples"] / "samples.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [_text(json.loads(row), tokenizer, asked["max_tokens"]) for row in rows]
    texts = [text for text in texts if len(text.ids) > 1]
    if not texts:
        raise BadInput("no sample has two tokens or more")
    with report.busy("loading the base"):
        base = _load(spec.inputs["base"], asked["dtype"], spec.gpus)
    with report.busy("loading the candidate"):
        candidate = _load(spec.inputs["candidate"], asked["dtype"], spec.gpus)
    if (
        base.get_output_embeddings().weight.shape[0]
        != candidate.get_output_embeddings().weight.shape[0]
    ):
        raise Rejected("base and candidate have vocabularies of different sizes")

    comparison, noise = Comparison(), Comparison()
    for number, text in enumerate(texts):
        report.progress("comparing", number, len(texts))
        told = _logits(base, text.ids)
        comparison.add(told, _logits(candidate, text.ids), text.ids[1:], text.is_answer[1:])
        if number < asked["noise_texts"]:
            again = _logits(base, text.ids, beside=True)
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


def _tokenizer(base: Path, candidate: Path) -> Any:
    """The base's tokenizer; figures mean nothing where the candidate's is another."""
    ours = AutoTokenizer.from_pretrained(base)
    if ours.get_vocab() != AutoTokenizer.from_pretrained(candidate).get_vocab():
        raise Rejected("base and candidate have different tokenizers")
    return ours


def _load(place: Path, dtype: str, gpus: int) -> Any:
    AutoConfig.from_pretrained(place)  # says what is wrong with a configuration before weights
    model = AutoModelForCausalLM.from_pretrained(
        place, dtype=getattr(torch, dtype), trust_remote_code=False
    )
    return model.eval().to("cuda" if gpus else "cpu")


@torch.no_grad()
def _logits(model: Any, ids: torch.Tensor, *, beside: bool = False) -> torch.Tensor:
    """Logits for every token but the first, `[T-1, V]`; `beside` computes in a batch of two."""
    batch = ids[None].to(model.device)
    if beside:
        batch = torch.cat((batch, batch.flip(-1)))
    return model(batch).logits[0, :-1].cpu()


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
    ids: list[int] = []
    marks: list[bool] = []
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
