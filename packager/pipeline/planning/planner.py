"""Conversion of facts into a plan, with all findings collected.

A plan is a pure function of its facts.  What reaches the image must not
depend on the machine that builds it; see `packager.estimate.sizing.shape`.  Every
field of the request is either honoured or refused; none is dropped silently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from packager.core.catalog import Accelerator, Rule
from packager.core.checkpoint import QuantizedCheckpoint
from packager.core.errors import PlanRejected
from packager.core.facts import Facts
from packager.core.findings import LACKS, MEMORY, Finding, errors_in
from packager.core.instance import Instance
from packager.core.model import ModelProfile
from packager.core.plan import GPU_MEMORY_UTILIZATION, MemoryBudget, Plan
from packager.core.ports import Compiler, ContainerFamily, Quantizer
from packager.core.split import Split
from packager.core.techniques import Quantization, Rejected
from packager.core.values import dataclass
from packager.engines.effects import check_effects, count_options
from packager.engines.lengths import LengthLimit
from packager.engines.load_formats import choose_load_format, suggest_load_format
from packager.engines.neuron_targets import check_exported
from packager.engines.parsers import Parsers, choose_parsers
from packager.engines.stopping import stopping_of
from packager.estimate.performance.choice import target_of
from packager.estimate.performance.predict import Setup, can_predict, setup_of
from packager.estimate.performance.token_cost import token_cost
from packager.estimate.sizing.blocks import check_misfits, read_blocks
from packager.estimate.sizing.concurrency import most_at_once
from packager.estimate.sizing.left_out import check_entries
from packager.estimate.sizing.nodes import check_nodes, plan_on_nodes
from packager.estimate.sizing.parallelism import note_split
from packager.estimate.sizing.precision import (
    check_format,
    check_kv_dtype,
    choose_dtype,
    choose_kv_dtype,
    precision_word,
    quantized_dtype,
)
from packager.estimate.sizing.processors import check_processor
from packager.estimate.sizing.schemes import rejected_methods
from packager.estimate.sizing.shape import check_prefill, check_shape, check_utilization, note_step
from packager.estimate.sizing.smaller import find_smaller_checkpoint
from packager.estimate.sizing.splits import Splits, check_idle, find_splits
from packager.models.architectures.demands import written_demands
from packager.models.architectures.profile import make_profile
from packager.models.checkpoints.gate import check_in_engine, inspect_quantized
from packager.optimize.compile.choose import choose_compiler
from packager.optimize.drafts.choose import DraftChoice, choose_draft
from packager.optimize.drafts.positions import check_positions
from packager.optimize.drafts.split import check_draft_split, draft_divides
from packager.pipeline.planning.fit import PlanFit, Room, find_fit, notes_of, reserves
from packager.pipeline.planning.model_files import check_files_read, check_left_out, format_options
from packager.pipeline.planning.option_effects import asked, check_length, derive_limit, make_room
from packager.pipeline.planning.option_paths import check_option_paths
from packager.pipeline.planning.quantizing import check_parts, choose_schemes
from packager.pipeline.planning.request_checks import check_facts
from packager.pipeline.planning.stacking import check_stack
from packager.pipeline.planning.suggestions import find_nearest, note_one_machine

AcceleratorOf = Callable[[Instance], Accelerator]

FindSharder = Callable[[str], Compiler | None]

NO_COMPILERS: Mapping[str, Compiler] = {}


def no_sharder(load_format: str) -> None:
    """Split no weights ahead of time."""


def make_plan(
    facts: Facts,
    family: ContainerFamily,
    *,
    instances: tuple[Instance, ...] | None = (),
    rules: tuple[Rule, ...] = (),
    quantizer: Quantizer | None = None,
    compilers: Mapping[str, Compiler] = NO_COMPILERS,
    find_sharder: FindSharder = no_sharder,
    accelerator_of: AcceleratorOf | None = None,
    smaller: tuple[QuantizedCheckpoint, ...] = (),
) -> Plan:
    """Decide, or raise `PlanRejected` with every finding and the nearest plans that fit.

    `instances` are those that may be suggested instead; None: no suggestions are made. `rules` say
    which techniques go together; of `compilers` the request names one, or none. `find_sharder`
    returns the tool that splits weights for a load format. `accelerator_of` gives figures of
    devices: without them nothing is predicted. `smaller` are published checkpoints of the model
    with fewer bits.
    """
    container = replace(facts.container, traits=family.traits(facts.container))
    facts = replace(facts, container=container)
    profile, findings = make_profile(facts.model)
    if errors_in(findings):
        early = [*check_facts(facts), *findings, *check_shape(facts.request, 0)]
        raise PlanRejected(tuple(early))
    gate = inspect_quantized(facts.model, facts.scales).findings
    findings += gate
    decide = partial(
        _decide,
        family=family,
        read=findings,
        rules=rules,
        quantizer=quantizer,
        compilers=compilers,
        find_sharder=find_sharder,
        accelerator_of=accelerator_of,
    )

    def cost(found: Plan) -> float | None:
        if accelerator_of is None:
            return None
        return token_cost(
            found,
            accelerator_of(found.instance),
            replace(target_of(facts.request, facts.workload), goal="cost"),
        )

    try:
        return decide(facts, profile=profile)
    except PlanRejected as rejected:
        if errors_in(gate):
            raise  # no other instance or shape mends a checkpoint
        planned = partial(decide, profile=profile)
        fewer_bits = partial(decide, facts)
        together = plan_on_nodes(facts, rejected, container.traits, planned)
        if together is None and instances is None:
            raise
        noted = _note_smaller(rejected, profile, facts, fewer_bits, smaller)
        if together is not None:
            noted += note_one_machine(facts, instances or (), planned, cost)
            return replace(together, findings=(*together.findings, *noted))
        nearest = find_nearest(facts, instances or (), planned, cost)
        raise PlanRejected((*rejected.findings, *noted), nearest) from None


def _note_smaller(
    rejected: PlanRejected,
    profile: ModelProfile,
    facts: Facts,
    plan: Callable[[ModelProfile], Plan],
    smaller: tuple[QuantizedCheckpoint, ...],
) -> tuple[Finding, ...]:
    """Return a note on a checkpoint with fewer bits where only memory is lacking."""
    if [error.data.get(LACKS) for error in errors_in(rejected.findings)] != [MEMORY]:
        return ()
    traits = facts.container.traits
    return find_smaller_checkpoint(profile, facts.instance, traits, plan, smaller)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    """Choices that precede the layout over devices, with their findings."""

    dtype: str
    quantization: Quantization | None
    drafted: DraftChoice
    parsers: Parsers
    layouts: Splits
    room: Room
    step_tokens: int | None  # that the plan sets; None where the engine or an option decides
    findings: tuple[Finding, ...]


def _decide(
    facts: Facts,
    profile: ModelProfile,
    *,
    family: ContainerFamily,
    read: tuple[Finding, ...],
    rules: tuple[Rule, ...],
    quantizer: Quantizer | None,
    compilers: Mapping[str, Compiler],
    find_sharder: FindSharder,
    accelerator_of: AcceleratorOf | None,
) -> Plan:
    """Make the plan of a model with a valid profile.

    Checks that need the result of a failed one are skipped: without a degree there is no memory
    to compute, and without a fit nothing for the family to check.  Rules are always checked, so
    that no conflict hides behind another.
    """
    limit = derive_limit(facts, profile)
    asked_tokens = facts.request.max_total_tokens or 0  # may exceed the known maximum
    longest = limit.tokens or max(profile.max_positions, asked_tokens)
    profile = replace(profile, max_positions=longest)
    chosen = _choose(facts, profile, limit, read, quantizer, compilers)
    findings = list(chosen.findings)
    quantization, instance = chosen.quantization, facts.instance
    plan = _first_plan(facts, chosen)
    may_fit = not errors_in(findings)
    if may_fit:
        plan, found = _lay_out(plan, facts, chosen, family, accelerator_of)
        findings += found
    if quantization is None:
        passed = rejected_methods(profile, instance, plan.tp_degree, facts.container, facts.model)
        plan = replace(plan, rejected=(*plan.rejected, *passed))
    fits = may_fit and not errors_in(findings)
    said = {finding.code for finding in findings}
    if may_fit:
        loading = choose_load_format(facts.request, plan)
        findings += loading.findings
        asked = (*plan.engine_options, *loading.options)
        plan = replace(
            plan,
            load_format=loading.name,
            engine_options=asked,
            streams_from=loading.streams_from,
        )
        if (sharder := find_sharder(loading.name)) is not None:
            findings += sharder.check(facts, plan)
    compiling = choose_compiler(facts, plan, compilers)
    findings += compiling.findings
    plan = replace(plan, compiler=compiling.name)
    findings += [*check_exported(facts, plan), *check_option_paths(facts, plan)]
    compiler = compiling.name or facts.request.compile
    stacked = check_parts(
        plan, partial(check_stack, rules=rules, compiler=compiler, base=facts.request.base)
    )
    findings += [finding for finding in stacked if finding.code not in said]
    findings += (*check_draft_split(plan), *check_positions(plan, facts.draft)) if may_fit else ()
    if fits:
        findings += check_parts(plan, family.check)
        findings += suggest_load_format(plan)
    if fits and quantizer and quantization and not quantization.existing:
        findings += quantizer.check(facts, plan)
    if errors_in(findings):
        raise PlanRejected(tuple(findings))
    return replace(plan, findings=tuple(findings))


def _choose(
    facts: Facts,
    profile: ModelProfile,
    limit: LengthLimit,
    read: tuple[Finding, ...],
    quantizer: Quantizer | None,
    compilers: Mapping[str, Compiler],
) -> _Chosen:
    """Choose number formats, draft and parsers, and the layouts that may be tried with them."""
    request, instance, container = facts.request, facts.instance, facts.container
    findings = [*check_facts(facts), *read, *check_shape(request, profile.max_positions)]
    findings += check_length(facts, limit)
    findings += [*check_prefill(request), *check_utilization(request, instance)]
    findings += check_entries(facts.model, request.quantize_ignore)
    findings += check_left_out(facts.model)
    findings += check_files_read(facts.model, container.traits, request)
    dtype, found = choose_dtype(profile, instance, request.dtype)
    compiler = compilers.get(request.compile or "")
    quantized = choose_schemes(facts, profile, quantizer, compiler)
    drafted = choose_draft(facts, profile)
    findings += [*found, *check_format(profile, instance, container.traits)]
    findings += [*check_processor(instance, container.traits), *quantized.findings]
    kv_dtype = choose_kv_dtype(request.kv_dtype, quantized.quantization, instance)
    options = asked(facts)
    counted = count_options(container.engine, options)
    if counted.cache_dtype.startswith("fp8"):
        kv_dtype = "fp8"  # `kv-cache-dtype` among the engine's options
    findings += [*check_kv_dtype(kv_dtype, instance, quantized.quantization), *drafted.findings]
    findings += check_effects(container.traits.who, container, options, profile)
    speculates = drafted.draft or drafted.counted
    by_head = speculates is not None and speculates.kind == "mtp"
    findings += check_in_engine(facts.model, container.traits, drafts=by_head)
    traits = container.traits
    served = quantized.quantization if not errors_in(quantized.findings) else None
    dtype, found = quantized_dtype(dtype, profile, served, traits, request.dtype)
    findings += found
    parsers = choose_parsers(request, facts.model, container.engine, traits)
    blocked = read_blocks(facts.model, profile, served, request.quantize_ignore)
    findings += [*parsers.findings, *check_misfits(blocked, served)]
    layouts = find_splits(profile, instance, traits, request, blocked)
    draft = drafted.draft
    if draft is not None:
        layouts = layouts.where(
            lambda split: (
                draft_divides(draft, split.tp_degree) and traits.may_draft(split, draft.kind)
            )
        )
    findings += [*layouts.findings, *notes_of(layouts.rejected)]
    room = make_room(facts, profile, counted, quantized.quantization, speculates)
    step = None if counted.step_tokens else room.demand.max_prefill_tokens
    findings += note_step(request, step)
    return _Chosen(
        dtype=dtype,
        quantization=quantized.quantization,
        drafted=drafted,
        parsers=parsers,
        layouts=layouts,
        room=room,
        step_tokens=step,
        findings=tuple(findings),
    )


def _first_plan(facts: Facts, chosen: _Chosen) -> Plan:
    """Return the plan of the first layout; the best one is searched afterwards."""
    request, profile = facts.request, chosen.room.profile
    given, traits = request.engine_options or {}, facts.container.traits
    sketch = _sketch(chosen.room, chosen.layouts.splits)
    return Plan(
        model=facts.model.ref,
        profile=profile,
        instance=facts.instance,
        container=facts.container,
        served_name=request.served_name or facts.model.ref.name,
        shape=sketch.shape,
        tp_degree=sketch.split.tp_degree,
        pp_degree=sketch.split.pp_degree,
        dtype=chosen.dtype,
        precision=precision_word(profile, chosen.dtype, chosen.quantization),
        budget=sketch.budget,
        findings=(),
        rejected=chosen.layouts.rejected,
        max_prefill_tokens=chosen.step_tokens,
        kv_dtype=choose_kv_dtype(request.kv_dtype, chosen.quantization, facts.instance),
        weights=request.weights,
        one_mount=request.weights == "mounted" and facts.writes_tree,
        quantization=chosen.quantization,
        draft=chosen.drafted.draft,
        engine_options=(*given.items(), *format_options(facts.model, traits, given)),
        arrived=inspect_quantized(facts.model, facts.scales).arrived
        or written_demands(chosen.quantization),
        containers=facts.containers,
        gpu_memory_utilization=request.gpu_memory_utilization or GPU_MEMORY_UTILIZATION,
        workload=facts.workload,
        tool_parser=chosen.parsers.tool,
        reasoning_parser=chosen.parsers.reasoning,
        stopping=stopping_of(traits.stopping, given),
    )


def _lay_out(
    plan: Plan,
    facts: Facts,
    chosen: _Chosen,
    family: ContainerFamily,
    accelerator_of: AcceleratorOf | None,
) -> tuple[Plan, list[Finding]]:
    """Choose the layout of the model over the devices that serves the request best."""
    request, instance, traits = facts.request, facts.instance, facts.container.traits
    find = partial(
        find_fit,
        chosen.room,
        target=target_of(request, facts.workload),
        most=most_at_once(facts.container, instance),
        setup_at=partial(_setup_at, plan, accelerator_of(instance))
        if accelerator_of
        else _unpredicted,
    )
    fit = _find_served(plan, chosen.layouts.splits, find, family)
    findings = list(fit.findings)
    laid_out = replace(_laid_out(plan, fit), rejected=(*plan.rejected, *fit.rejected))
    if request.tp_degree is None:
        findings += note_split(plan.profile, instance, laid_out.tp_degree)
    findings += check_idle(laid_out.split, instance, traits, request)
    findings += check_nodes(laid_out.split, instance, traits)
    return laid_out, findings


def _sketch(room: Room, splits: tuple[Split, ...]) -> PlanFit:
    """Sketch the plan of a rejected request, only to check rules."""
    request = room.request
    degree = min(request.tp_degree or 1, room.instance.devices)
    alone = Split(tp_degree=degree, pp_degree=min(request.pp_degree or 1, 64))
    split, shape = splits[0] if splits else alone, room.first_shape
    return PlanFit(shape, split, room.budget(split, shape), ())


def _find_served(
    plan: Plan,
    splits: tuple[Split, ...],
    find: Callable[[tuple[Split, ...]], PlanFit],
    family: ContainerFamily,
) -> PlanFit:
    """Find the best fit that the server takes; where it takes none, the best of all.

    A server may refuse one split, such as heads that do not divide, and take another.
    """
    if len(splits) < 2 or reserves(plan.instance):
        return find(splits)
    best: PlanFit | None = None
    fewest = 0
    refused: tuple[Rejected, ...] = ()
    while splits:
        fit = find(splits)
        if errors_in(fit.findings):
            return best or fit
        laid_out = _laid_out(plan, fit)
        errors = errors_in((*check_draft_split(laid_out), *check_parts(laid_out, family.check)))
        if not errors:
            return replace(fit, rejected=(*refused, *fit.rejected))
        if best is None or len(errors) < fewest:
            best, fewest = fit, len(errors)
        words, error = fit.split.words, errors[0]
        reason = f"{words} is not possible: {error.message}"
        refused += (Rejected(what=words.lower(), code=error.code, reason=reason),)
        splits = tuple(split for split in splits if split != fit.split)
    assert best is not None
    return best


def _laid_out(plan: Plan, fit: PlanFit) -> Plan:
    """Return the plan with the shape, split and memory that were found."""
    return replace(_with_split(plan, fit.split, fit.budget), shape=fit.shape)


def _with_split(plan: Plan, split: Split, budget: MemoryBudget) -> Plan:
    return replace(
        plan,
        tp_degree=split.tp_degree,
        pp_degree=split.pp_degree,
        dp_degree=split.dp_degree,
        workers=split.workers,
        nodes=split.nodes,
        expert_parallel=split.expert_parallel,
        dp_attention=split.dp_attention,
        budget=budget,
    )


def _setup_at(
    plan: Plan, accelerator: Accelerator, split: Split, budget: MemoryBudget
) -> Setup | None:
    """Return the prediction's inputs for a split; None without figures of the device."""
    setup = setup_of(_with_split(plan, split, budget), accelerator)
    return setup if can_predict(setup) else None


def _unpredicted(split: Split, budget: MemoryBudget) -> None:
    """Return no prediction."""
