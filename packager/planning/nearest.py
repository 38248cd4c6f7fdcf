"""What to change so that a rejected request fits: every suggestion was planned.

First the same instance: techniques, then a smaller shape, then both.  Then the
cheapest instance that takes the request as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from packager.core.facts import Facts
from packager.core.instance import LOCAL, Instance
from packager.core.plan import Plan
from packager.core.request import BuildRequest
from packager.errors import PlanRejected

MOST_ON_THE_SAME = 4  # suggestions for the instance that was asked for

Planner = Callable[[Facts], Plan]


@dataclass(frozen=True, slots=True)
class Change:
    """Options of the command line, and the request with them."""

    options: tuple[str, ...]
    fields: dict[str, Any] = field(default_factory=dict)

    def __add__(self, other: Change) -> Change:
        return Change(self.options + other.options, self.fields | other.fields)


FREE_SPLIT = Change(
    (), {"tp_degree": None, "pp_degree": None, "dp_degree": None}
)  # the planner chooses


def find_nearest(facts: Facts, instances: tuple[Instance, ...], plan: Planner) -> tuple[str, ...]:
    """List changes that make a plan, as one would type them; empty when none was found."""
    same = _on_the_same_instance(facts, plan)
    elsewhere = _elsewhere(facts, instances, plan, may_split=not same)
    return tuple(" ".join(change.options) for change in (*same, *elsewhere))


def _on_the_same_instance(facts: Facts, plan: Planner) -> tuple[Change, ...]:
    techniques = tuple(_techniques(facts))
    alone = [*_other_split(facts, plan)]
    alone += [change for change in techniques if _fits(facts, change, plan)]
    alone += _shapes(facts, Change(()), plan)
    if not alone:
        alone = [both for change in techniques for both in _shapes(facts, change, plan)]
    return tuple(alone[:MOST_ON_THE_SAME])


def _other_split(facts: Facts, plan: Planner) -> Iterator[Change]:
    request = facts.request
    if _asks_split(request):
        found = _try(facts, FREE_SPLIT, plan)
        if found is not None:
            yield _named_split(facts, found)


def _asks_split(request: BuildRequest) -> bool:
    return any((request.tp_degree, request.pp_degree, request.dp_degree))


def _techniques(facts: Facts) -> Iterator[Change]:
    """Give single changes that save memory or undo a choice, the least loss first."""
    request = facts.request
    if request.quantize in (None, "none"):
        for method in ("fp8", "awq"):
            yield Change((f"--quantize {method}",), {"quantize": method})
    if request.draft not in (None, "none"):
        yield Change(("--draft none",), {"draft": "none", "speculative_tokens": None})
    if request.kv_dtype is None:
        yield Change(("--kv-dtype fp8",), {"kv_dtype": "fp8"})


def _shapes(facts: Facts, change: Change, plan: Planner) -> list[Change]:
    """Give the largest smaller batch that fits, and the longest of the shorter lengths."""
    request = facts.request
    found: list[Change] = []
    if request.max_batch is not None and request.max_batch > 1:
        batch = _most(
            request.max_batch - 1,
            lambda number: _fits(facts, change + _batch(number), plan),
        )
        found += [change + _batch(batch)] if batch else []
    total = request.max_total_tokens
    if total is not None:
        length = 1 << (total - 1).bit_length() >> 1  # the power of two below
        while length >= 512:
            shorter = change + _length(facts, length)
            if _fits(facts, shorter, plan):
                found.append(shorter)
                break
            length //= 2
    return found


def _most(limit: int, fits: Callable[[int], bool]) -> int:
    """Find the largest number up to `limit` that fits; 0 when 1 does not."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _batch(number: int) -> Change:
    return Change((f"--max-batch {number}",), {"max_batch": number})


def _length(facts: Facts, total: int) -> Change:
    change = Change((f"--max-total-tokens {total}",), {"max_total_tokens": total})
    prompt = facts.request.max_input_tokens
    if prompt is None or prompt < total:
        return change
    shorter = total * 3 // 4
    return change + Change((f"--max-input-tokens {shorter}",), {"max_input_tokens": shorter})


def _named_split(facts: Facts, found: Plan) -> Change:
    """Name the degrees that the planner chose when it was free to."""
    options = [f"--tp-degree {found.tp_degree}"]
    if found.pp_degree > 1 or facts.request.pp_degree is not None:
        options.append(f"--pp-degree {found.pp_degree}")
    if facts.request.dp_degree is not None:
        options.append(f"--dp-degree {found.dp_degree}")
    return Change(tuple(options), FREE_SPLIT.fields)


def _elsewhere(
    facts: Facts, instances: tuple[Instance, ...], plan: Planner, *, may_split: bool
) -> tuple[Change, ...]:
    """Find the cheapest instance; with another split only where nothing else helps."""
    asked_split = _asks_split(facts.request)
    for change in (Change(()), FREE_SPLIT) if asked_split and may_split else (Change(()),):
        for instance in sorted(instances, key=_price):
            if not _may_move(facts, instance):
                continue
            found = _try(replace(facts, instance=instance), change, plan)
            if found is not None:
                moved = Change((f"--instance {instance.name}",))
                return (moved + _named_split(facts, found) if change.fields else moved,)
    return ()


def _may_move(facts: Facts, instance: Instance) -> bool:
    container = facts.container
    served = not container.targets or instance.family in container.targets
    return instance.kind == container.kind and served and instance.name not in _here(facts)


def _here(facts: Facts) -> tuple[str, ...]:
    return facts.instance.name, LOCAL


def _price(instance: Instance) -> tuple[float, str]:
    return instance.price_usd_hour or float("inf"), instance.name


def _fits(facts: Facts, change: Change, plan: Planner) -> bool:
    return _try(facts, change, plan) is not None


def _try(facts: Facts, change: Change, plan: Planner) -> Plan | None:
    request = facts.request.model_copy(update={**change.fields, "instance": facts.instance.name})
    drops_draft = change.fields.get("draft") == "none"
    changed = replace(
        facts,
        request=request,
        draft=None if drops_draft else facts.draft,
        draft_reference="" if drops_draft else facts.draft_reference,
    )
    try:
        return plan(changed)
    except PlanRejected:
        return None
