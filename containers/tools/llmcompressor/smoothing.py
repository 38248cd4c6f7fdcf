"""SmoothQuant's scales: by magnitude, bounded, and kept where they make rounding better.

The library scales a channel by the distance of its extremes.  A channel that hardly varies, as a
LayerNorm's with a bias and no gain, gets a scale near 0, and its one large value then takes all
the digits that a token has.  Here a channel counts by its largest magnitude, no scale is far
below the others', and a fold is made only if the matrices behind it, rounded with their
inputs, are nearer to what they are whole than without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import fake_quantize
from compressed_tensors.quantization.utils import calculate_qparams

TEXTS, ROWS = 8, 16  # that the error is measured on: tokens of so many texts
OUTPUTS = 256  # of a matrix, evenly apart: each is rounded by itself
FARTHEST = 64.0  # from the median, of a scale below it


def by_magnitude(measured: Any) -> torch.Tensor:
    """Have the library take the largest magnitude of each channel for its range; return it."""
    largest = torch.maximum(measured.min_channel_vals.abs(), measured.max_channel_vals.abs())
    measured.min_channel_vals, measured.max_channel_vals = -largest, largest
    return largest


def bounded(scales: torch.Tensor) -> torch.Tensor:
    """Return scales of which none is far below the others: quiet channels may be loud elsewhere."""
    return scales.clamp(min=float(scales.float().median()) / FARTHEST)


class Rounding:
    """Measures what rounding does to matrices, on some tokens of the calibration texts."""

    def __init__(
        self, weights: QuantizationArgs, inputs: QuantizationArgs, note: Callable[[str], None]
    ) -> None:
        self._weights = weights
        self._inputs = inputs
        self._note = note
        self._seen: dict[str, list[torch.Tensor]] = {}

    def watch(self, name: str) -> Callable[..., None]:
        """Return a hook that keeps some rows of what is read of the source of that name."""

        def hook(_module: Any, inputs: tuple[torch.Tensor, ...]) -> None:
            rows = self._seen.setdefault(name, [])
            if len(rows) < TEXTS:
                rows.append(inputs[0].detach().reshape(-1, inputs[0].shape[-1])[:ROWS].clone())

        return hook

    def improves(self, name: str, matrices: Iterable[Any], scales: torch.Tensor) -> bool:
        """Whether matrices are nearer to whole ones, once rounded, with scales than without."""
        rows = torch.cat(self._seen.pop(name))
        plain = smoothed = size = 0.0
        for module in matrices:
            weight = module.weight.detach()
            weight = weight[:: -(-len(weight) // OUTPUTS)]
            whole = rows.float() @ weight.float().T
            size += float(whole.square().sum())
            plain += self._error(rows, weight, whole)
            smoothed += self._error(rows / scales, weight * scales, whole)
        if smoothed < plain:
            return True
        was, now = ((error / max(size, 1e-30)) ** 0.5 for error in (plain, smoothed))
        self._note(
            f"{name} is left unsmoothed: with scales the error of what reads it is {now:.2%}, "
            f"without {was:.2%}"
        )
        return False

    def _error(self, rows: torch.Tensor, weight: torch.Tensor, whole: torch.Tensor) -> float:
        product = _rounded(rows, self._inputs).float() @ _rounded(weight, self._weights).float().T
        return float((product - whole).square().sum())


def _rounded(tensor: torch.Tensor, args: QuantizationArgs) -> torch.Tensor:
    """Round each row, with a scale of its own, as the scheme does."""
    scale, zero = calculate_qparams(
        tensor.amin(1, keepdim=True), tensor.amax(1, keepdim=True), args
    )
    return fake_quantize(tensor, scale, zero, args)
