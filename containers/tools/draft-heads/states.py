"""The model's last hidden states at answered positions, on disk.

Each text passes through the model once, alone, so nothing depends on which texts
come together or on where a run was interrupted.  Training reads states from mapped
files: memory holds a batch, and the system what it has room for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from keeping import keep_tensors, kept_tensors
from packager_worker import Rejected, Report
from rows import Row, groups
from safetensors import safe_open

PIECE = 8192  # tokens of a file's texts
NOTHING = -1  # the label where a head cannot be compared with the model
LOGITS = 2**24  # scores held at a time


class Batch(NamedTuple):
    """Some positions: the model's states, and its choices for the k tokens after the next."""

    hidden: torch.Tensor  # [n, size]
    labels: torch.Tensor  # [n, k]


class States:
    """The positions of some texts, in their order."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._pieces = [_open(file) for file in files]
        lengths = [len(piece.labels) for piece in self._pieces]
        self._ends = torch.tensor(lengths).cumsum(0)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def take(self, chosen: torch.Tensor) -> Batch:
        """Give these positions, in ascending order."""
        chosen = chosen.sort().values
        owner = torch.searchsorted(self._ends, chosen, right=True)
        found = []
        for number in owner.unique().tolist():
            piece = self._pieces[number]
            start = int(self._ends[number]) - len(piece.labels)
            here = chosen[owner == number] - start
            found.append((piece.hidden[here], piece.labels[here]))
        hidden, labels = zip(*found, strict=True)
        return Batch(torch.cat(hidden), torch.cat(labels).long())

    def batches(self, size: int) -> Iterator[Batch]:
        """Give all positions in order."""
        for start in range(0, len(self), size):
            yield self.take(torch.arange(start, min(start + size, len(self))))


def compute_states(
    model: Any, rows: Sequence[Row], heads: int, place: Path, report: Report, what: str
) -> States:
    """Have states and labels on disk; files that are there are not made again."""
    place.mkdir(parents=True, exist_ok=True)
    files = []
    done = 0
    for number, group in enumerate(groups(rows, PIECE)):
        file = kept_tensors(place, number)
        if file is None:
            found = []
            for row in group:
                report.progress(f"reading {what} texts", done + len(found), len(rows))
                found.append(_look(model, row, heads))
            hidden, labels = (torch.cat(part) for part in zip(*found, strict=True))
            file = keep_tensors(place, number, {"hidden": hidden, "labels": labels})
        files.append(file)
        done += len(group)
    return States(files)


def check_last_states(model: Any, row: Row) -> None:
    """Refuse a model whose tokens are not made from what its body gives last."""
    ids = torch.tensor([row.ids[:64]], device=model.device)
    with torch.inference_mode():
        meant = model(ids).logits[0].argmax(-1)
        found = choices_of(model, model.base_model(ids).last_hidden_state[0])
    if (meant.cpu() == found.cpu()).float().mean() < 0.9:  # equal but for ties
        raise Rejected(
            f"Medusa heads cannot be trained for {type(model).__name__}: "
            "its last hidden states alone do not tell its tokens",
            "train an EAGLE-3 head",
        )


def choices_of(model: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Give the token that the model would choose at each state."""
    scoring = model.get_output_embeddings()
    step = max(1, LOGITS // scoring.weight.shape[0])
    chosen = torch.cat([scoring(part).argmax(-1) for part in hidden.split(step)])
    return chosen.to(hidden.device)


def followers(answered: Sequence[bool]) -> list[int]:
    """Count for each position the answered tokens that follow it without a break."""
    counts = [0] * len(answered)
    for at in range(len(answered) - 2, -1, -1):
        counts[at] = counts[at + 1] + 1 if answered[at + 1] else 0
    return counts


@torch.inference_mode()
def _look(model: Any, row: Row, heads: int) -> Batch:
    """Give the states before answered tokens, and the model's own choices for those after the next.

    A choice counts where the token that it is for was answered: what the model would
    say after the end of an answer is nothing that it is ever asked.
    """
    ids = torch.tensor(row.ids, device=model.device)
    hidden = model.base_model(ids[None], use_cache=False).last_hidden_state[0]
    if not hidden.isfinite().all():
        raise Rejected("the model computes what is no number", "its weights are broken")
    choices = choices_of(model, hidden)
    follow = torch.tensor(followers(row.answered), device=hidden.device)
    labels = choices.new_full((len(ids), heads), NOTHING)
    for head in range(heads):
        reached = (follow >= head + 2).nonzero()[:, 0]
        labels[reached, head] = choices[reached + head + 1]
    used = follow >= 2
    return Batch(hidden[used].cpu(), labels[used].int().cpu())


def _open(file: Path) -> Batch:
    """Map a file: its bytes are read when they are looked at."""
    with safe_open(file, framework="pt") as opened:
        return Batch(opened.get_tensor("hidden"), opened.get_tensor("labels"))
