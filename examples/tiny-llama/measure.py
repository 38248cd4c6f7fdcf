"""Held-out scores of a saved model: perplexity, bits per byte and greedy answers.

Documents are scored in windows of the full context, each starting cold, so the figures are a
little worse than a sliding window would give and need no choice of stride.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from corpus import Corpus
from tokenizer import encode
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

ANSWER_TOKENS = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What a model made of a set of documents."""

    tokens: int
    text_bytes: int
    nats: float  # summed over tokens
    greedy: torch.Tensor  # the token the model would have chosen at each scored place

    @property
    def perplexity(self) -> float:
        return math.exp(self.nats / self.tokens)

    @property
    def bits_per_byte(self) -> float:
        return self.nats / math.log(2) / self.text_bytes


def score_held_out(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, corpus: Corpus
) -> dict[str, Score]:
    sources, chats = encode(corpus, tokenizer)
    source_bytes = sum(len(source.text.encode()) for source in corpus.sources)
    chat_bytes = sum(len(m["content"].encode()) for chat in corpus.chats for m in chat)
    return {
        "sources": score(model, sources, source_bytes),
        "chats": score(model, chats, chat_bytes),
    }


def describe(scores: dict[str, Score]) -> dict[str, float]:
    sources, chats = scores["sources"], scores["chats"]
    return {
        "held_out_tokens": sources.tokens,
        "perplexity": round(sources.perplexity, 2),
        "bits_per_byte": round(sources.bits_per_byte, 3),
        "chat_tokens": chats.tokens,
        "chat_perplexity": round(chats.perplexity, 2),
        "chat_bits_per_byte": round(chats.bits_per_byte, 3),
    }


@torch.inference_mode()
def score(model: LlamaForCausalLM, documents: Iterable[list[int]], text_bytes: int) -> Score:
    """Score every token of each document except its first, which is given."""
    nats, greedy = 0.0, []
    context = model.config.max_position_embeddings
    for ids in documents:
        for start in range(0, len(ids) - 1, context):
            window = torch.tensor(ids[start : start + context + 1])
            logits = model(input_ids=window[None, :-1]).logits[0].float()
            nats += torch.nn.functional.cross_entropy(logits, window[1:], reduction="sum").item()
            greedy.append(logits.argmax(-1))
    choices = torch.cat(greedy)
    return Score(tokens=len(choices), text_bytes=text_bytes, nats=nats, greedy=choices)


def agreement(model: Score, draft: Score) -> float:
    """The share of places where both would choose the same token: a draft's odds of acceptance."""
    return (model.greedy == draft.greedy).float().mean().item()


@torch.inference_mode()
def answer(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, question: str) -> str:
    """Answer greedily, as a server at temperature 0 would."""
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    output = model.generate(**prompt, max_new_tokens=ANSWER_TOKENS, do_sample=False)
    return tokenizer.decode(output[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)
