"""Factors that measurements put on a prediction's terms, and the remaining error."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Factors on the groups of terms of a prediction; 1 by default.

    Each is positive and multiplies every time of its group, whatever the formula of that time is.
    """

    memory: float = 1.0  # what a decoding step reads and computes
    overhead: float = 1.0  # what a decoding step costs besides: launches, all-reduces, the host
    prefill: float = 1.0  # what prompts cost


UNSCALED = Scale()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A prediction fitted to measurements: where its own band holds, and which holds elsewhere."""

    scale: Scale
    points: int  # measured concurrencies
    lowest: int  # of the concurrencies
    highest: int
    factors: int  # how many were fitted
    agrees: bool  # whether all lay inside the general band before anything was fitted
    band: float  # relative error of times per token from `lowest` to `highest`
    outside: float  # of every other figure; never below `band`
    ttft_band: float | None = None  # of times to first token, as `band`; None: too few measured
    throughput_band: float | None = None  # of tokens per second, the same
    reach: float = 1.0  # times as few, or as many, requests as measured that `band` holds for

    def band_at(self, concurrency: int) -> float:
        """Return the band of the time per token at one concurrency."""
        least, most = self.lowest / self.reach, self.highest * self.reach
        return self.band if least <= concurrency <= most else self.outside
