"""Report of a plan's capacity: requests at once, what happens to more, and what they get."""

from __future__ import annotations

from typing import Any

from packager.core.plan import Plan
from packager.core.reports.report import Pair
from packager.core.traits import MORE_WAIT
from packager.estimate.sizing.device_rules import default_step
from packager.pipeline.planning.fit import reserves


def capacity_sentence(plan: Plan) -> str:
    """Write how many requests fit, at full length and as the workload has them."""
    each = " on each copy" if plan.replicas > 1 else ""
    beyond = plan.container.traits.when_full
    if plan.instance.kind == "neuron":
        return f"{plan.shape.max_batch} at once{each}, at any length; {MORE_WAIT}"
    if plan.profile.unknown_cache:
        return f"not known: the memory of the cache is not; {beyond}"
    if plan.profile.pooling is not None and not plan.profile.pooling.is_causal:
        step = plan.max_prefill_tokens or default_step(plan.instance)
        texts = f"{plan.shape.max_batch:,} texts are computed at once{each}"
        return f"{texts}, of {step:,} tokens together at most; {MORE_WAIT}"
    return (
        f"{plan.full_requests:,} of {plan.shape.max_total_tokens:,} tokens, or "
        f"{plan.typical_requests:,} typical of {plan.typical_tokens:,}{each}; "
        f"{plan.shape.max_batch:,} are computed at once; {beyond}"
    )


def capacity_document(plan: Plan) -> dict[str, Any]:
    """Return the capacity as JSON; null for unknown figures."""
    is_known = not plan.profile.unknown_cache
    return {
        "copies": plan.replicas,
        "full_length_requests": plan.full_requests if is_known else None,
        "full_length_tokens": plan.shape.max_total_tokens,
        "typical_requests": plan.typical_requests if is_known else None,
        "typical_tokens": plan.typical_tokens,
        "reserved": reserves(plan.instance),
        "beyond": plan.container.traits.when_full,
    }


def task_pairs(plan: Plan) -> tuple[Pair, ...]:
    """Describe what a model that writes no text gives, and from which tokens."""
    pooling = plan.profile.pooling
    if pooling is None:
        return ()
    if pooling.task != "embed":
        scores = f"{pooling.labels} scores" if pooling.labels > 1 else "one score"
        return (Pair("gives", f"{scores} of a text ({pooling.task})"),)
    words = f"vectors of {pooling.truncates or pooling.size}"
    words += {"cls": ", of the first token", "mean": ", the mean of all tokens"}.get(
        pooling.pooled, ", of the last token" if pooling.pooled else ""
    )
    return (Pair("gives", words + (", normalised" if pooling.normalizes else "")),)


def room_words(plan: Plan) -> str:
    """Count the tokens that fit, or state that a model without attention keeps none."""
    tokens = tokens_left(plan)
    if tokens is None:
        return f"not known: how many tokens the KV cache holds ({plan.profile.unknown_cache[0]})"
    if plan.profile.pooling is not None and not plan.profile.kv_bytes_per_token:
        return "no KV cache: every text is computed whole, in one step"
    if not plan.profile.kv_bytes_per_token:
        return "no KV cache: each request keeps a state of constant size"
    return f"room for {tokens:,} tokens of KV cache"


def tokens_left(plan: Plan) -> int | None:
    """Count the tokens of requests of the longest length that fit; None where unknown."""
    if plan.profile.unknown_cache:
        return None
    return plan.budget.tokens_left(plan.shape.max_total_tokens)
