"""From facts to a plan, with everything that is wrong said at once.

A plan is a pure function of its facts.  What reaches the image must not
depend on the machine that builds it; see `packager.planning.shape`.  Every
field of the request is either honoured or refused; none is dropped silently.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from packager.core.catalog import Rule
from packager.core.facts import Facts
from packager.core.findings import Finding, errors_in
from packager.core.instance import LOCAL, Instance
from packager.core.model import ModelProfile
from packager.core.plan import MemoryBudget, Plan
from packager.core.request import BuildRequest
from packager.core.shape import Shape
from packager.core.split import Split
from packager.core.techniques import Rejected
from packager.errors import PlanRejected
from packager.planning.arrived import written_demands
from packager.planning.asked import check_facts
from packager.planning.compilers import choose_compiler
from packager.planning.drafts.choose import choose_draft
from packager.planning.drafts.split import check_draft_split, draft_divides
from packager.planning.gate import check_head, inspect_quantized
from packager.planning.memory import Demand, make_budget
from packager.planning.misfit import explain_misfit
from packager.planning.nearest import find_nearest
from packager.planning.neuron_targets import check_exported
from packager.planning.nodes import check_nodes, plan_on_nodes
from packager.planning.parallelism import choose_split, note_split
from packager.planning.precision import (
    check_format,
    check_kv_dtype,
    choose_dtype,
    precision_word,
)
from packager.planning.profile import make_profile
from packager.planning.quantizable import TABLE_OF
from packager.planning.schemes import (
    choose_quantization,
    passed_over_methods,
    quantized_weight_bytes,
)
from packager.planning.shape import (
    check_prefill,
    check_shape,
    first_shape,
    larger_shapes,
    smaller_shapes,
)
from packager.planning.splits import Splits, check_idle, find_splits
from packager.planning.stacking import check_stack
from packager.ports import Compiler, ContainerFamily, Quantizer

NOBODY: Mapping[str, Compiler] = {}

COMPILER_THAT_QUANTIZES = "tensorrt_llm"  # with ModelOpt, of whose architectures nothing is known


@dataclass(frozen=True, slots=True)
class Fit:
    """A shape and a split that go together, or the closest miss, and what to say of it."""

    shape: Shape
    split: Split
    budget: MemoryBudget
    findings: tuple[Finding, ...]
    rejected: tuple[Rejected, ...] = ()


def make_plan(
    facts: Facts,
    family: ContainerFamily,
    *,
    instances: tuple[Instance, ...] = (),
    rules: tuple[Rule, ...] = (),
    quantizer: Quantizer | None = None,
    compilers: Mapping[str, Compiler] = NOBODY,
) -> Plan:
    """Decide, or raise `PlanRejected` with every finding and the nearest plans that fit.

    `instances` are those that may be suggested instead; `rules` say which
    techniques go together; of `compilers` the request names one, or none.
    """
    profile, findings = make_profile(facts.model)
    if errors_in(findings):
        early = [*check_facts(facts), *findings, *check_shape(facts.request, 0)]
        raise PlanRejected(tuple(early))
    gate = inspect_quantized(facts.model, facts.scales).findings
    findings += gate
    try:
        return _decide(facts, family, profile, findings, rules, quantizer, compilers)
    except PlanRejected as rejected:
        if errors_in(gate):
            raise  # no other instance or shape mends a checkpoint
        together = plan_on_nodes(
            facts,
            rejected,
            family.abilities(facts.container),
            lambda changed: _decide(
                changed, family, profile, findings, rules, quantizer, compilers
            ),
        )
        if together is not None:
            return together
        nearest = find_nearest(
            facts,
            instances,
            lambda changed: _decide(
                changed, family, profile, findings, rules, quantizer, compilers
            ),
        )
        raise PlanRejected(rejected.findings, nearest) from None


def _decide(
    facts: Facts,
    family: ContainerFamily,
    profile: ModelProfile,
    read: tuple[Finding, ...],
    rules: tuple[Rule, ...],
    quantizer: Quantizer | None,
    compilers: Mapping[str, Compiler],
) -> Plan:
    """Decide for a model whose numbers are sound.

    Checks that need the answer of a failed one are left out: without a degree
    there is no memory to reckon, and without a fit nothing to ask the family.
    The rules are asked in any case, so that no conflict hides behind another.
    """
    request, instance = facts.request, facts.instance
    findings = [*check_facts(facts), *read, *check_shape(request, profile.max_positions)]
    findings += check_prefill(request)
    dtype, found = choose_dtype(profile, instance)
    methods = quantizer.methods if quantizer else {}
    quantized = choose_quantization(
        request.quantize,
        profile,
        instance,
        facts.container,
        methods,
        config=facts.model.config if _asks_table(request, quantizer) else None,
    )
    drafted = choose_draft(facts, profile)
    findings += [*found, *check_format(profile, instance), *quantized.findings]
    findings += [*check_kv_dtype(request.kv_dtype, instance), *drafted.findings]
    speculates = drafted.draft or drafted.counted
    by_head = speculates is not None and speculates.kind == "mtp"
    findings += check_head(facts.model, drafts=by_head)

    quantization = quantized.quantization
    served = quantization if not errors_in(quantized.findings) else None
    grouped = replace(profile, group_size=served.group_size if served else 0)
    abilities = family.abilities(facts.container)
    layouts = find_splits(grouped, instance, abilities, request)
    draft = drafted.draft
    if draft is not None:
        layouts = layouts.where(
            lambda split: (
                draft_divides(draft, split.tp_degree) and abilities.may_draft(split, draft.kind)
            )
        )
    rejected = layouts.rejected
    findings += [*layouts.findings, *_notes(rejected)]
    demand = Demand(
        weight_bytes=quantized_weight_bytes(profile, quantization),
        kv_element_bytes=1 if request.kv_dtype == "fp8" else 2,
        max_prefill_tokens=request.max_prefill_tokens,
        draft=drafted.draft or drafted.counted,
        engine=facts.container.engine,
        engine_version=facts.container.engine_version,
    )
    may_fit = not errors_in(findings)
    if may_fit:
        fit = find_fit(request, profile, instance, layouts, demand=demand)
        findings += fit.findings
    else:
        fit = _sketch(request, profile, instance, layouts.splits, demand)
    split = fit.split
    if may_fit and request.tp_degree is None:
        findings += note_split(profile, instance, split.tp_degree)
    if may_fit:
        findings += check_idle(split, instance, abilities, request)
        findings += check_nodes(split, instance, abilities)
    plan = Plan(
        model=facts.model.ref,
        profile=profile,
        instance=instance,
        container=facts.container,
        served_name=request.served_name or facts.model.ref.name,
        shape=fit.shape,
        tp_degree=split.tp_degree,
        pp_degree=split.pp_degree,
        dp_degree=split.dp_degree,
        workers=split.workers,
        nodes=split.nodes,
        expert_parallel=split.expert_parallel,
        dp_attention=split.dp_attention,
        dtype=dtype,
        precision=precision_word(profile, dtype, quantization),
        budget=fit.budget,
        findings=(),
        max_prefill_tokens=request.max_prefill_tokens,
        kv_dtype=request.kv_dtype or "auto",
        weights=request.weights,
        quantization=quantization,
        draft=drafted.draft,
        rejected=(
            *rejected,
            *fit.rejected,
            *(
                ()
                if quantization
                else passed_over_methods(
                    profile, instance, split.tp_degree, facts.container.engine, facts.model.config
                )
            ),
        ),
        engine_options=tuple((request.engine_options or {}).items()),
        arrived=inspect_quantized(facts.model, facts.scales).arrived
        or written_demands(quantization),
        containers=facts.containers,
    )
    fits = may_fit and not errors_in(findings)
    said = {finding.code for finding in findings}
    chosen = choose_compiler(facts, plan, compilers)
    findings += chosen.findings
    plan = replace(plan, compiler=chosen.name)
    findings += check_exported(facts, plan)
    stacked = check_stack(plan, rules, compiler=chosen.name or request.compile)
    findings += [finding for finding in stacked if finding.code not in said]
    findings += check_draft_split(plan) if may_fit else ()
    if fits:
        findings += family.check(plan)
    if fits and quantizer and quantization and not quantization.existing:
        findings += quantizer.check(facts, plan)
    if errors_in(findings):
        raise PlanRejected(tuple(findings))
    return replace(plan, findings=tuple(findings))


def _asks_table(request: BuildRequest, quantizer: Quantizer | None) -> bool:
    """Whether the table of architectures speaks of what will quantize."""
    by_compiler = request.compile == COMPILER_THAT_QUANTIZES
    return (quantizer is None or quantizer.name == TABLE_OF) and not by_compiler


def _sketch(
    request: BuildRequest,
    profile: ModelProfile,
    instance: Instance,
    splits: tuple[Split, ...],
    demand: Demand,
) -> Fit:
    """Give what a plan would be about that is rejected anyway: for rules, never to be shown."""
    shape = first_shape(request, profile.max_positions, instance.kind)
    degree, depth = min(request.tp_degree or 1, instance.devices), min(request.pp_degree or 1, 64)
    split = splits[0] if splits else Split(tp_degree=degree, pp_degree=depth)
    return Fit(shape, split, _budget(profile, instance, demand, shape, split), ())


def find_fit(
    request: BuildRequest,
    profile: ModelProfile,
    instance: Instance,
    splits: Splits,
    *,
    demand: Demand | None = None,
) -> Fit:
    """Find the first shape that fits at some split, then let its batch grow there.

    A pipeline only comes when no degree fits in any shape: it waits where
    tensor parallelism works.
    """
    asked = first_shape(request, profile.max_positions, instance.kind)
    shapes = (asked,) if instance.name == LOCAL else tuple(smaller_shapes(request, asked))
    rejected: tuple[Rejected, ...] = ()
    for depth in splits.depths:
        staged = splits.at_depth(depth)
        budget_for = partial(_budget, profile, instance, demand)
        for shape in shapes:
            choice = choose_split(staged, partial(budget_for, shape))
            if choice.split is None:
                continue
            for larger in _growth(request, asked, shape, instance):
                if not budget_for(larger, choice.split).fits:
                    break
                shape = larger
            rejected += choice.passed_over
            said = (*_notes(rejected), *_explain_shape(request, asked, shape))
            return Fit(shape, choice.split, budget_for(shape, choice.split), said, rejected)
        rejected += choose_split(staged, partial(budget_for, shapes[-1])).passed_over
    return _miss(request, profile, instance, splits, demand, shapes[-1], rejected)


def _miss(
    request: BuildRequest,
    profile: ModelProfile,
    instance: Instance,
    splits: Splits,
    demand: Demand | None,
    least: Shape,
    rejected: tuple[Rejected, ...],
) -> Fit:
    """Give the arithmetic of the split that comes closest."""
    if not splits.splits:
        message = f"no way of splitting the model uses the devices of {instance.name}"
        hint = "lower tp_degree or pp_degree, or choose an instance with other devices"
        finding = Finding("error", "no-split", message, hint)
        alone = Split()
        budget = _budget(profile, instance, demand, least, alone)
        return Fit(least, alone, budget, (finding,), rejected)
    tried = [(split, _budget(profile, instance, demand, least, split)) for split in splits.splits]
    split, missed = min(tried, key=lambda one: one[1].needed_bytes)
    pipelined = (missed.pp_degree, demand)
    finding = explain_misfit(profile, instance, least, missed, pipelined, request.quantize)
    return Fit(least, split, missed, (*_notes(rejected), finding), rejected)


def _budget(
    profile: ModelProfile,
    instance: Instance,
    demand: Demand | None,
    shape: Shape,
    split: Split,
) -> MemoryBudget:
    return make_budget(
        profile,
        instance,
        shape,
        split.tp_degree,
        demand,
        pp_degree=split.pp_degree,
        expert_degree=split.expert_degree,
        expert_parallel=split.expert_parallel,
    )


def _notes(rejected: tuple[Rejected, ...]) -> tuple[Finding, ...]:
    return tuple(Finding("note", one.code, one.reason) for one in rejected)


def _growth(
    request: BuildRequest, asked: Shape, shape: Shape, instance: Instance
) -> Iterator[Shape]:
    if instance.name != LOCAL and shape == asked:
        yield from larger_shapes(request, shape, instance.kind)


def _explain_shape(request: BuildRequest, asked: Shape, shape: Shape) -> Iterator[Finding]:
    words = (
        f"{shape.max_batch} at once, {shape.max_total_tokens} tokens each "
        f"({shape.max_input_tokens} of them prompt)"
    )
    if shape.kv_tokens < asked.kv_tokens:
        message = (
            f"{asked.max_batch} requests of {asked.max_total_tokens} tokens do not fit; "
            f"planned for {words}"
        )
        hint = "ask for max_batch and max_total_tokens to choose otherwise"
        yield Finding("note", "shape-reduced", message, hint)
    elif None in (request.max_batch, request.max_input_tokens, request.max_total_tokens):
        yield Finding("note", "shape-chosen", f"planned for {words}")
