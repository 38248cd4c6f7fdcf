"""How well a head foretells the model, measured on held-out texts with SpecForge's own code.

At a position the head makes k proposals, one after another.  The model takes those before the
first that is not its own choice, so what counts of the i-th is how often it and all before it
are right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from command import take_reference_loss
from packager_worker import Rejected, Report
from settings import DRAFT, RUN
from specforge.algorithms.eagle3.data import normalize_offline_sample
from specforge.algorithms.eagle3.model import OnlineEagle3Model
from specforge.algorithms.model_providers import build_eagle3_draft
from specforge.config import load_config
from specforge.modeling.target.target_head import TargetHead
from specforge.training.model_loading import load_draft_config_source
from texts import Row, proposals


class Watched(OnlineEagle3Model):  # type: ignore[misc]
    """SpecForge's model, which says of every proposal whether it was right, and its loss."""

    def forward(self, **given: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Give `[k, T]` each: is the proposal the model's choice; its loss in nats."""
        self.seen: list[tuple[torch.Tensor, torch.Tensor]] = []
        super().forward(**given)
        right, loss = zip(*self.seen, strict=True)
        return torch.stack(right), torch.stack(loss)

    def _acc_and_loss(
        self, *, logits: Any, target_p: Any, target_token_ids: Any, **_: Any
    ) -> tuple[None, ...]:
        proposed = logits.argmax(-1)
        proposed = proposed + self.draft_model.d2t[proposed]
        apart = target_p.clamp_min(1e-30).log() - logits.float().log_softmax(-1)
        loss = (target_p * apart).sum(-1)  # as far as the head can come: 0, whatever the model says
        self.seen.append(((proposed == target_token_ids)[0], loss[0]))
        return (None,) * 7


class Tally:
    """Running sums over texts, one entry for each of the k proposals."""

    def __init__(self, ahead: int) -> None:
        self.positions = 0
        self._accepted = [0] * ahead
        self._losses = [0.0] * ahead
        self._counted = [0] * ahead

    def add(self, right: torch.Tensor, loss: torch.Tensor, marks: Sequence[bool]) -> None:
        """Take one text. The proposals made at t are for what is marked from t on."""
        later = torch.tensor([*marks, *[False] * len(self._accepted)])
        counts = later.unfold(0, len(marks), 1)[: len(self._accepted)]  # [k, T]
        all_count = counts.all(0)
        self.positions += int(all_count.sum())
        for number, accepted in enumerate(right.cumprod(0).bool()):
            self._accepted[number] += int((accepted & all_count).sum())
            self._losses[number] += float(loss[number][counts[number]].double().sum())
            self._counted[number] += int(counts[number].sum())

    @property
    def loss(self) -> float:
        """Mean over the proposals of each one's mean."""
        pairs = zip(self._losses, self._counted, strict=True)
        means = [total / count for total, count in pairs if count]
        return sum(means) / len(means)

    @property
    def acceptance(self) -> list[float]:
        """For each i, the share of positions where proposals 1..i were all right."""
        return [count / self.positions for count in self._accepted]

    @property
    def expected_length(self) -> float:
        """Tokens for each run of the model: the proposals it takes and its own."""
        return 1 + sum(self.acceptance)


@torch.no_grad()
def measure(rows: Sequence[Row], files: Sequence[Path], head: Path | None, report: Report) -> Tally:
    """Measure `head`, or the one that training begins with. In the work directory."""
    take_reference_loss()
    config = load_config(RUN, [f"model.draft_checkpoint_path={head}"] if head else [])
    torch.manual_seed(config.training.seed)
    draft = build_eagle3_draft(config, load_draft_config_source(DRAFT))
    ahead = config.training.ttt_length
    model = Watched(draft, length=ahead, attention_backend="sdpa").eval()
    target = TargetHead.from_pretrained(config.model.target_model_path)
    device = next(draft.parameters()).device
    tally = Tally(ahead)
    for number, (row, file) in enumerate(zip(rows, files, strict=True)):
        report.progress("measuring", number, len(rows))
        sample = normalize_offline_sample(torch.load(file), config.data.max_length)
        sample = {name: tensor.to(device) for name, tensor in sample.items()}
        ids, states, mask = target.preprocess(
            sample["input_ids"], sample["target"], sample["loss_mask"]
        )
        right, loss = model(
            input_ids=ids, attention_mask=sample["attention_mask"], target=target(states),
            loss_mask=mask, hidden_states=sample["hidden_state"],
        )  # fmt: skip
        tally.add(right.cpu(), loss.cpu(), proposals(row))
    if not tally.positions:
        raise Rejected(
            f"no held-out answer is longer than the {ahead} tokens that are proposed",
            "give more samples, or let more tokens of each in",
        )
    return tally


def number(value: float) -> float | None:
    """Six digits are more than the data holds; JSON knows no NaN."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
