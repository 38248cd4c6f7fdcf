"""The layout of a plan's model over the devices: the one that serves the request best."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from packager.core.catalog import Accelerator
from packager.core.facts import Facts
from packager.core.findings import Finding, errors_in
from packager.core.plan import MemoryBudget, Plan
from packager.core.ports import ContainerFamily
from packager.core.split import Split
from packager.core.techniques import Rejected
from packager.estimate.performance.predict import Setup, can_predict, setup_of
from packager.estimate.sizing.concurrency import most_at_once
from packager.estimate.sizing.nodes import check_nodes
from packager.estimate.sizing.parallelism import note_split
from packager.estimate.sizing.splits import check_idle
from packager.optimize.drafts.split import check_draft_split
from packager.pipeline.planning.fit import PlanFit, Room, find_fit, reserves
from packager.pipeline.planning.quantizing import check_parts
from packager.pipeline.planning.requested import split_of, target_of
from packager.pipeline.planning.services import PlannerServices


def lay_out(
    plan: Plan, facts: Facts, splits: tuple[Split, ...], room: Room, services: PlannerServices
) -> tuple[Plan, list[Finding]]:
    """Choose the layout of the model over the devices that serves the request best."""
    request, instance, traits = facts.request, facts.instance, facts.container.traits
    accelerator_of = services.accelerator_of
    find = partial(
        find_fit,
        room,
        target=target_of(request, facts.workload),
        most=most_at_once(facts.container, instance),
        setup_at=partial(_setup_at, plan, accelerator_of(instance))
        if accelerator_of
        else _unpredicted,
    )
    fit = _find_served(plan, splits, find, services.family)
    findings = list(fit.findings)
    laid_out = replace(_laid_out(plan, fit), rejected=(*plan.rejected, *fit.rejected))
    if request.tp_degree is None:
        findings += note_split(plan.profile, instance, laid_out.tp_degree)
    findings += check_idle(laid_out.split, instance, traits, split_of(request))
    findings += check_nodes(laid_out.split, instance, traits)
    return laid_out, findings


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
    return setup if can_predict(setup) and plan.dtype != "fp32" else None


def _unpredicted(split: Split, budget: MemoryBudget) -> None:
    """Return no prediction."""
