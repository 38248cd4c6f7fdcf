"""The texts that models are calibrated with, measured with and trained on."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Literal

from packager.core.errors import NotFound, UsageError
from packager.core.growing import join_growing
from packager.core.samples import Samples, choose_others, choose_samples
from packager.core.suggestions import guessed
from packager.core.training import TrainingTexts, split_texts
from packager.core.workload import WORKLOADS, Workload


def read_workload(reference: str) -> Workload:
    """Read how long the requests of a file are."""
    from packager.models.samples.lengths import load_workload

    try:
        return load_workload(reference)
    except NotFound as error:
        raise UsageError(
            f"--workload {reference!r} is neither a name, IN:OUT[:CONCURRENCY] nor a file of "
            "requests",
            hint=guessed(reference, WORKLOADS, f"names: {', '.join(WORKLOADS)}"),
        ) from error


@cache  # ranking plans one model many times
def calibration_texts(reference: str, count: int, seed: int) -> Samples:
    """Choose texts to calibrate a quantizer with."""
    return choose_samples(_all_samples(reference), count, seed)


def evaluation_texts(
    reference: str, count: int, seed: int, calibration: Samples | None = None
) -> Samples:
    """Choose texts to measure quality with."""
    return choose_others(_all_samples(reference), count, seed, calibration)


def training_texts(
    reference: str,
    *,
    count: int | None,
    held_out: str | None,
    seed: int,
    broken: Literal["skip", "refuse"] = "skip",
) -> TrainingTexts:
    """Choose texts to train a head with, and others to measure it with: a share, or `held_out`."""
    from packager.models.samples.load import load_samples

    found = load_samples(reference, broken=broken)
    if held_out is not None:
        other = load_samples(held_out, broken=broken)
        return split_texts(found, other, count=count, seed=seed)
    return split_texts(found, None, count=count, seed=seed)


@cache
def _all_samples(reference: str) -> Samples:
    from packager.models.samples.load import load_samples

    found = load_samples(reference)
    return replace(found, samples=join_growing(found.samples))
