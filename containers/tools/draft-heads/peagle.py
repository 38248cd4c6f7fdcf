"""Trains a P-EAGLE head: EAGLE-3's layers, which propose all tokens in one pass.

Places that are not computed yet read a learned state and a token of their own.  Training takes
some of the places, by the library's way; measuring takes all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from eagle3 import Trainer, train_head
from library import PRIVATE
from packager_worker import Report, Spec


def train(spec: Spec, report: Report) -> dict[str, Any]:
    """Train, or go on with it; the figures are in `training.json`."""
    return train_head(spec, report, ParallelTrainer)


class ParallelTrainer(Trainer):
    """A head on its way whose proposals come at once."""

    method = "peagle"

    def _forward(self, batch: dict[str, torch.Tensor]) -> Any:
        asked = {**batch, "num_depths": self._proposals, "loss_config": self._loss}
        with self._rounding():
            if self._head.training:
                return self._head(**asked)
            length = batch["input_ids"].shape[1]
            with every_place(self._proposals), self._scores() as scores:
                _, loss, _ = self._head(**asked)
            starts = [sum(length - one for one in range(depth)) for depth in range(self._proposals)]
            tokens = [
                scores[0][:, start : start + length - depth].argmax(-1)
                for depth, start in enumerate(starts)
            ]
            padded = [torch.nn.functional.pad(one, (0, length - one.shape[1])) for one in tokens]
            return padded, loss, {f"loss_{at}_sum": loss for at in range(self._proposals)}

    @contextmanager
    def _scores(self) -> Iterator[list[torch.Tensor]]:
        """Keep what the head gives to each place."""
        found: list[torch.Tensor] = []
        hook = self._head.lm_head.register_forward_hook(lambda *one: found.append(one[2]))
        try:
            yield found
        finally:
            hook.remove()


@contextmanager
def every_place(proposals: int) -> Iterator[None]:
    """Have the library take each place at each depth, depth by depth."""

    def all_of(
        *, seq_length: int, loss_mask: torch.Tensor, **_: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        anchors = [torch.arange(seq_length - depth) for depth in range(proposals)]
        depths = [torch.full((len(one),), depth) for depth, one in enumerate(anchors)]
        return torch.cat(anchors).to(loss_mask.device), torch.cat(depths).to(loss_mask.device)

    place = ("speculators.models.peagle.core", "generate_cod_sample_indices")
    with PRIVATE.replaced(*place, all_of):
        yield
