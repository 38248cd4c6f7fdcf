"""Compares a candidate model with its base on the same texts.

Both models are loaded at once; each text passes through both, and only figures
are kept.  The noise floor compares the base with itself, computed in another
batch: a difference below it is none.

Parameters: `samples` (JSON lines), `max_tokens` of a text, `dtype` to compute
with, `noise_texts`, `prompts` and `answer_tokens` of the greedy answers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import torch
from conversations import tokens_of
from loading import load_model, load_tokenizer
from measures import Comparison, Generations
from packager_worker import BadInput, Rejected, Report, Spec, check_gpus


@dataclass(frozen=True)
class Text:
    """Token ids, which of them belong to a reference answer, and where that starts."""

    ids: torch.Tensor  # [T]
    is_answer: torch.Tensor  # [T], bool
    prompt: torch.Tensor  # ids up to the last answer; empty when there is none


def compare(spec: Spec, report: Report) -> dict[str, Any]:
    """Measure; the figures are the result, in `quality.json` too."""
    torch.manual_seed(0)
    check_gpus(spec.gpus, torch)
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
    for row in (spec.inputs["samples"] / "samples.jsonl").read_bytes().splitlines():
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
    end = getattr(model.config.get_text_config(), "eos_token_id", None)
    made = model.generate(
        batch, attention_mask=torch.ones_like(batch), max_new_tokens=tokens, do_sample=False,
        temperature=None, top_p=None, top_k=None, pad_token_id=end if isinstance(end, int) else 0,
    )  # fmt: skip
    return [int(token) for token in made[0, len(prompt) :]]


def _text(row: dict[str, Any], tokenizer: Any, most: int) -> Text:
    """Tokens of a sample. The template is the model's; prompts were templated already."""
    ids, is_answer, asked = tokens_of(row, tokenizer)
    return Text(
        ids=torch.tensor(ids[:most], dtype=torch.long),
        is_answer=torch.tensor(is_answer[:most], dtype=torch.bool),
        prompt=torch.tensor(ids[:asked] if asked < most else [], dtype=torch.long),
    )
