"""Conversion of a request into facts, plan and recipe: nothing is run or written."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from packager.build.resolve import resolve
from packager.build.services import BuildServices
from packager.build.stages import Planned
from packager.core.devices import LARGE_HIDDEN, GpuUse, choose_gpus, gpus_in
from packager.core.events import working
from packager.core.facts import Facts
from packager.core.image import BaseImage, Platform
from packager.core.model import ModelFiles
from packager.core.plan import Plan
from packager.core.recipe import Recipe
from packager.core.references import HubReference, ModelReference
from packager.core.request import BuildRequest
from packager.core.tool import build_for
from packager.errors import PackagerError, PlanRejected, UsageError
from packager.findings import Finding, errors_in
from packager.performance.choice import target_of
from packager.planning.planner import make_plan
from packager.planning.recipe import make_recipe, needed_tools
from packager.ports import Quantizer, UsesGpus
from packager.quantize.method import AUTO, NONE, choose_method, methods_to_try
from packager.steps.devices import refuse_missing_gpus, threads_for
from packager.steps.gpus import check_gpu_use


def make_planned(request: BuildRequest, services: BuildServices, *, with_base: bool) -> Planned:
    """Pin every name, decide, and order the work; raise `PlanRejected` where it cannot be built."""
    refuse_missing_gpus(request.gpus, services)
    if services.outputs == "trees":  # whoever serves a tree mounts it
        request = request.model_copy(update={"weights": "mounted"})
    reference = services.parse_model_reference(request.model)
    headers = services.peek_model(reference)
    chosen: tuple[Finding, ...] = ()
    if request.quantize == AUTO:
        request, chosen = _with_method(request, reference, services, headers)
    for_image = services.outputs != "trees"
    facts = _gather(request, reference, services, headers, with_base=with_base and for_image)
    quantizer = services.find_quantizer(request.quantizing)
    compilers = services.find_compilers(request.compile)
    decide = _decider(facts, reference, services)
    with working(services.on_event, "plan", facts.instance.name):
        plan = decide(facts)
    if headers is not None:  # what is refused by now has cost no download
        model = services.find_model(reference)
        facts = replace(facts, model=model, scales=services.read_scales(model))
        plan = decide(facts)
    if request.evaluation and (plan.quantization is None or plan.quantization.existing):
        raise UsageError(
            "nothing is quantized here, so there is nothing to evaluate",
            hint="add --quantize METHOD; `packager evaluate` compares two checkpoints",
        )
    if with_base and facts.base is None:
        facts = replace(facts, base=_base_of_tree(facts, plan, services))
    elif plan.needs_base and facts.base is None:
        facts = replace(facts, base=_base_at_hand(facts, services))
    sharder = services.find_sharder(plan.load_format)
    if names := needed_tools(plan, quantizer, compilers.get(plan.compiler), sharder):
        facts, plan = _with_gpus(facts, plan, quantizer, services)
        building = {quantizer.tool: build_for(facts.gpus)} if quantizer else {}
        found = {
            name: services.executor.find_tool(name, building.get(name, "cpu")) for name in names
        }
        facts = replace(facts, model=services.pin_files(facts.model), tools=found)
    plan = replace(plan, findings=(*plan.findings, *chosen))
    return Planned(
        reference=reference, facts=facts, plan=plan, recipe=recipe_of(plan, facts, services)
    )


def _gather(
    request: BuildRequest,
    reference: ModelReference,
    services: BuildServices,
    headers: ModelFiles | None,
    *,
    with_base: bool,
) -> Facts:
    """Pin every name; the model by its headers where they were found alone."""
    return resolve(
        request,
        reference,
        parse_model_reference=services.parse_model_reference,
        find_model=services.find_model if headers is None else lambda _: headers,
        find_instance=services.find_instance,
        find_container=services.find_container,
        find_base=services.find_base if with_base else None,
        find_draft=services.find_draft,
        known_draft=services.known_draft,
        find_samples=services.find_samples,
        find_evaluation=services.find_evaluation,
        containers=services.containers(),
        read_scales=services.read_scales if headers is None else lambda _: None,
        read_head_values=services.read_head_values,
        read_workload=services.read_workload,
        writes_tree=services.outputs != "images",
    )


def _decider(
    facts: Facts, reference: ModelReference, services: BuildServices
) -> Callable[[Facts], Plan]:
    """Return the planner with the services of a request, for facts with more or less detail."""
    name = reference.name if isinstance(reference, HubReference) else None
    return partial(
        make_plan,
        family=services.family(facts.container.family),
        instances=services.instances,
        smaller=services.smaller_checkpoints(name) if name else (),
        rules=services.rules,
        quantizer=services.find_quantizer(facts.request.quantizing),
        compilers=services.find_compilers(facts.request.compile),
        find_sharder=services.find_sharder,
        accelerator_of=services.accelerator_of,
    )


def _with_method(
    request: BuildRequest,
    reference: ModelReference,
    services: BuildServices,
    headers: ModelFiles | None,
) -> tuple[BuildRequest, tuple[Finding, ...]]:
    """Choose the method that `--quantize auto` stands for; `none` where no method works."""
    alone = replace(services, instances=())  # no other instance is suggested for what is tried
    plain = request.model_copy(update={"quantize": NONE})
    facts = _gather(plain, reference, alone, headers, with_base=False)
    plans: dict[str, Plan] = {}
    quantized = bool(facts.model.config.get("quantization_config"))
    for method in methods_to_try(facts.instance, quantized=quantized):
        asked = request.model_copy(update={"quantize": method})
        tried = replace(facts, request=asked, samples=services.find_samples(asked))
        with suppress(PlanRejected):
            plans[method] = _decider(tried, reference, alone)(tried)
    if not plans:
        return plain, ()
    target = target_of(request, facts.workload)
    method, why = choose_method(plans, target, services.accelerator_of(facts.instance))
    return request.model_copy(update={"quantize": method}), (why,)


def _with_gpus(
    facts: Facts, plan: Plan, quantizer: Quantizer | None, services: BuildServices
) -> tuple[Facts, Plan]:
    """Choose the GPUs that quantizing runs on; raise `PlanRejected` where they are too small."""
    if plan.quantization is None or plan.quantization.existing:
        return facts, plan
    use = quantizer.gpu_use(facts, plan) if isinstance(quantizer, UsesGpus) else GpuUse()
    wish = facts.request.gpus
    there = gpus_in(services.executor.capacity()) if use.most and wish != 0 else None
    found = tuple(check_gpu_use("quantize", wish, use, there))
    if errors_in(found):
        raise PlanRejected((*plan.findings, *found))
    large = plan.profile.hidden_size >= LARGE_HIDDEN
    facts = replace(
        facts,
        gpus=choose_gpus(wish, use, there),
        threads=threads_for(facts.request.threads, services, is_large=large),
    )
    return facts, replace(plan, findings=(*plan.findings, *found)) if found else plan


def recipe_of(plan: Plan, facts: Facts, services: BuildServices) -> Recipe:
    """Return the recipe of a plan with the quantizer, compiler and family that it names."""
    return make_recipe(
        plan,
        facts,
        services.find_quantizer(facts.request.quantizing),
        services.find_compilers(facts.request.compile).get(plan.compiler),
        services.family(facts.container.family),
        services.find_sharder(plan.load_format),
    )


def _base_of_tree(facts: Facts, plan: Plan, services: BuildServices) -> BaseImage:
    """Return what a tree is made for: an image's compiled files, or files for any image."""
    named = facts.request.base or facts.container.default_base
    if plan.needs_base and not named:
        raise UsageError(
            "no image is known to run a step in: "
            f"{facts.container.family} on {facts.instance.name}",
            hint="name the image that will serve the tree with --base, or leave --compile and "
            "--load-format out",
        )
    return services.find_base(named if plan.needs_base else "scratch", Platform())


def _base_at_hand(facts: Facts, services: BuildServices) -> BaseImage | None:
    """Return the base image if it is available: compiled artifacts depend on its digest."""
    try:
        return services.find_base(facts.request.base or facts.container.default_base, Platform())
    except PackagerError:
        return None  # the plan says that nothing can be told of the step
