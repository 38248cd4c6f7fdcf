"""Trains the MTP head that a model has: speculators' layer, our states, loop and figures.

The head reads what the model's last norm gives, as engines hand it over, and the next token; each
further proposal reads what the one before gave.  Answers are foretold, other tokens are not.  It is
written in the model's own names and types, so that its tensors replace those of the checkpoint.

Parameters: `max_tokens`, `seed`, `dtype`, `speculative_tokens`, `epochs`, `max_steps`,
`learning_rate`, `batch_tokens`, and for trying that out `save_every_s`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from figures import Tally
from figures import report as figures
from keeping import Best, Checkpoints, Pace, job_of, keep_tensors, kept_tensors, measured_after
from loading import device_for, load_config, load_model, load_tokenizer
from mtp_heads import load_head, write_head
from packager_worker import Rejected, Report, Spec
from rows import Row, check_ids, groups, load_both
from safetensors import safe_open
from speculators.models.mtp.core import compute_step_weights
from torch.nn.functional import cross_entropy

SAVE_EVERY_S, PIECE, WARM_UP, LARGEST_GRADIENT = 5.0, 8192, 0.01, 1.0
BETA = 0.6  # how much less each further proposal counts: FastMTP's, and speculators' default
DIVERGED = ("the training diverged", "ask for a lower learning rate")


def train(spec: Spec, report: Report) -> dict[str, Any]:
    """Train, or go on with it; the figures are in `training.json` too."""
    asked = spec.parameters
    torch.manual_seed(asked["seed"])
    torch.use_deterministic_algorithms(True, warn_only=True)
    place = spec.inputs["model"]
    tokenizer = load_tokenizer(place)
    rows, held_out = load_both(spec.inputs["samples"], tokenizer, asked["max_tokens"])
    job = job_of(spec, rows, held_out)
    with report.busy("making the head"):
        head = load_head(place, load_config(place), asked["speculative_tokens"])
    with report.busy("loading the model"):
        model = load_model(place, asked["dtype"], spec.gpus)
    check_ids([*rows, *held_out], model.get_input_embeddings().weight.shape[0])
    states = spec.work / job[:16]
    texts = Texts(model, rows, states / "training", report, "training")
    measured = Texts(model, held_out, states / "held-out", report, "held-out")
    del model
    training = Training(head.to(device_for(spec.gpus)), texts, asked)
    before, best = training.run(measured, Checkpoints(spec.work / "checkpoints", job), report)
    head.load_state_dict(best.weights, strict=False)
    stored = write_head(head, place, spec.output)
    head.load_state_dict(stored, strict=False)  # what is measured is what is written
    told = figures(
        "mtp", rows=rows, held_out=held_out, epochs=training.epochs, steps=len(training.steps),
        before=before, after=training.measure(measured, report), kept=best.step,
    )  # fmt: skip
    (spec.output / "training.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return told


class Texts:
    """Texts with the model's last states and choices, on disk."""

    def __init__(
        self, model: Any, rows: Sequence[Row], place: Path, report: Report, what: str
    ) -> None:
        self.rows = rows
        self._files: list[Path] = []
        place.mkdir(parents=True, exist_ok=True)
        done = 0
        for number, group in enumerate(groups(rows, PIECE)):
            file = kept_tensors(place, number)
            if file is None:
                tensors = {}
                for index, row in enumerate(group, done):
                    report.progress(f"reading {what} texts", index, len(rows))
                    tensors |= _look(model, row, index)
                file = keep_tensors(place, number, tensors)
            self._files += [file] * len(group)
            done += len(group)

    def batch(self, number: int, device: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Give a text's tokens and states, and which tokens are answers."""
        row = self.rows[number]
        ids = torch.tensor([row.ids], device=device)
        mask = torch.tensor([row.answered], device=device)
        return ids, self._tensor("states", number)[None].float().to(device), mask

    def choices(self, number: int) -> torch.Tensor:
        """Give the token that the model would choose after each of a text."""
        return self._tensor("choices", number)

    def _tensor(self, kind: str, number: int) -> torch.Tensor:
        with safe_open(self._files[number], framework="pt") as opened:
            found: torch.Tensor = opened.get_tensor(f"{kind}.{number}")
        return found


@torch.inference_mode()
def _look(model: Any, row: Row, number: int) -> dict[str, torch.Tensor]:
    ids = torch.tensor([row.ids], device=model.device)
    states = model.base_model(ids, use_cache=False).last_hidden_state
    if not states.isfinite().all():
        raise Rejected("the model computes what is no number", "its weights are broken")
    scoring = model.get_output_embeddings()
    choices = scoring(states.to(scoring.weight.device)).argmax(-1)[0]
    return {f"states.{number}": states[0].cpu(), f"choices.{number}": choices.int().cpu()}


class Training:
    """The course of a training, all of which follows from what was asked."""

    def __init__(self, head: Any, texts: Texts, asked: Mapping[str, Any]) -> None:
        self._head, self._texts, self._asked = head, texts, asked
        self._proposals: int = asked["speculative_tokens"]
        self._weights = compute_step_weights(BETA, self._proposals)
        usable = [number for number, row in enumerate(texts.rows) if self._counts(row)]
        if not usable:
            raise Rejected("no training text has two answered tokens in a row", "longer answers")
        epochs = (step for epoch in range(asked["epochs"]) for step in self._epoch(usable, epoch))
        most = asked["max_steps"]
        self.steps = [step for _, step in zip(range(most), epochs, strict=False)] if most else [
            *epochs
        ]  # fmt: skip
        self.epochs = round(sum(map(len, self.steps)) / len(usable), 3)
        self._trained = {
            name: value for name, value in head.named_parameters() if name.startswith("mtp_layers.")
        }
        for name, value in head.named_parameters():
            value.requires_grad_(name in self._trained)

    def run(self, measured: Texts, kept: Checkpoints, report: Report) -> tuple[Tally, Best]:
        """Train from where an earlier run came to; give what the head knew before, and the best."""
        values = list(self._trained.values())
        optimizer = torch.optim.AdamW(values, lr=self._asked["learning_rate"], weight_decay=0.0)
        if found := kept.load():
            first, state = found
            self._head.load_state_dict(state["head"], strict=False)
            optimizer.load_state_dict(state["optimizer"])
            before, best = state["before"], Best(state["best"])
            report.note(f"continues at step {first} of {len(self.steps)}")
        else:
            first, before, best = 0, self.measure(measured, report), Best()
            best.offer(0, before, self._trained.items())
        marks = measured_after(len(self.steps))
        pace = Pace(self._asked.get("save_every_s", SAVE_EVERY_S))
        for step in range(first, len(self.steps)):
            warm = max(1, math.ceil(len(self.steps) * WARM_UP))
            for group in optimizer.param_groups:
                left = (len(self.steps) - step) / len(self.steps)
                group["lr"] = self._asked["learning_rate"] * min(1.0, (step + 1) / warm) * left
            loss = self._step(self.steps[step], optimizer)
            if not math.isfinite(loss):
                raise Rejected(*DIVERGED)
            report.progress(f"training, loss {loss:.3f}", step + 1, len(self.steps))
            if step + 1 in marks:
                best.offer(step + 1, self.measure(measured, report), self._trained.items())
            if pace.due and step + 1 < len(self.steps):
                with pace.saving():
                    weights = {name: value.detach() for name, value in self._trained.items()}
                    state = {"head": weights, "optimizer": optimizer.state_dict()}
                    kept.save(step + 1, {**state, "before": before, "best": best.state()})
        return before, best

    @torch.no_grad()
    def measure(self, measured: Texts, report: Report) -> Tally:
        """Hold proposals against the model's choices, which may be any token."""
        tally, last = Tally(), self._proposals
        for number, row in enumerate(measured.rows):
            report.progress("measuring", number, len(measured.rows))
            if not self._counts(row):
                continue
            ids, states, mask = measured.batch(number, self._head.device)
            scores, _, _ = self._head(input_ids=ids, hidden_states=states, loss_mask=mask)
            size = scores[0].shape[1]
            choices = measured.choices(number)
            answered = mask[0].cpu()
            wanted = [answered[at + 2 : at + 2 + size] for at in range(last)]
            right = counted = torch.stack(wanted).all(0)
            accepted, sums = [], []
            for at, logits in enumerate(scores):
                found = logits[0].argmax(-1).cpu()
                right = right & (found == choices[at + 1 : at + 1 + size])
                accepted.append(int(right.sum()))
                targets = ids[0, at + 2 : at + 2 + size]
                losses = cross_entropy(logits[0], targets, reduction="none").cpu()
                sums.append(float(losses[wanted[at]].sum()))
            tally.add(
                positions=int(counted.sum()),
                accepted=accepted,
                loss_sums=sums,
                loss_counts=[int(one.sum()) for one in wanted],
            )
        if not tally.positions:
            raise Rejected(
                f"no held-out answer is longer than the {last} tokens that are proposed",
                "give more samples, or let more tokens of each in",
            )
        return tally

    def _counts(self, row: Row) -> bool:
        """Whether all proposals fit into a text, and one of them is of an answer."""
        return len(row.ids) > self._proposals + 1 and any(row.answered[2:])

    def _step(self, texts: Sequence[int], optimizer: torch.optim.Optimizer) -> float:
        counts = [sum(self._texts.rows[number].answered[2:]) for number in texts]
        whole = 0.0
        for number, count in zip(texts, counts, strict=True):
            ids, states, mask = self._texts.batch(number, self._head.device)
            _, loss, _ = self._head(
                input_ids=ids, hidden_states=states, loss_mask=mask, step_weights=self._weights
            )
            part = loss * (count / sum(counts))
            if part.requires_grad:
                part.backward()
            whole += float(part.detach())
        torch.nn.utils.clip_grad_norm_(self._trained.values(), LARGEST_GRADIENT)
        optimizer.step()
        optimizer.zero_grad()
        return whole

    def _epoch(self, usable: Sequence[int], epoch: int) -> Iterator[list[int]]:
        """Give the texts of each step: shuffled, together about as long as was asked."""
        drawing = torch.Generator().manual_seed(self._asked["seed"] * 1_000_003 + epoch)
        step: list[int] = []
        size = 0
        for at in torch.randperm(len(usable), generator=drawing).tolist():
            step.append(usable[at])
            size += len(self._texts.rows[usable[at]].ids)
            if size >= self._asked["batch_tokens"]:
                yield step
                step, size = [], 0
        if step:
            yield step
