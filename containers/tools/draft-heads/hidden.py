"""The model's hidden states at every token, on disk: what EAGLE-3 reads and foretells.

Each text passes through the model once, alone, so nothing depends on which texts
come together or on where a run was interrupted.  Training maps the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from keeping import keep_tensors, kept_tensors
from packager_worker import Rejected, Report
from rows import Row, groups
from safetensors import safe_open
from speculators.train.data import BaseDataset

PIECE = 8192  # tokens of a file


class Texts(BaseDataset):
    """Texts with their states, as speculators' collating and packing take them.

    A file is mapped while a text of it is read: all of them at once would count as memory.
    """

    def __init__(self, rows: Sequence[Row], files: Sequence[Path], max_tokens: int) -> None:
        self._rows = rows
        self._place = {number: file for file in files for number in _numbers(file)}
        super().__init__(max_tokens, hidden_states_dtype=torch.float32)

    def __len__(self) -> int:
        return len(self._rows)

    def _compute_approx_lengths(self) -> list[int]:
        return [len(row.ids) for row in self._rows]

    def _get_raw_data(self, index: int) -> dict[str, Any]:
        row, states = self._rows[index], self._tensor("states", index)
        return {
            "hidden_states": states[:, :-1].flatten(1),
            "input_ids": torch.tensor(row.ids),
            "verifier_last_hidden_states": states[:, -1],
            "loss_mask": torch.tensor(foretold(row)),
        }

    def choices(self, index: int) -> torch.Tensor:
        """Give the token that the model would choose after each of a text."""
        return self._tensor("choices", index)

    def _tensor(self, kind: str, index: int) -> torch.Tensor:
        with safe_open(self._place[index], framework="pt") as opened:
            found: torch.Tensor = opened.get_tensor(f"{kind}.{index}")
        return found


def foretold(row: Row) -> list[bool]:
    """Mark the tokens of answers that another one follows: there the head proposes."""
    following = [*row.answered[1:], False]
    return [here and there for here, there in zip(row.answered, following, strict=True)]


def compute_states(
    model: Any, rows: Sequence[Row], layers: Sequence[int], place: Path, report: Report, what: str
) -> list[Path]:
    """Have on disk what goes into these layers, in the model's order, and what the last gives."""
    place.mkdir(parents=True, exist_ok=True)
    files = []
    done = 0
    with _recording(model, layers) as recorded:
        for number, group in enumerate(groups(rows, PIECE)):
            file = kept_tensors(place, number)
            if file is None:
                tensors = {}
                for index, row in enumerate(group, done):
                    report.progress(f"reading {what} texts", index, len(rows))
                    states, choices = _look(model, row, recorded)
                    tensors |= {f"states.{index}": states, f"choices.{index}": choices}
                file = keep_tensors(place, number, tensors)
            files.append(file)
            done += len(group)
    return files


@torch.inference_mode()
def _look(model: Any, row: Row, recorded: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    recorded.clear()
    logits = model(torch.tensor([row.ids], device=model.device), use_cache=False).logits[0]
    states = torch.stack(recorded, 1)
    if not states.isfinite().all():
        raise Rejected("the model computes what is no number", "its weights are broken")
    return states.cpu(), logits.argmax(-1).int().cpu()


@contextmanager
def _recording(model: Any, layers: Sequence[int]) -> Iterator[list[torch.Tensor]]:
    """Record what goes into the named layers, and what comes out of the last, before its norm."""
    blocks = getattr(model.get_decoder(), "layers", None)
    if not isinstance(blocks, torch.nn.ModuleList):
        raise Rejected(f"the layers of {type(model).__name__} are not where others have them")
    if not layers or min(layers) < 0 or max(layers) > len(blocks):
        raise Rejected(
            f"a head cannot read the layers {list(layers)} of a model that has {len(blocks)}"
        )
    recorded: list[torch.Tensor] = []

    def keep(state: Any) -> None:
        # Layers may lie on several devices, and files are written from memory in any case.
        recorded.append((state[0] if isinstance(state, tuple) else state)[0].cpu())

    handles = [
        blocks[layer].register_forward_pre_hook(
            lambda _, given, named: keep(given[0] if given else named["hidden_states"]),
            with_kwargs=True,
        )
        for layer in layers
        if layer < len(blocks)
    ]
    last = blocks[-1]
    handles += [
        last.register_forward_hook(lambda _, __, state: keep(state))
        for _ in range(1 + (len(blocks) in layers))
    ]
    try:
        yield recorded
    finally:
        for handle in handles:
            handle.remove()


def _numbers(file: Path) -> list[int]:
    with safe_open(file, framework="pt") as opened:
        names = [name.partition(".") for name in opened.keys()]  # noqa: SIM118
    return [int(number) for kind, _, number in names if kind == "states"]
