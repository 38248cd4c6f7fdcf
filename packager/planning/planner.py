"""From facts to a plan, with everything that is wrong said at once.

A plan is a pure function of its facts.  What reaches the image must not
depend on the machine that builds it; see `packager.planning.shape`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from packager.core.facts import Facts
from packager.core.findings import Finding, errors_in
from packager.core.instance import LOCAL, Instance
from packager.core.model import ModelProfile
from packager.core.plan import MemoryBudget, Plan
from packager.core.request import BuildRequest
from packager.core.shape import Shape
from packager.core.units import gib
from packager.errors import PlanRejected
from packager.planning.memory import RULES, make_budget
from packager.planning.parallelism import choose_tp_degree, find_degrees
from packager.planning.precision import check_format, choose_dtype, precision_word
from packager.planning.profile import make_profile
from packager.planning.shape import (
    LEAST_TOKENS,
    check_shape,
    first_shape,
    larger_shapes,
    smaller_shapes,
)
from packager.ports import ContainerFamily

SERVED_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}", re.ASCII)  # as BuildRequest has it

# Four bits a weight and a scale for each group of 128, with embeddings kept whole:
# Llama-3-70B has 141.1 GB in bf16 and 39.7 GB as AWQ with groups of 128.
FOUR_BIT_SHARE = 0.28


@dataclass(frozen=True, slots=True)
class Fit:
    """A shape and a degree that go together, or the closest miss, and what to say of it."""

    shape: Shape
    budget: MemoryBudget
    findings: tuple[Finding, ...]


def make_plan(facts: Facts, family: ContainerFamily) -> Plan:
    """Decide, or raise `PlanRejected` with every finding.

    Checks that need the answer of a failed one are left out: without numbers
    there is no memory to reckon, and without a fit nothing to ask the family.
    """
    request, instance = facts.request, facts.instance
    served_name = request.served_name or facts.model.ref.name
    findings = [*_check_device(facts), *_check_served_name(served_name)]
    profile, profile_findings = make_profile(facts.model)
    shape_findings = check_shape(request, profile.max_positions)
    findings += [*profile_findings, *shape_findings]
    if errors_in(profile_findings) or instance.kind not in RULES:
        raise PlanRejected(tuple(findings))

    dtype, dtype_findings = choose_dtype(profile, instance)
    degrees, degree_findings = find_degrees(profile, instance.devices, request.tp_degree)
    findings += [*dtype_findings, *check_format(profile, instance), *degree_findings]
    if errors_in((*shape_findings, *degree_findings)):
        raise PlanRejected(tuple(findings))

    fit = find_fit(request, profile, instance, degrees)
    findings += fit.findings
    if errors_in(findings):
        raise PlanRejected(tuple(findings))
    plan = Plan(
        model=facts.model.ref,
        profile=profile,
        instance=instance,
        container=facts.container,
        served_name=served_name,
        shape=fit.shape,
        tp_degree=fit.budget.tp_degree,
        replicas=instance.devices // fit.budget.tp_degree,
        dtype=dtype,
        precision=precision_word(profile, dtype),
        budget=fit.budget,
        findings=(),
    )
    findings += family.check(plan)
    if errors_in(findings):
        raise PlanRejected(tuple(findings))
    return replace(plan, findings=tuple(findings))


def find_fit(
    request: BuildRequest, profile: ModelProfile, instance: Instance, degrees: tuple[int, ...]
) -> Fit:
    """Find the first shape that fits at some degree, then let its batch grow at that degree."""
    budget_for = partial(make_budget, profile, instance)
    asked = first_shape(request, profile.max_positions, instance.kind)
    shapes = (asked,) if instance.name == LOCAL else tuple(smaller_shapes(request, asked))
    for shape in shapes:
        choice = choose_tp_degree(degrees, partial(budget_for, shape))
        if choice.tp_degree is None:
            continue
        for larger in _growth(request, asked, shape, instance):
            if not budget_for(larger, choice.tp_degree).fits:
                break
            shape = larger
        budget = budget_for(shape, choice.tp_degree)
        return Fit(shape, budget, (*choice.passed_over, *_explain_shape(request, asked, shape)))
    least = shapes[-1]
    missed = budget_for(least, degrees[-1])
    passed_over = choose_tp_degree(degrees, partial(budget_for, least)).passed_over
    return Fit(least, missed, (*passed_over, _does_not_fit(profile, instance, least, missed)))


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


def _check_device(facts: Facts) -> Iterator[Finding]:
    container, instance = facts.container, facts.instance
    if container.kind != instance.kind:
        message = (
            f"the {container.family} image for {container.kind} does not run "
            f"on {instance.name}, which has {instance.kind} devices"
        )
        yield Finding("error", "container-not-for-device", message, "choose another family")
    elif (instance.compute_capability or 0.0) < container.least_compute_capability:
        message = (
            f"{instance.device_name} has compute capability {instance.compute_capability}; "
            f"the {container.family} image is built for {container.least_compute_capability} "
            "and later"
        )
        hint = "choose a newer instance, such as 'ml.g5.xlarge'"
        yield Finding("error", "device-too-old", message, hint)
    elif instance.kind not in RULES:
        message = f"memory of {instance.kind} devices cannot be reckoned yet"
        yield Finding("error", "device-not-planned", message, "choose an instance with GPUs")


def _check_served_name(name: str) -> Iterator[Finding]:
    if not SERVED_NAME.fullmatch(name):
        message = f"{name[:60]!r} cannot be the name that clients put into `model`"
        hint = "give a served name of letters, digits and . _ / -"
        yield Finding("error", "served-name", message, hint)


def _does_not_fit(
    profile: ModelProfile, instance: Instance, shape: Shape, budget: MemoryBudget
) -> Finding:
    message = (
        f"the model does not fit {instance.name}: for {shape.max_batch} at once of "
        f"{shape.max_total_tokens} tokens, at TP {budget.tp_degree}, a device needs "
        f"{gib(budget.needed_bytes)} (weights {gib(budget.weights_bytes)}, "
        f"KV cache {gib(budget.kv_bytes)}, activations {gib(budget.activations_bytes)}, "
        f"engine {gib(budget.overhead_bytes)}) and has {gib(budget.usable_bytes)} usable"
    )
    return Finding("error", "does-not-fit", message, _way_out(profile, instance, shape, budget))


def _way_out(profile: ModelProfile, instance: Instance, shape: Shape, budget: MemoryBudget) -> str:
    for changes, smaller in _cuts(shape, budget):
        if make_budget(profile, instance, smaller, budget.tp_degree).fits:
            return f"lower {changes}, or choose an instance with more memory"
    packed_bytes = int(budget.weights_bytes * FOUR_BIT_SHARE)
    saved_bytes = budget.weights_bytes - packed_bytes
    if (
        not profile.quantization
        and "w4a16" in instance.formats
        and budget.needed_bytes - saved_bytes <= budget.usable_bytes
    ):
        return (
            f"use a 4-bit checkpoint (about {gib(packed_bytes)} of weights per device), "
            "or an instance with more memory"
        )
    return "choose an instance with more memory, or more devices"


def _cuts(shape: Shape, budget: MemoryBudget) -> Iterator[tuple[str, Shape]]:
    """Suggest shapes that may fit: first fewer sequences, then one, shorter and shorter."""
    sequences = min(budget.kv_tokens_left // shape.max_total_tokens, shape.max_batch - 1)
    for batch in (sequences, sequences - 1):
        if batch > 0:
            yield f"max_batch to {batch}", replace(shape, max_batch=batch)
    total = shape.max_total_tokens // 2
    while total >= LEAST_TOKENS:
        words = f"max_batch to 1 and max_total_tokens to {total}"
        yield words, replace(shape, max_batch=1, max_total_tokens=total)
        total //= 2
