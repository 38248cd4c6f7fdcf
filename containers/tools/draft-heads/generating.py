"""Answers of a model to token ids, several at a time.

Likeliest tokens, or sampled ones by the Gumbel trick: the largest of the scores plus
noise of a certain shape is a draw from their softmax.  So each answer has a generator
of its own, and who is answered beside it draws nothing from that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from packager_worker import Rejected
from transformers import GenerationConfig, LogitsProcessor
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

STRETCH = 16  # tokens
DIVISIBLE = (DynamicLayer, DynamicSlidingWindowLayer)  # others keep states that are not selected


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One question."""

    ids: Sequence[int]
    most: int  # tokens of the answer
    seed: int  # of a sampled answer


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the model said."""

    ids: list[int]  # without the token that ends it
    ended: bool  # the model ended it


class Speaker:
    """A model that answers. Only its own ends count of how it is set to generate."""

    def __init__(self, model: Any, temperature: float) -> None:
        self._model = model
        self._temperature = temperature
        ends = model.generation_config.eos_token_id
        if ends is None:
            ends = model.config.get_text_config().eos_token_id
        self._ends = [] if ends is None else [ends] if isinstance(ends, int) else list(ends)
        # Penalties and the like would make answers that heads do not see when they are served.
        model.generation_config = GenerationConfig(
            eos_token_id=self._ends or None, pad_token_id=self._ends[0] if self._ends else 0
        )

    @torch.inference_mode()
    def answer(self, group: Sequence[Asked], beat: Callable[[int], None]) -> list[Answer]:
        """Answer some questions; `beat` is told now and then how many tokens there are.

        Who has ended is left out of the batch after each stretch: most answers are short.
        """
        known = self._model.get_input_embeddings().weight.shape[0]
        largest = max(max(asked.ids) for asked in group)
        if largest >= known:
            raise Rejected(f"the tokenizer gives token {largest}, the model knows {known}")
        ids, told = self._padded(group)
        noise = [_Noise(group, self._temperature, ids.device)] if self._temperature else []
        said: list[list[int]] = [[] for _ in group]
        on = list(range(len(group)))  # who goes on, by row of the batch
        cache = None
        while any(self._goes_on(said[who], group[who]) for who in on):
            most = max(group[who].most - len(said[who]) for who in on)
            made = self._model.generate(
                ids, attention_mask=told, past_key_values=cache, do_sample=False,
                max_new_tokens=min(STRETCH, most), logits_processor=noise,
                return_dict_in_generate=True,
            )  # fmt: skip
            ids, cache = made.sequences, made.past_key_values
            new = ids[:, told.shape[1] :]
            told = torch.cat((told, torch.ones_like(new)), 1)
            for who, tokens in zip(on, new.tolist(), strict=True):
                said[who] += tokens
            beat(sum(map(len, said)))
            if not all(type(layer) in DIVISIBLE for layer in cache.layers):
                continue
            rows = [row for row, who in enumerate(on) if self._goes_on(said[who], group[who])]
            on = [on[row] for row in rows]
            kept = torch.tensor(rows, dtype=torch.long, device=ids.device)
            ids, told = ids[kept], told[kept]
            cache.batch_select_indices(kept)
            for one in noise:
                one.keep(rows)
        return [self._cut(tokens, asked.most) for tokens, asked in zip(said, group, strict=True)]

    def _padded(self, group: Sequence[Asked]) -> tuple[torch.Tensor, torch.Tensor]:
        """Give questions as a batch in which all end where answers begin, and where they stand."""
        longest = max(len(asked.ids) for asked in group)
        ids = torch.full((len(group), longest), self._model.generation_config.pad_token_id)
        told = torch.zeros_like(ids)
        for number, asked in enumerate(group):
            ids[number, longest - len(asked.ids) :] = torch.tensor(asked.ids)
            told[number, longest - len(asked.ids) :] = 1
        return ids.to(self._model.device), told.to(self._model.device)

    def _goes_on(self, said: list[int], asked: Asked) -> bool:
        return len(said) < asked.most and not any(token in self._ends for token in said)

    def _cut(self, ids: list[int], most: int) -> Answer:
        """Leave out what was only written because others went on."""
        end = next((at for at, token in enumerate(ids[:most]) if token in self._ends), None)
        return Answer(ids=ids[: most if end is None else end], ended=end is not None)


class _Noise(LogitsProcessor):
    """Turns the likeliest token into a sampled one."""

    def __init__(self, group: Sequence[Asked], temperature: float, device: torch.device) -> None:
        self._temperature = temperature
        self._drawing = [torch.Generator(device).manual_seed(asked.seed) for asked in group]

    def __call__(self, _: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        drawn = torch.empty_like(scores)
        for row, drawing in zip(drawn, self._drawing, strict=True):
            row.exponential_(generator=drawing)
        return scores / self._temperature - drawn.log()

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with some rows of the batch."""
        self._drawing = [self._drawing[row] for row in rows]
