"""Checks whether a draft can be split as the model is."""

from __future__ import annotations

from collections.abc import Iterator

from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.techniques import Draft


def check_draft_split(plan: Plan) -> Iterator[Finding]:
    """Refuse a draft whose heads do not divide among the devices: it runs on as many.

    Engines copy key-value heads when there are fewer than devices, and no others.
    """
    draft, degree = plan.draft, plan.tp_degree
    if draft is None or degree == 1:
        return
    counts = [("attention heads", draft.attention_heads), ("MLP columns", draft.intermediate_size)]
    uneven = [(what, count) for what, count in counts if count % degree]
    if not _divides(draft.kv_heads, degree):
        uneven.append(("key-value heads", draft.kv_heads))
    fits = [
        one
        for one in range(1, degree)
        if not any(number % one for number in (plan.profile.heads, *(count for _, count in counts)))
        and _divides(draft.kv_heads, one)
    ]
    for what, count in uneven:
        message = f"{count} {what} of the draft do not divide among {degree} devices"
        hint = f"use --tp-degree {fits[-1]}, another draft, or --draft ngram"
        yield Finding("error", "draft-split", message, hint)


def draft_divides(draft: Draft, degree: int) -> bool:
    """Check whether a draft can be split over so many devices."""
    counts = (draft.attention_heads, draft.intermediate_size)
    return not any(count % degree for count in counts) and _divides(draft.kv_heads, degree)


def _divides(kv_heads: int, degree: int) -> bool:
    return not kv_heads or not kv_heads % degree or not degree % kv_heads
