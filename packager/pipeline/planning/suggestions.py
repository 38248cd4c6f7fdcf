"""Suggestions for a rejected request; every one was planned.

First the same instance: techniques, then a smaller shape, then both.  Then the
instances that take the request as it is: the one whose tokens cost the least, and
the one whose hour does where that is another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from packager.core.errors import PlanRejected
from packager.core.facts import Facts
from packager.core.findings import LACKS, Finding, errors_in
from packager.core.instance import LOCAL, Cloud, Instance
from packager.core.plan import Plan
from packager.core.request import BuildRequest
from packager.estimate.sizing.splits import may_use_nodes

MOST_ON_THE_SAME = 4  # suggestions for the requested instance
MOST_BARE = 8  # devices of a machine that is suggested by its devices

# Requested cloud → the clouds whose instances are suggested.
OFFERED: Mapping[Cloud | None, tuple[Cloud | None, ...]] = MappingProxyType(
    {
        None: ("sagemaker", None),
        "sagemaker": ("sagemaker", None),
        "ec2": ("ec2", "sagemaker", None),
        "gcp": ("gcp", None),
        "azure": ("azure", None),
        "bare": ("bare", "sagemaker", None),
    }
)

Planner = Callable[[Facts], Plan]
TokenCost = Callable[[Plan], float | None]  # US dollars per million output tokens


@dataclass(frozen=True, slots=True)
class RequestChange:
    """Options of the command line, and the request with them."""

    options: tuple[str, ...]
    fields: dict[str, Any] = field(default_factory=dict)

    def __add__(self, other: RequestChange) -> RequestChange:
        return RequestChange(self.options + other.options, self.fields | other.fields)


FREE_SPLIT = RequestChange(
    (), {"tp_degree": None, "pp_degree": None, "dp_degree": None}
)  # the planner chooses


def find_nearest(
    facts: Facts,
    instances: tuple[Instance, ...],
    plan: Planner,
    token_cost: TokenCost = lambda _: None,
) -> tuple[str, ...]:
    """List changes to the request that make a plan, as options; empty when there are none.

    The comment after `#` is another instance's price.
    """
    same = _on_the_same_instance(facts, plan)
    elsewhere = _elsewhere(facts, instances, plan, token_cost, may_split=not same)
    return tuple(" ".join(change.options) for change in (*same, *elsewhere))


def note_one_machine(
    facts: Facts, instances: tuple[Instance, ...], plan: Planner, token_cost: TokenCost
) -> tuple[Finding, ...]:
    """Return a note on the single larger machine for a model that needs several here."""
    found = _elsewhere(facts, instances, plan, token_cost, may_split=False)
    if not found:
        return ()
    names = " or ".join(" ".join(change.options) for change in found)
    message = "one machine of another type holds the model"
    return (Finding("note", "one-machine", message, f"planned just now: {names}"),)


def plan_on_nodes(facts: Facts, rejected: PlanRejected, plan: Planner) -> Plan | None:
    """Return a plan over as few machines as hold the model, at most four; None where none do.

    Only if the request leaves the number of machines open, and they have a fast network.
    """
    # Any error but for lack of devices would stay on more machines.
    curable = all(LACKS in finding.data for finding in errors_in(rejected.findings))
    if facts.request.nodes is not None or not curable:
        return None
    tried = (
        _try(facts, RequestChange((), {"nodes": nodes}), plan)
        for nodes in may_use_nodes(facts.instance, facts.container.traits)
    )
    return next((found for found in tried if found is not None), None)


def _on_the_same_instance(facts: Facts, plan: Planner) -> tuple[RequestChange, ...]:
    techniques = tuple(_techniques(facts))
    alone = [*_other_split(facts, plan)]
    alone += [change for change in techniques if _fits(facts, change, plan)]
    alone += _shapes(facts, RequestChange(()), plan)
    if not alone:
        alone = [both for change in techniques for both in _shapes(facts, change, plan)]
    return tuple(alone[:MOST_ON_THE_SAME])


def _other_split(facts: Facts, plan: Planner) -> Iterator[RequestChange]:
    request = facts.request
    if _asks_split(request):
        found = _try(facts, FREE_SPLIT, plan)
        if found is not None:
            yield _named_split(facts, found)


def _asks_split(request: BuildRequest) -> bool:
    return any((request.tp_degree, request.pp_degree, request.dp_degree))


def _techniques(facts: Facts) -> Iterator[RequestChange]:
    """Yield single changes that save memory or undo a choice, the least loss first."""
    request = facts.request
    if request.quantizing in (None, "none"):
        for method in ("fp8", "awq"):
            yield RequestChange((f"--quantize {method}",), {"quantize": method})
    if request.draft not in (None, "none"):
        yield RequestChange(("--draft none",), {"draft": "none", "speculative_tokens": None})
    if request.kv_dtype is None:
        yield RequestChange(("--kv-dtype fp8",), {"kv_dtype": "fp8"})


def _shapes(facts: Facts, change: RequestChange, plan: Planner) -> list[RequestChange]:
    """Find the largest smaller batch that fits, and the longest of the shorter lengths."""
    request = facts.request
    found: list[RequestChange] = []
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


def _batch(number: int) -> RequestChange:
    return RequestChange((f"--max-batch {number}",), {"max_batch": number})


def _length(facts: Facts, total: int) -> RequestChange:
    change = RequestChange((f"--max-total-tokens {total}",), {"max_total_tokens": total})
    prompt = facts.request.max_input_tokens
    if prompt is None or prompt < total:
        return change
    shorter = total * 3 // 4
    return change + RequestChange((f"--max-input-tokens {shorter}",), {"max_input_tokens": shorter})


def _named_split(facts: Facts, found: Plan) -> RequestChange:
    """List the degrees that the planner chose when it was free to."""
    options = [f"--tp-degree {found.tp_degree}"]
    if found.pp_degree > 1 or facts.request.pp_degree is not None:
        options.append(f"--pp-degree {found.pp_degree}")
    if facts.request.dp_degree is not None:
        options.append(f"--dp-degree {found.dp_degree}")
    return RequestChange(tuple(options), FREE_SPLIT.fields)


def _elsewhere(
    facts: Facts,
    instances: tuple[Instance, ...],
    plan: Planner,
    token_cost: TokenCost,
    *,
    may_split: bool,
) -> tuple[RequestChange, ...]:
    """Find other instances that fit; with another split only where the same one does not help."""
    asked_split = _asks_split(facts.request)
    offered = (*_more_devices(facts.instance), *sorted(instances, key=_price))
    for change in (
        (RequestChange(()), FREE_SPLIT) if asked_split and may_split else (RequestChange(()),)
    ):
        fitting: list[tuple[Plan, float | None]] = []
        tried: set[tuple[object, ...]] = set()
        for instance in offered:
            if not _may_move(facts, instance) or _hardware(instance) in tried:
                continue  # the same devices give the same tokens, and were cheaper
            tried.add(_hardware(instance))
            found = _try(replace(facts, instance=instance), change, plan)
            if found is not None:
                fitting.append((found, token_cost(found)))
        if fitting:
            return tuple(
                _moved(facts, found, usd, named_split=bool(change.fields))
                for found, usd in _cheapest(fitting)
            )
    return ()


def _cheapest(fitting: list[tuple[Plan, float | None]]) -> list[tuple[Plan, float | None]]:
    """Choose more of one's own devices, the least dollars for tokens, and the least by the hour."""

    def dearness(one: tuple[Plan, float | None]) -> tuple[float, tuple[float, str]]:
        return float("inf") if one[1] is None else one[1], _price(one[0].instance)

    more = [one for one in fitting if one[0].instance.cloud == "bare"]
    by_token = min(fitting, key=dearness)
    by_hour = min(fitting, key=lambda one: _price(one[0].instance))
    chosen = [*more[:1], by_token, by_hour]
    return [one for number, one in enumerate(chosen) if one not in chosen[:number]]


def _moved(facts: Facts, found: Plan, usd: float | None, *, named_split: bool) -> RequestChange:
    """Return the instance option, with the price after `#`."""
    moved = RequestChange((f"--instance {found.instance.name}",))
    if named_split:
        moved = moved + _named_split(facts, found)
    words = [] if usd is None else [f"${usd:.2f} per million tokens out"]
    if found.instance.price_usd_hour is not None:
        words.append(f"${found.instance.price_usd_hour:.2f} an hour")
    return moved + RequestChange((f" # {', '.join(words)}",)) if words else moved


def _more_devices(instance: Instance) -> Iterator[Instance]:
    """Yield machines with more of the devices that a machine was named by."""
    if instance.cloud != "bare":
        return
    _, _, device = instance.name.partition("x")
    count = instance.devices * 2
    while count <= MOST_BARE:
        yield replace(
            instance, name=f"{count}x{device}", devices=count, price_usd_hour=None, price_basis=""
        )
        count *= 2


def _hardware(instance: Instance) -> tuple[object, ...]:
    is_bare = instance.cloud == "bare"
    return instance.device_name, instance.devices, instance.device_bytes, instance.link, is_bare


def _may_move(facts: Facts, instance: Instance) -> bool:
    container = facts.container
    served = not container.targets or instance.family in container.targets
    offered = instance.cloud in OFFERED[facts.instance.cloud]
    is_kind = instance.kind == container.kind
    return is_kind and served and offered and instance.name not in _here(facts)


def _here(facts: Facts) -> tuple[str, ...]:
    return facts.instance.name, LOCAL


def _price(instance: Instance) -> tuple[float, str]:
    return instance.price_usd_hour or float("inf"), instance.name


def _fits(facts: Facts, change: RequestChange, plan: Planner) -> bool:
    return _try(facts, change, plan) is not None


def _try(facts: Facts, change: RequestChange, plan: Planner) -> Plan | None:
    request = facts.request.model_copy(update={**change.fields, "instance": facts.instance.name})
    drops_draft = change.fields.get("draft") == "none"
    changed = replace(
        facts,
        request=request,
        draft=None if drops_draft else facts.draft,
        draft_request=None if drops_draft else facts.draft_request,
    )
    try:
        return plan(changed)
    except PlanRejected:
        return None
