"""Trains an EAGLE-3 head: speculators' head, unrolling, loss and packing in a loop of ours.

The library's own trainer needs an accelerator and goes on where an epoch ended,
with optimizer states rounded to bfloat16.  This loop keeps all that there is, so
that a run that was interrupted gives the bytes of one that was not.

Parameters: `max_tokens`, `seed`, `dtype`, `speculative_tokens` (steps that the
head is unrolled for), `layers`, `aux_layers`, `draft_vocab_size`, `epochs`,
`max_steps`, `learning_rate`, `batch_tokens`, and for trying that out `save_every_s`.
"""

from __future__ import annotations

import gc
import json
import math
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from eagle3_heads import given_head, new_head, write_head
from figures import Tally
from figures import report as figures
from hidden import Texts, compute_states, foretold
from keeping import Best, Checkpoints, Pace, job_of, measured_after
from loading import device_for, load_model, load_tokenizer
from packager_worker import Rejected, Report, Spec
from rows import Row, check_ids, load_both
from speculators.losses import resolve_loss_config
from speculators.models.eagle3 import Eagle3DraftModel, shift_batch
from speculators.train.data import CollateFn
from speculators.train.distributed_batch_sampler import MultipackDistributedBatchSamplerV2
from transformers import get_linear_schedule_with_warmup

PACK = 512  # tokens that pass through the head at once: attention grows with its square
WEIGHT_DECAY, LARGEST_GRADIENT, WARMUP = 0.01, 1.0, 0.01  # as speculators' trainer has them
BLOCK = 128  # of flex attention's masks
SAVE_EVERY_S = 5.0
DIVERGED = ("the training diverged", "ask for a lower learning rate")

Pack = Sequence[int]  # texts by number


def train(spec: Spec, report: Report) -> dict[str, Any]:
    """Train, or go on with it; the figures are in `training.json`."""
    return train_head(spec, report, Trainer)


def train_head(spec: Spec, report: Report, kind: type[Trainer]) -> dict[str, Any]:
    """Train a head of EAGLE-3's layers."""
    asked = {**spec.parameters, "aux_layers": sorted(set(spec.parameters["aux_layers"]))}
    _be_deterministic(asked["seed"])
    model = spec.inputs["model"]
    tokenizer = load_tokenizer(model)
    rows, held_out = load_both(spec.inputs["samples"], tokenizer, asked["max_tokens"])
    if not any(any(foretold(row)) for row in rows):
        raise Rejected("no training text has two answered tokens in a row", "give longer answers")
    job = job_of(spec, rows, held_out)
    texts, measured, norm = _read_texts(spec, asked, spec.work / job[:16], rows, held_out, report)
    attention = "simple_flex_attention" if spec.gpus else "sdpa"
    with report.busy("making the head"):
        if "head" in spec.inputs:
            head = given_head(spec.inputs["head"], model, asked, attention)
        else:
            head = new_head(model, asked, rows, attention, tokenizer)
        _take_norm(head, norm)
        _check_rebuilt(head, measured)
    trainer = kind(head.float().to(device_for(spec.gpus)), texts, asked, gpus=spec.gpus)
    checkpoints = Checkpoints(spec.work / "checkpoints", job)
    if kept := checkpoints.load():
        trainer.restore(*kept)
        report.note(f"continues at step {trainer.step} of {len(trainer.steps)}")
    else:
        trainer.before = trainer.measure(measured, held_out, report)
        trainer.offer(trainer.before)
    trainer.run(checkpoints, report, lambda: trainer.measure(measured, held_out, report))
    head.load_state_dict(trainer.best.weights, strict=False)
    with torch.no_grad():
        for value in head.parameters():  # what is measured is what is written
            value.copy_(value.to(torch.bfloat16))
    after = trainer.measure(measured, held_out, report)
    if not math.isfinite(after.loss):
        raise Rejected(*DIVERGED)
    write_head(head, spec.output)
    told = figures(
        kind.method, rows=rows, held_out=held_out, epochs=trainer.epochs, steps=trainer.step,
        before=trainer.before, after=after, kept=trainer.best.step,
    )  # fmt: skip
    (spec.output / "training.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return told


class Trainer:
    """A head on its way: where it is, and all that the next step depends on."""

    method = "eagle3"

    def __init__(
        self, head: Eagle3DraftModel, texts: Texts, asked: dict[str, Any], *, gpus: int
    ) -> None:
        self._head = head
        self._texts = texts
        self._proposals: int = asked["speculative_tokens"]
        self._save_every_s: float = asked.get("save_every_s", SAVE_EVERY_S)
        self._gpus = gpus
        self._pack = self._padded(max(texts.max_len, min(PACK, asked["batch_tokens"])))
        per_step = max(1, asked["batch_tokens"] // self._pack)
        epochs = (self._packs(asked["seed"], epoch) for epoch in range(asked["epochs"]))
        steps = (
            packs[at : at + per_step] for packs in epochs for at in range(0, len(packs), per_step)
        )
        self.steps: list[list[Pack]] = list(islice(steps, asked["max_steps"] or None))
        seen = sum(len(pack) for packs in self.steps for pack in packs)
        self.epochs = round(seen / len(texts), 3)
        self.step = 0
        self.before = Tally()
        self.best = Best()
        trained = [value for value in head.parameters() if value.requires_grad]
        self._optimizer = torch.optim.AdamW(
            trained, lr=asked["learning_rate"], weight_decay=WEIGHT_DECAY
        )
        self._schedule = get_linear_schedule_with_warmup(
            self._optimizer, int(len(self.steps) * WARMUP), len(self.steps)
        )
        self._loss = resolve_loss_config("kl_div", "fused" if gpus else "eager")

    def offer(self, tally: Tally) -> None:
        """Keep the head as it is, if it is the best one so far."""
        trained = ((name, one) for name, one in self._head.named_parameters() if one.requires_grad)
        self.best.offer(self.step, tally, trained)

    def run(self, checkpoints: Checkpoints, report: Report, measure: Callable[[], Tally]) -> None:
        """Do what steps there are left; the best head is measured for."""
        self._head.train()
        marks = measured_after(len(self.steps))
        pace = Pace(self._save_every_s)
        while self.step < len(self.steps):
            loss = self._optimize(self.steps[self.step])
            if not math.isfinite(loss):
                raise Rejected(*DIVERGED)
            self.step += 1
            report.progress(f"training, loss {loss:.3f}", self.step, len(self.steps))
            if self.step in marks:
                self.offer(measure())
                self._head.train()
            if pace.due and self.step < len(self.steps):
                with pace.saving():
                    checkpoints.save(self.step, self.state())

    def state(self) -> dict[str, Any]:
        """Give all that changes."""
        return {
            "head": self._head.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "schedule": self._schedule.state_dict(),
            "random": torch.get_rng_state(),
            "before": asdict(self.before),
            "best": self.best.state(),
        }

    def restore(self, step: int, state: dict[str, Any]) -> None:
        """Be where `state` was."""
        self._head.load_state_dict(state["head"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._schedule.load_state_dict(state["schedule"])
        torch.set_rng_state(state["random"])
        self.before = Tally(**state["before"])
        self.best = Best(state["best"])
        self.step = step

    @torch.no_grad()
    def measure(self, texts: Texts, rows: Sequence[Row], report: Report) -> Tally:
        """Measure on texts one by one: nothing of one reaches another."""
        self._head.eval()
        tally = Tally()
        for number in range(len(rows)):
            report.progress("measuring", number, len(rows))
            length = len(rows[number].ids) - 1
            batch = self._batch(texts, [number], self._padded(length))
            tokens, _, told = self._forward(batch)
            mask = batch["loss_mask"][0, :length].bool().cpu()
            choices = texts.choices(number)[1:]
            tally.add(
                **self._compared([one[0, :length].cpu() for one in tokens], choices, mask, told)
            )
        if not tally.positions:
            raise Rejected(
                f"no held-out answer is longer than the {self._proposals} tokens that are proposed",
                "give more samples, or let more tokens of each in",
            )
        return tally

    def _compared(
        self,
        proposed: Sequence[torch.Tensor],
        choices: torch.Tensor,
        mask: torch.Tensor,
        told: dict[str, torch.Tensor],
    ) -> dict[str, Any]:
        """Hold the proposals of a text against the model's choices, which may be any token."""
        last = self._proposals - 1
        size = max(0, len(mask) - last)
        counted = torch.stack([mask[at : at + size] for at in range(last + 1)]).all(0)
        right = counted
        accepted = []
        for at, tokens in enumerate(proposed):
            right = right & (self._named(tokens)[:size] == choices[at : at + size])
            accepted.append(int(right.sum()))
        counts = [int(mask[at:].sum()) for at in range(last + 1)]
        sums = [float(told[f"loss_{at}_sum"]) * count for at, count in enumerate(counts)]
        return {
            "positions": int(counted.sum()),
            "accepted": accepted,
            "loss_sums": sums,
            "loss_counts": counts,
        }

    def _named(self, tokens: torch.Tensor) -> torch.Tensor:
        """Give the model's names of tokens of the head's own vocabulary."""
        d2t = self._head.d2t
        return tokens if d2t is None else tokens + d2t.cpu()[tokens]

    def _optimize(self, packs: Sequence[Pack]) -> float:
        """Take one step with the mean over all tokens of these packs."""
        batches = [self._batch(self._texts, pack, self._pack) for pack in packs]
        counts = [int(batch["loss_mask"].sum()) for batch in batches]
        whole = 0.0
        for batch, count in zip(batches, counts, strict=True):
            _, loss, _ = self._forward(batch)
            part = loss * (count / max(1, sum(counts)))
            part.backward()
            whole += float(part.detach())
        torch.nn.utils.clip_grad_norm_(self._head.parameters(), LARGEST_GRADIENT)
        self._optimizer.step()
        self._schedule.step()
        self._optimizer.zero_grad()
        return whole / self._proposals

    def _forward(self, batch: dict[str, torch.Tensor]) -> Any:
        with self._rounding():
            return self._head(**batch, ttt_steps=self._proposals, loss_config=self._loss)

    def _rounding(self) -> Any:
        return torch.autocast("cuda", torch.bfloat16) if self._gpus else nullcontext()

    def _padded(self, length: int) -> int:
        """Round up to whole blocks where the library masks by blocks, and to all proposals."""
        longer = max(length, self._proposals)
        return -(-longer // BLOCK) * BLOCK if self._gpus else longer

    def _batch(self, texts: Texts, pack: Pack, size: int) -> dict[str, torch.Tensor]:
        """Put texts one after another, padded to `size` tokens."""
        items = [texts[number] for number in pack]
        collate = CollateFn(
            size, self._head.hidden_size, dtype=torch.float32, preprocess=shift_batch
        )
        device = self._head.device
        return {
            name: value.to(device)
            for name, value in collate(items).items()
            if isinstance(value, torch.Tensor)
        }

    def _packs(self, seed: int, epoch: int) -> list[Pack]:
        """Give the packs of an epoch: texts shuffled, as many as fit."""
        sampler = MultipackDistributedBatchSamplerV2(
            self._pack, self._texts.approx_lengths, num_replicas=1, rank=0, seed=seed
        )
        sampler.set_epoch(epoch)
        return [[int(number) for number in pack] for pack in sampler]


def _read_texts(
    spec: Spec,
    asked: dict[str, Any],
    place: Path,
    rows: list[Row],
    held_out: list[Row],
    report: Report,
) -> tuple[Texts, Texts, torch.Tensor | None]:
    """Have both sets read by the model, which is needed for its last norm besides."""
    with report.busy("loading the model"):
        model = load_model(spec.inputs["model"], asked["dtype"], spec.gpus)
    check_ids([*rows, *held_out], model.get_input_embeddings().weight.shape[0])
    made = []
    for what, some in (("training", rows), ("held-out", held_out)):
        files = compute_states(model, some, asked["aux_layers"], place / what, report, what)
        made.append(Texts(some, files, max(len(row.ids) for row in some)))
    norm = _scales(model)
    del model
    gc.collect()
    return made[0], made[1], norm


@torch.no_grad()
def _scales(model: Any) -> torch.Tensor | None:
    """Give what the model's last norm multiplies with: some add 1 to the numbers they store."""
    norm = getattr(model.get_decoder(), "norm", None)
    if norm is None or getattr(norm, "weight", None) is None:
        return None
    ones = torch.ones_like(norm.weight)[None]
    return norm(ones)[0].float().cpu()


@torch.no_grad()
def _take_norm(head: Eagle3DraftModel, scales: torch.Tensor | None) -> None:
    """Have the library's norm, which is Llama's, multiply with the same."""
    own = head.verifier_norm.weight
    fits = scales is not None and scales.shape == own.shape
    if scales is not None and fits and (scales - own.float().cpu()).abs().max() > 0.01:
        own.copy_(scales)


@torch.no_grad()
def _check_rebuilt(head: Eagle3DraftModel, texts: Texts) -> None:
    """Refuse a model whose choices the library cannot make again from its last layer.

    It takes the last norm to be Llama's, and scores to be what `lm_head` gives.
    """
    states = texts[0]["verifier_last_hidden_states"].float()
    found = head.verifier_lm_head(head.verifier_norm(states)).argmax(-1)
    meant = texts.choices(0)
    if head.t2d is not None:
        found = found + head.d2t[found]
        known = head.t2d[meant.long()]
        found, meant = found[known], meant[known]
    if len(meant) and (found == meant).float().mean() < 0.9:  # equal but for ties
        raise Rejected(
            "speculators cannot train a head for this model: it does not find the model's "
            "choices in the last layer's states",
            "train Medusa heads",
        )


def _be_deterministic(seed: int) -> None:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True, warn_only=True)
