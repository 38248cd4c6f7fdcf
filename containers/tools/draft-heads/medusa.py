"""Trains Medusa heads on the model's last hidden states; the model itself stays as it is.

What head k is to say at a position is the model's own choice, the likeliest token,
for the place k + 2 further on in the recorded text.  Where the texts are the model's
greedy answers, these are the recorded tokens.

The pace is told by steps, never by the clock, and the order of positions follows from
seed and epoch: a run that goes on from a checkpoint gives the same bytes as one that
was never interrupted.

Parameters: `max_tokens`, `seed`, `dtype` to compute with, `speculative_tokens` (heads),
`layers` of each, `epochs`, `max_steps` (0: no limit), `learning_rate`, `batch_tokens`
(positions of a step), and for trying that out `save_every_s`.  The method is that of
Medusa-1 (arXiv 2401.10774).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from figures import Tally
from figures import report as report_figures
from keeping import Best, Checkpoints, Pace, job_of, measured_after
from loading import device_for, load_model, load_tokenizer
from medusa_heads import Heads, take_over, write
from packager_worker import Rejected, Report, Spec
from rows import check_ids, load_both
from states import LOGITS, NOTHING, Batch, States, check_last_states, compute_states
from torch.nn.functional import cross_entropy

SAVE_EVERY_S = 5.0
MEASURED = 1024  # positions at a time
FURTHER = 0.8  # how much less each further head counts: it is heard only after those before
WARM_UP = 0.05  # of all steps


def train(spec: Spec, report: Report) -> dict[str, Any]:
    """Train and write the heads; the figures are in `training.json` too."""
    asked = spec.parameters
    torch.use_deterministic_algorithms(True, warn_only=True)
    tokenizer = load_tokenizer(spec.inputs["model"])
    rows, held_out = load_both(spec.inputs["samples"], tokenizer, asked["max_tokens"])
    job = job_of(spec, rows, held_out)
    with report.busy("loading the model"):
        model = load_model(spec.inputs["model"], asked["dtype"], spec.gpus)
    check_ids((*rows, *held_out), len(model.get_output_embeddings().weight))
    check_last_states(model, rows[0])
    heads = _begin(spec, model, report)
    place = spec.work / job[:16]
    there = compute_states(model, rows, heads.count, place / "training", report, "training")
    measured = compute_states(model, held_out, heads.count, place / "held-out", report, "held-out")
    del model
    for states, which in ((there, "training"), (measured, "held-out")):
        if not len(states):
            raise Rejected(
                f"no {which} text has two answered tokens in a row", "give longer answers"
            )
    training = Training(heads.to(device_for(spec.gpus)), there, asked)
    before, best = training.run(measured, Checkpoints(spec.work / "checkpoints", job), report)
    heads.load_state_dict(best.weights)
    heads.round()
    figures = report_figures(
        "medusa",
        rows=rows,
        held_out=held_out,
        epochs=math.ceil(training.steps / training.steps_of_epoch),
        steps=training.steps,
        before=before,
        after=training.measure(measured, report),
        kept=best.step,
    )
    write(heads, spec.output)
    (spec.output / "training.json").write_text(json.dumps(figures, indent=1), encoding="utf-8")
    return figures


def _begin(spec: Spec, model: Any, report: Report) -> Heads:
    """Make the heads to train: new ones, or those that are given."""
    asked = spec.parameters
    vocabulary = model.get_output_embeddings().weight
    heads = Heads(vocabulary, asked["speculative_tokens"], asked["layers"])
    if "head" in spec.inputs:
        given = take_over(heads, spec.inputs["head"])
        if given != heads.count:
            report.note(f"{given} heads are given, {heads.count} are trained")
    heads.round()
    return heads


class Training:
    """The course of a training, all of which follows from what was asked."""

    def __init__(self, heads: Heads, there: States, asked: Mapping[str, Any]) -> None:
        self._heads = heads
        self._there = there
        self._asked = asked
        self.steps_of_epoch = math.ceil(len(there) / asked["batch_tokens"])
        most = asked["epochs"] * self.steps_of_epoch
        self.steps = min(most, asked["max_steps"]) if asked["max_steps"] else most

    def run(self, measured: States, kept: Checkpoints, report: Report) -> tuple[Tally, Best]:
        """Train from where an earlier run came to; give what the heads knew before, and the best.

        Nothing but weights and optimizer has a state: the one thing that is drawn by chance
        is the order of an epoch, from a seed of its own.
        """
        optimizer = torch.optim.AdamW(self._heads.parameters(), weight_decay=0.0)
        found = kept.load()
        if found is None:
            first, before, best = 0, self.measure(measured, report), Best()
            best.offer(0, before, self._heads.state_dict().items())
        else:
            first, state = found
            self._heads.load_state_dict(state["heads"])
            optimizer.load_state_dict(state["optimizer"])
            before, best = state["before"], Best(state["best"])
            report.note(f"continues at step {first}")
        marks = measured_after(self.steps)
        pace, orders = Pace(self._asked.get("save_every_s", SAVE_EVERY_S)), self._orders(first)
        for step in range(first, self.steps):
            for group in optimizer.param_groups:
                group["lr"] = rate_at(step, self.steps, self._asked["learning_rate"])
            loss = self._step(self._there.take(next(orders)), optimizer)
            if not math.isfinite(loss):
                raise Rejected("the training diverged", "ask for a lower learning rate")
            report.progress(f"training, loss {loss:.3f}", step + 1, self.steps)
            if step + 1 in marks:
                tally = self.measure(measured, report)
                best.offer(step + 1, tally, self._heads.state_dict().items())
            if pace.due:
                with pace.saving():
                    weights, moments = self._heads.state_dict(), optimizer.state_dict()
                    state = {"heads": weights, "optimizer": moments, "before": before}
                    state["best"] = best.state()
                    kept.save(step + 1, state)
        return before, best

    @torch.no_grad()
    def measure(self, measured: States, report: Report) -> Tally:
        """Say how well the heads foretell the model."""
        tally = Tally()
        for done, batch in enumerate(measured.batches(MEASURED)):
            report.progress("measuring", done * MEASURED, len(measured))
            right = torch.zeros(batch.labels.shape, dtype=torch.bool)
            sums = []
            for head in range(self._heads.count):
                total = 0.0
                for part, logits, wanted in self._scored(batch, head):
                    total += float(cross_entropy(logits, wanted, reduction="sum"))
                    right[part, head] = (logits.argmax(-1) == wanted).cpu()
                sums.append(total)
            compared = batch.labels != NOTHING
            whole = compared.all(1)
            tally.add(
                positions=int(whole.sum()),
                accepted=right[whole].cumprod(1).sum(0).tolist(),
                loss_sums=sums,
                loss_counts=compared.sum(0).tolist(),
            )
        if not tally.positions:
            raise Rejected(
                f"no held-out answer is long enough for {self._heads.count} heads to be measured",
                "give longer answers, or ask for fewer tokens at a time",
            )
        return tally

    def _step(self, batch: Batch, optimizer: torch.optim.Optimizer) -> float:
        """Learn from some positions; give the mean of the heads' losses."""
        optimizer.zero_grad()
        losses = []
        for head, count in enumerate((batch.labels != NOTHING).sum(0).tolist()):
            total = 0.0
            for _, logits, wanted in self._scored(batch, head):
                loss = cross_entropy(logits, wanted, reduction="sum") / count
                (loss * FURTHER**head).backward()
                total += loss.item()
            losses += [total] if count else []
        optimizer.step()
        return sum(losses) / len(losses)

    def _scored(
        self, batch: Batch, head: int
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Give places, scores and labels of a head, in parts that bound the memory of scores."""
        lm_head = self._heads.lm_heads[head].weight
        halves = self._asked["dtype"] == "bfloat16"
        labelled = (batch.labels[:, head] != NOTHING).nonzero()[:, 0]
        for part in labelled.split(max(1, LOGITS // len(lm_head))):
            hidden = batch.hidden[part].to(lm_head.device)
            with torch.autocast(lm_head.device.type, torch.bfloat16, enabled=halves):
                logits = self._heads.logits(head, hidden)
            yield part, logits.float(), batch.labels[part, head].to(lm_head.device)

    def _orders(self, first: int) -> Iterator[torch.Tensor]:
        """Give the positions of each step from `first` on; an epoch takes each position once."""
        size = self._asked["batch_tokens"]
        for epoch in range(first // self.steps_of_epoch, self._asked["epochs"]):
            drawing = torch.Generator().manual_seed(self._asked["seed"] * 1_000_003 + epoch)
            order = torch.randperm(len(self._there), generator=drawing)
            skipped = max(0, first - epoch * self.steps_of_epoch)
            yield from order.split(size)[skipped:]


def rate_at(step: int, steps: int, most: float) -> float:
    """Give the learning rate of a step: it warms up, then falls along a cosine to nothing."""
    warm = max(1, round(steps * WARM_UP))
    if step < warm:
        return most * (step + 1) / warm
    return most * (1 + math.cos(math.pi * (step - warm) / (steps - warm))) / 2
