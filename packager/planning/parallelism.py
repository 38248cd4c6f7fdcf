"""Which tensor-parallel degrees a model allows, and the choice among them.

The vocabulary never forbids a degree: engines pad it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from packager.core.findings import Finding
from packager.core.model import ModelProfile
from packager.core.plan import MemoryBudget
from packager.core.units import gib


@dataclass(frozen=True, slots=True)
class TpChoice:
    """A degree, or None when none fits, and why others were passed over."""

    tp_degree: int | None
    passed_over: tuple[Finding, ...]


def find_degrees(
    profile: ModelProfile, devices: int, asked: int | None = None
) -> tuple[tuple[int, ...], tuple[Finding, ...]]:
    """List the degrees that may be tried, smallest first; only `asked` when it is given.

    Divisors of the device count are considered, so that copies of the model
    use all devices.  A forbidden degree is an error only when it was asked for.
    """
    if asked is not None:
        reason = refusal(profile, devices, asked)
        if not reason:
            return (asked,), ()
        others, _ = find_degrees(profile, devices)
        hint = f"possible here: {', '.join(map(str, others))}"
        return (), (Finding("error", "tp-not-allowed", f"TP {asked} is asked for: {reason}", hint),)
    candidates = [degree for degree in range(1, devices + 1) if devices % degree == 0]
    reasons = {degree: refusal(profile, devices, degree) for degree in candidates}
    notes = tuple(
        Finding("note", "tp-not-allowed", f"TP {degree} is not possible: {reason}")
        for degree, reason in reasons.items()
        if reason
    )
    return tuple(degree for degree in candidates if not reasons[degree]), notes


def refusal(profile: ModelProfile, devices: int, degree: int) -> str:
    """Say why the model cannot be split `degree` ways on so many devices; empty when it can."""
    if degree > devices:
        return f"the instance has {devices} device{'s' if devices > 1 else ''}"
    if profile.heads % degree:
        return f"{profile.heads} attention heads are not a multiple of it"
    if profile.kv_heads % degree and degree % profile.kv_heads:
        return f"{profile.kv_heads} key-value heads can be neither split nor copied evenly"
    if profile.intermediate_size % degree:
        return f"the intermediate size {profile.intermediate_size} is not a multiple of it"
    # Layers that are split along their inputs: the groups of quantized weights lie there.
    for inputs in (profile.intermediate_size, profile.heads * profile.head_dim):
        if degree > 1 and profile.group_size and inputs // degree % profile.group_size:
            return (
                f"it would cut through groups of {profile.group_size} quantized weights: "
                f"{inputs} / {degree} is not a multiple"
            )
    return ""


def choose_tp_degree(
    degrees: tuple[int, ...], budget_at: Callable[[int], MemoryBudget]
) -> TpChoice:
    """Pick the smallest degree whose per-device budget fits.

    The first fit wins: a smaller degree talks less and leaves devices over
    for replicas.  Every degree passed over is explained to the user.
    """
    passed_over: list[Finding] = []
    for tp in degrees:
        budget = budget_at(tp)
        if budget.fits:
            return TpChoice(tp, tuple(passed_over))
        passed_over.append(
            Finding(
                "note",
                "tp-does-not-fit",
                f"TP {tp} needs {gib(budget.needed_bytes)} per device; "
                f"{gib(budget.usable_bytes)} usable",
            )
        )
    return TpChoice(None, tuple(passed_over))
