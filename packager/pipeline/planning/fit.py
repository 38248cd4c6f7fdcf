"""Chooses a shape and a split that fit: reserved for static shapes, else predicted.

On processors, on Neuron and on `local` every slot of the batch is reserved at full length and
the first split that fits is taken; on `local` the building machine must not decide what is in
the image.  Elsewhere a length fits when one sequence of it does, and `planning.choice` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from packager.core.facts import Facts
from packager.core.findings import LACKS, SPLIT, Finding, errors_in
from packager.core.instance import LOCAL, Instance
from packager.core.model import ModelProfile
from packager.core.plan import MemoryBudget
from packager.core.request import BuildRequest
from packager.core.shape import Shape
from packager.core.split import Split
from packager.core.techniques import Rejected
from packager.core.workload import QUESTIONS, Workload
from packager.estimate.performance.choice import (
    CandidateLayout,
    Candidates,
    Objective,
    choose_layout,
    keeps_limits,
)
from packager.estimate.performance.predict import Point, Setup, predict_point
from packager.estimate.sizing.memory import MemoryInputs, make_budget
from packager.estimate.sizing.parallelism import choose_split
from packager.estimate.sizing.processors import may_compute
from packager.estimate.sizing.shape import (
    DEFAULTS,
    RequestedShape,
    first_shape,
    larger_shapes,
    shorter_shapes,
    smaller_shapes,
)
from packager.pipeline.planning.does_not_fit import explain_misfit
from packager.pipeline.planning.requested import shape_of

SetupAt = Callable[[Split, MemoryBudget], Setup | None]


@dataclass(frozen=True, slots=True)
class PlanFit:
    """A shape and a split that fit, or the closest miss, with findings."""

    shape: Shape
    split: Split
    budget: MemoryBudget
    findings: tuple[Finding, ...]
    rejected: tuple[Rejected, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A model with its techniques, and the instance that it is to fit."""

    request: BuildRequest
    requested: RequestedShape
    profile: ModelProfile
    instance: Instance
    demand: MemoryInputs
    workload: Workload = QUESTIONS
    packs_4_bits: bool = False  # the engine has a kernel for 4-bit weights there

    @property
    def first_shape(self) -> Shape:
        """Return the requested shape, completed by defaults."""
        kind, longest = self.instance.kind, self.workload.longest_tokens
        return first_shape(
            self.requested,
            self.profile.max_positions,
            kind,
            longest,
            answers=self.profile.pooling is None,
        )

    def budget(self, split: Split, shape: Shape) -> MemoryBudget:
        """Compute the memory that one device needs for a shape at a split."""
        return make_budget(
            self.profile,
            self.instance,
            shape,
            split.tp_degree,
            self.demand,
            pp_degree=split.pp_degree,
            expert_degree=split.expert_degree,
            expert_parallel=split.expert_parallel,
        )


def room_of(facts: Facts, profile: ModelProfile, demand: MemoryInputs) -> Room:
    """Return what fits are searched with."""
    return Room(
        request=facts.request,
        requested=shape_of(facts.request),
        profile=profile,
        instance=facts.instance,
        demand=demand,
        workload=facts.workload,
        packs_4_bits=may_compute("w4a16", facts.instance, facts.container.traits),
    )


def reserves(instance: Instance) -> bool:
    """Return whether every slot is reserved at full length instead of predicted."""
    return instance.name == LOCAL or not DEFAULTS[instance.kind].paged


def find_fit(
    room: Room, splits: tuple[Split, ...], target: Objective, most: int, setup_at: SetupAt
) -> PlanFit:
    """Find a shape and a split, or the closest miss with an error."""
    request = room.request
    if reserves(room.instance):
        fit = _reserve(room, splits)
        if errors_in(fit.findings):
            return fit
        setup = None if room.instance.name == LOCAL else setup_at(fit.split, fit.budget)
        warned = _explain_slots(request, fit, target, setup)
        return replace(fit, findings=(*fit.findings, *warned))
    first = replace(room.first_shape, max_batch=request.max_batch or 1)
    shapes = tuple(shorter_shapes(room.requested, first))
    choice = choose_layout(
        Candidates(
            splits=splits,
            shapes=shapes,
            most=min(most, request.max_prefill_tokens or most),  # each needs a token of a step
            batch=request.max_batch,
            budget_at=room.budget,
            setup_at=setup_at,
            # A request that states both decides how many devices are used.
            few_stages=request.tp_degree is not None and request.dp_degree is not None,
        ),
        target,
    )
    layout = choice.layout
    if layout is None:
        return _miss(room, splits, shapes[-1], choice.passed_over)
    said = (
        *notes_of(choice.passed_over),
        *_explain_length(room.requested, first, layout),
        *_explain_requests(request, layout, target),
    )
    return PlanFit(layout.shape, layout.split, layout.budget, said, choice.passed_over)


def notes_of(rejected: tuple[Rejected, ...]) -> tuple[Finding, ...]:
    """Return the rejected candidates as notes."""
    return tuple(Finding("note", one.code, one.reason) for one in rejected)


def _reserve(room: Room, splits: tuple[Split, ...]) -> PlanFit:
    """Find the first shape that fits at some split, then let its batch grow there.

    A pipeline only comes when no degree fits in any shape: it waits where
    tensor parallelism works.
    """
    requested, instance, first = room.requested, room.instance, room.first_shape
    shapes = (first,) if instance.name == LOCAL else tuple(smaller_shapes(requested, first))
    rejected: tuple[Rejected, ...] = ()
    for depth in dict.fromkeys(split.pp_degree for split in splits):
        deep = tuple(split for split in splits if split.pp_degree == depth)
        for shape in shapes:
            split, passed_over = choose_split(deep, partial(_budget_of, room, shape))
            if split is None:
                continue
            for larger in _growth(requested, first, shape, instance):
                if not room.budget(split, larger).fits:
                    break
                shape = larger
            rejected += passed_over
            said = (*notes_of(rejected), *_explain_shape(requested, first, shape))
            return PlanFit(shape, split, room.budget(split, shape), said, rejected)
        rejected += choose_split(deep, partial(_budget_of, room, shapes[-1]))[1]
    return _miss(room, splits, shapes[-1], rejected)


def _budget_of(room: Room, shape: Shape, split: Split) -> MemoryBudget:
    return room.budget(split, shape)


def _miss(
    room: Room, splits: tuple[Split, ...], least: Shape, rejected: tuple[Rejected, ...]
) -> PlanFit:
    """Return the arithmetic of the split that comes closest."""
    if not splits:
        message = f"no way of splitting the model uses the devices of {room.instance.name}"
        hint = "lower tp_degree or pp_degree, or choose an instance with other devices"
        finding = Finding("error", "no-split", message, hint, {LACKS: SPLIT})
        return PlanFit(least, Split(), room.budget(Split(), least), (finding,), rejected)
    tried = [(split, room.budget(split, least)) for split in splits]
    split, missed = min(tried, key=lambda pair: pair[1].needed_bytes)
    pipelined = (missed.pp_degree, room.demand)
    finding = explain_misfit(
        room.profile,
        room.instance,
        least,
        missed,
        pipelined,
        room.request.quantizing,
        packs_4_bits=room.packs_4_bits,
    )
    return PlanFit(least, split, missed, (*notes_of(rejected), finding), rejected)


def _growth(
    requested: RequestedShape, first: Shape, shape: Shape, instance: Instance
) -> Iterator[Shape]:
    if instance.name != LOCAL and shape == first:
        yield from larger_shapes(requested, shape, instance.kind)


def _explain_shape(requested: RequestedShape, first: Shape, shape: Shape) -> Iterator[Finding]:
    words = (
        f"{shape.max_batch} at once, {shape.max_total_tokens} tokens each "
        f"({shape.max_input_tokens} of them prompt)"
    )
    if shape.kv_tokens < first.kv_tokens:
        message = (
            f"{first.max_batch} requests of {first.max_total_tokens} tokens do not fit; "
            f"planned for {words}"
        )
        hint = "ask for max_batch and max_total_tokens to choose otherwise"
        yield Finding("note", "shape-reduced", message, hint)
    elif None in (requested.max_batch, requested.max_input_tokens, requested.max_total_tokens):
        yield Finding("note", "shape-chosen", f"planned for {words}")


def _explain_length(
    requested: RequestedShape, first: Shape, layout: CandidateLayout
) -> Iterator[Finding]:
    """Report which length was chosen, and how many requests at once."""
    shape, copies = layout.shape, layout.split.copies
    each = f" on each of {copies} copies" if copies > 1 else ""
    words = (
        f"{shape.max_batch} at once{each}, up to {shape.max_total_tokens} tokens each "
        f"({shape.max_input_tokens} of them prompt)"
    )
    if shape.max_total_tokens < first.max_total_tokens:
        message = f"no sequence of {first.max_total_tokens} tokens fits; planned for {words}"
        hint = "ask for max_total_tokens to choose otherwise"
        yield Finding("note", "shape-reduced", message, hint)
    elif None in (requested.max_batch, requested.max_input_tokens, requested.max_total_tokens):
        yield Finding("note", "shape-chosen", f"planned for {words}")


def _explain_requests(
    request: BuildRequest, layout: CandidateLayout, target: Objective
) -> Iterator[Finding]:
    """Warn of requests that do not fit the plan: too many, too long or too slow."""
    shape, budget, workload = layout.shape, layout.budget, target.workload
    tokens = min(workload.tokens, shape.max_total_tokens)
    held = budget.count_requests(tokens)
    if request.max_batch is not None and held < shape.max_batch:
        message = (
            f"a batch of {shape.max_batch} is requested; the cache holds {held} of "
            f"{tokens} tokens: beyond that the engine preempts the latest and computes it again"
        )
        hint = f"lower max_batch to {max(1, held)}, or state a shorter --workload"
        yield Finding("warning", "cache-too-small", message, hint)
    yield from _explain_workload(request, shape, workload)
    if layout.point is not None and not layout.in_time:
        yield _limit_missed(layout.point, target)


def _explain_slots(
    request: BuildRequest, fit: PlanFit, target: Objective, setup: Setup | None
) -> Iterator[Finding]:
    """Warn of requests that do not fit a plan whose slots are reserved: too long or too slow.

    Limits of the request are only checked: they do not reduce the number of slots.
    """
    yield from _explain_workload(request, fit.shape, target.workload)
    is_limited = request.tpot_limit_ms is not None or request.ttft_limit_ms is not None
    if setup is None or not is_limited:
        return
    slots = fit.shape.max_batch * fit.split.copies
    many = min(slots, target.workload.concurrency or slots)
    point = predict_point(setup, target.workload, many)
    if not keeps_limits(point, target):
        yield _limit_missed(point, target)


def _explain_workload(request: BuildRequest, shape: Shape, workload: Workload) -> Iterator[Finding]:
    if request.workload and workload.longest_tokens > shape.max_total_tokens:
        message = (
            f"requests of the workload have up to {workload.longest_tokens} tokens with their "
            f"answer; the server takes {shape.max_total_tokens}"
        )
        hint = "raise max_total_tokens, or choose a model or an instance that takes more"
        yield Finding("warning", "workload-too-long", message, hint)


def _limit_missed(point: Point, target: Objective) -> Finding:
    limits = f"{target.tpot_limit_s * 1e3:g} ms per token"
    if target.ttft_limit_s is not None:
        limits += f" and {target.ttft_limit_s * 1e3:g} ms to the first"
    message = (
        f"{point.concurrency} requests at once are predicted to take "
        f"{point.tpot_s * 1e3:,.1f} ms per token and "
        f"{point.first_token_s * 1e3:,.0f} ms to the first; the limit is {limits}"
    )
    hint = "try `--quantize auto`, `--goal latency` or a faster instance"
    return Finding("warning", "limit-missed", message, hint)
