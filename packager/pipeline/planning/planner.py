"""Conversion of facts into a plan, with all findings collected.

A plan is a pure function of its facts.  What reaches the image must not
depend on the machine that builds it; see `packager.estimate.sizing.shape`.  Every
field of the request is either honoured or refused; none is dropped silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from packager.core.errors import PlanRejected
from packager.core.facts import Facts
from packager.core.findings import LACKS, MEMORY, Finding, errors_in
from packager.core.model import ModelProfile
from packager.core.plan import GPU_MEMORY_UTILIZATION, Plan
from packager.core.platforms import platform_for
from packager.core.quality import limits_of
from packager.core.split import Split
from packager.core.techniques import Quantization, Rejected
from packager.engines.effects import check_effects, count_options
from packager.engines.lengths import LengthLimit
from packager.engines.load_formats import (
    ChosenLoadFormat,
    choose_load_format,
    suggest_load_format,
)
from packager.engines.neuron_targets import check_exported
from packager.engines.parsers import Parsers, choose_parsers
from packager.engines.stopping import stopping_of
from packager.estimate.performance.token_cost import token_cost
from packager.estimate.sizing.blocks import check_misfits, read_blocks
from packager.estimate.sizing.left_out import check_entries, entries_left_out
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
from packager.estimate.sizing.splits import Splits, find_splits
from packager.models.architectures.demands import written_demands
from packager.models.architectures.profile import make_profile
from packager.models.checkpoints.gate import check_in_engine, inspect_quantized
from packager.optimize.compile.choose import NOT_REQUESTED, choose_compiler
from packager.optimize.drafts.choose import DraftChoice, choose_draft
from packager.optimize.drafts.positions import check_positions
from packager.optimize.drafts.request import AUTO as AUTO_DRAFT
from packager.optimize.drafts.split import check_draft_split, draft_divides
from packager.pipeline.planning.adapters import (
    check_adapters,
    choose_adapters,
    compiler_for,
    with_slot_bytes,
)
from packager.pipeline.planning.fit import PlanFit, Room, notes_of
from packager.pipeline.planning.layout import lay_out
from packager.pipeline.planning.model_files import check_files, format_options
from packager.pipeline.planning.option_effects import (
    check_length,
    derive_limit,
    make_room,
    own_options,
)
from packager.pipeline.planning.option_paths import check_option_paths
from packager.pipeline.planning.pictures import check_pictures
from packager.pipeline.planning.pooling import check_request, step_of
from packager.pipeline.planning.quantizing import check_parts, choose_schemes
from packager.pipeline.planning.request_checks import check_facts
from packager.pipeline.planning.requested import (
    evaluation_of,
    layers_of,
    quantizing_of,
    shape_of,
    split_of,
    target_of,
)
from packager.pipeline.planning.services import PlannerServices
from packager.pipeline.planning.stacking import check_stack
from packager.pipeline.planning.suggestions import find_nearest, note_one_machine, plan_on_nodes


def make_plan(facts: Facts, services: PlannerServices) -> Plan:
    """Decide, or raise `PlanRejected` with every finding and the nearest plans that fit."""
    container = replace(facts.container, traits=services.family.traits(facts.container))
    served = replace(facts, container=container)
    profile, of_headers = make_profile(facts.model)
    if errors_in(of_headers):
        early = [*check_facts(served), *of_headers, *check_shape(shape_of(facts.request), 0)]
        raise PlanRejected(tuple(early))
    of_weights = inspect_quantized(facts.model, facts.scales).findings
    read = (*of_headers, *of_weights)

    def plan(changed: Facts) -> Plan:
        return _decide(changed, profile, read, services)

    try:
        return plan(served)
    except PlanRejected as rejected:
        if errors_in(of_weights):
            raise  # no other instance or shape mends a checkpoint
        together = plan_on_nodes(served, rejected, plan)
        if together is None and services.instances is None:
            raise
        smaller = _note_smaller(
            rejected,
            profile,
            served,
            lambda fewer: _decide(served, fewer, read, services),
            services,
        )
        instances, cost = services.instances or (), _cost_of(served, services)
        if together is not None:
            one_machine = note_one_machine(served, instances, plan, cost)
            found = (*together.findings, *smaller, *one_machine)
            return replace(together, findings=found)
        nearest = find_nearest(served, instances, plan, cost)
        raise PlanRejected((*rejected.findings, *smaller), nearest) from None


def _cost_of(facts: Facts, services: PlannerServices) -> Callable[[Plan], float | None]:
    """Return what predicts US dollars per million tokens; None without figures of devices."""
    accelerator_of = services.accelerator_of
    if accelerator_of is None:
        return lambda _: None
    target = replace(target_of(facts.request, facts.workload), goal="cost")
    return lambda plan: token_cost(plan, accelerator_of(plan.instance), target)


def _note_smaller(
    rejected: PlanRejected,
    profile: ModelProfile,
    facts: Facts,
    plan: Callable[[ModelProfile], Plan],
    services: PlannerServices,
) -> tuple[Finding, ...]:
    """Return a note on a checkpoint with fewer bits where only memory is lacking."""
    if [error.data.get(LACKS) for error in errors_in(rejected.findings)] != [MEMORY]:
        return ()
    traits = facts.container.traits
    return find_smaller_checkpoint(profile, facts.instance, traits, plan, services.smaller)


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
    facts: Facts, profile: ModelProfile, read: tuple[Finding, ...], services: PlannerServices
) -> Plan:
    """Make the plan of a model with a valid profile.

    Checks that need the result of a failed one are skipped: without a degree there is no memory
    to compute, and without a fit nothing for the family to check.  Rules are always checked, so
    that no conflict hides behind another.
    """
    adapted = choose_adapters(facts)
    facts, read = adapted.facts, (*read, *adapted.findings)
    request = facts.request
    limit = derive_limit(facts, profile)
    # A requested length may exceed the known maximum.
    longest = limit.tokens or max(profile.max_positions, request.max_total_tokens or 0)
    if profile.pooling is not None:
        longest = min(longest, profile.max_positions)
    chosen = _choose(facts, replace(profile, max_positions=longest), limit, read, services)
    findings = list(chosen.findings)
    may_fit = not errors_in(findings)
    first = replace(_first_plan(facts, chosen), adapters=adapted.plan)
    laid_out, of_layout = (
        lay_out(first, facts, chosen.layouts.splits, chosen.room, services)
        if may_fit
        else (first, [])
    )
    findings += of_layout
    laid_out = with_slot_bytes(laid_out, chosen.room.demand.adapters)
    fits = not errors_in(findings)
    said = {finding.code for finding in findings}
    loading = ChosenLoadFormat()
    if may_fit:
        compiles = request.compile not in NOT_REQUESTED
        bucket = request.model if facts.model.ref.source == "s3" else ""
        loading = choose_load_format(request.load_format, laid_out, bucket, compiles=compiles)
        findings += loading.findings
    loaded = replace(
        laid_out,
        rejected=(*laid_out.rejected, *_rejected_methods(laid_out, facts)),
        load_format=loading.name,
        engine_options=(*laid_out.engine_options, *loading.options),
        streams_from=loading.streams_from,
    )
    if may_fit and (sharder := services.find_sharder(loading.name)) is not None:
        findings += sharder.check(facts, loaded)
    wanted, of_adapters = compiler_for(request.compile, loaded)
    compiler, of_compiler = choose_compiler(wanted, facts, loaded, services.compilers)
    findings += (*of_adapters, *of_compiler, *check_adapters(loaded))
    plan = replace(loaded, compiler=compiler)
    findings += [*check_exported(facts, plan), *check_option_paths(facts, plan)]
    named = compiler or request.compile
    stacked = check_parts(plan, partial(check_stack, rules=services.rules, compiler=named))
    findings += [finding for finding in stacked if finding.code not in said]
    findings += (*check_draft_split(plan), *check_positions(plan, facts.draft)) if may_fit else ()
    if fits:
        findings += check_parts(plan, services.family.check)
        findings += suggest_load_format(plan)
        findings += _check_quantizer(facts, plan, services)
    if errors_in(findings):
        raise PlanRejected(tuple(findings))
    return replace(plan, findings=tuple(findings))


def _rejected_methods(plan: Plan, facts: Facts) -> tuple[Rejected, ...]:
    """Return the methods that would not do, where none is taken."""
    if plan.quantization is not None:
        return ()
    profile, model = plan.profile, facts.model
    return rejected_methods(profile, plan.instance, plan.tp_degree, facts.container, model)


def _check_quantizer(facts: Facts, plan: Plan, services: PlannerServices) -> Iterable[Finding]:
    chosen = plan.quantization
    if services.quantizer is None or chosen is None or chosen.existing:
        return ()
    return services.quantizer.check(facts, plan)


def _choose(
    facts: Facts,
    profile: ModelProfile,
    limit: LengthLimit,
    read: tuple[Finding, ...],
    services: PlannerServices,
) -> _Chosen:
    """Choose number formats, draft and parsers, and the layouts that may be tried with them."""
    request, instance, container = facts.request, facts.instance, facts.container
    shape, traits = shape_of(request), container.traits
    answers = profile.pooling is None
    findings = [*check_facts(facts), *read, *check_request(facts, profile)]
    findings += check_shape(shape, profile.max_positions, answers=answers)
    findings += check_length(facts, limit) if answers else ()
    findings += [*check_prefill(shape), *check_pictures(facts)]
    findings += check_utilization(request.gpu_memory_utilization, instance)
    findings += check_entries(facts.model, request.quantize_ignore)
    findings += check_files(facts)
    loaded_dtype, of_dtype = choose_dtype(profile, instance, request.dtype)
    compiler = services.compilers.get(request.compile or "")
    quantized = choose_schemes(facts, profile, services.quantizer, compiler)
    drafted = _choose_draft(facts, profile)
    findings += [*of_dtype, *check_format(profile, instance, traits)]
    findings += [*check_processor(instance, traits), *quantized.findings]
    options = own_options(facts)
    counted = count_options(container.engine, options)
    by_option = counted.cache_dtype.startswith("fp8")  # `kv-cache-dtype` among them
    requested = choose_kv_dtype(request.kv_dtype, quantized.quantization, instance)
    kv_dtype = "fp8" if by_option else requested
    findings += [*check_kv_dtype(kv_dtype, instance, quantized.quantization), *drafted.findings]
    findings += check_effects(traits.who, container, options, profile)
    speculates = drafted.draft or drafted.counted
    by_head = speculates is not None and speculates.kind == "mtp"
    findings += check_in_engine(facts.model, traits, drafts=by_head)
    served = quantized.quantization if not errors_in(quantized.findings) else None
    dtype, of_scheme = quantized_dtype(loaded_dtype, profile, served, traits, request.dtype)
    findings += of_scheme
    parsers = choose_parsers(
        {"tool": request.tool_call_parser, "reasoning": request.reasoning_parser},
        request.engine_options or {},
        facts.model,
        container.engine,
        traits if answers else replace(traits, tool_parsers=(), reasoning_parsers=()),
    )
    left_out = entries_left_out(facts.model, request.quantize_ignore, traits)
    blocked = read_blocks(facts.model, profile, served, left_out)
    findings += [*parsers.findings, *check_misfits(blocked, served)]
    everything = find_splits(profile, instance, traits, split_of(request), blocked)
    draft = drafted.draft
    layouts = everything.where(
        lambda split: (
            draft is None
            or (draft_divides(draft, split.tp_degree) and traits.may_draft(split, draft.kind))
        )
    )
    findings += [*layouts.findings, *notes_of(layouts.rejected)]
    room = make_room(facts, profile, counted, quantized.quantization, speculates)
    step = None if counted.step_tokens else room.demand.max_prefill_tokens
    room, step, of_step = _choose_step(facts, profile, room, step)
    findings += of_step
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


def _choose_step(
    facts: Facts, profile: ModelProfile, room: Room, step: int | None
) -> tuple[Room, int | None, tuple[Finding, ...]]:
    """Return the tokens of a step that the plan sets, and memory with them."""
    if profile.pooling is None:
        return room, step, tuple(note_step(shape_of(facts.request), step))
    longest = room.first_shape.max_total_tokens
    step, findings = step_of(facts, profile, facts.instance, longest)
    return replace(room, demand=replace(room.demand, max_prefill_tokens=step)), step, findings


def _choose_draft(facts: Facts, profile: ModelProfile) -> DraftChoice:
    request = facts.request
    return choose_draft(
        facts,
        profile,
        request.speculative_tokens,
        request.engine_options,
        base=request.base or facts.container.default_base,
        weights=request.weights,
        is_auto=request.draft == AUTO_DRAFT,
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
        or written_demands(chosen.quantization, experts=profile.experts > 0),
        containers=facts.containers,
        gpu_memory_utilization=request.gpu_memory_utilization or GPU_MEMORY_UTILIZATION,
        workload=facts.workload,
        tool_parser=chosen.parsers.tool,
        reasoning_parser=chosen.parsers.reasoning,
        stopping=stopping_of(traits.stopping, given),
        base=request.base or facts.container.default_base,
        platform=platform_for(facts.instance, request.platform),
        layers=layers_of(request),
        quantizing=quantizing_of(request),
        evaluation=evaluation_of(request),
        limits=limits_of(request),
        step_gpus=request.gpus,
        step_threads=request.threads,
    )


def _sketch(room: Room, splits: tuple[Split, ...]) -> PlanFit:
    """Sketch the plan of a rejected request, only to check rules."""
    request = room.request
    degree = min(request.tp_degree or 1, room.instance.devices)
    alone = Split(tp_degree=degree, pp_degree=min(request.pp_degree or 1, 64))
    split, shape = splits[0] if splits else alone, room.first_shape
    return PlanFit(shape, split, room.budget(split, shape), ())
