"""Converts a request into facts, plan and recipe, without running or writing anything."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from packager.core.devices import LARGE_HIDDEN, GpuUse, choose_gpus, gpus_in
from packager.core.errors import (
    AccessDenied,
    ModelRefused,
    NotFound,
    PackagerError,
    PlanRejected,
    UsageError,
)
from packager.core.events import ignore, working
from packager.core.facts import Facts
from packager.core.findings import Finding, errors_in
from packager.core.image import BaseImage, Platform
from packager.core.model import ModelFiles
from packager.core.plan import Plan
from packager.core.ports import Quantizer, UsesGpus
from packager.core.recipe import Recipe
from packager.core.references import HubReference, ModelReference
from packager.core.request import BuildRequest
from packager.core.tool import build_for
from packager.estimate.performance.choice import target_of
from packager.images.slim_label import refuse_other_machine
from packager.optimize.drafts.request import AUTO as AUTO_DRAFT
from packager.optimize.quantize.method import AUTO, NONE, choose_method, methods_to_try
from packager.optimize.steps.devices import refuse_missing_gpus, threads_for
from packager.optimize.steps.gpus import check_gpu_use
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.recipe import make_recipe, needed_tools
from packager.pipeline.resolve import find_asked_draft, parse_asked_draft, resolve
from packager.pipeline.services import BuildServices
from packager.pipeline.stages import Decided, Planned


def make_decided(request: BuildRequest, services: BuildServices) -> Decided:
    """Pin every name but the base's, and decide by the model's headers.

    Nothing is downloaded, and only models are looked up over the network: errors of the request or
    the model are reported before a registry is contacted. Raises `PlanRejected` where nothing can
    be built.
    """
    refuse_missing_gpus(request.gpus, services)
    if services.outputs == "trees":  # an engine mounts a tree
        request = request.model_copy(update={"weights": "mounted"})
    reference = services.parse_model_reference(request.model)
    headers = services.peek_model(reference)
    chosen: tuple[Finding, ...] = ()
    if request.quantize == AUTO:
        request, chosen = _with_method(request, reference, services, headers)
    facts = _gather(request, reference, services, headers)
    with working(services.on_event, "plan", facts.instance.name):
        if request.draft == AUTO_DRAFT:
            facts = _with_known_draft(facts, reference, services)
        plan = _decider(facts, reference, services)(facts)
    if request.evaluation and (plan.quantization is None or plan.quantization.existing):
        raise UsageError(
            "nothing is quantized here, so there is nothing to evaluate",
            hint="add --quantize METHOD; `packager evaluate` compares two checkpoints",
        )
    return Decided(
        reference=reference,
        facts=facts,
        plan=plan,
        chosen=chosen,
        is_peeked=headers is not None,
    )


def make_planned(
    decided: Decided,
    services: BuildServices,
    *,
    with_base: bool,
    look: Callable[[Facts, Plan], None] = ignore,
) -> Planned:
    """Read the base if requested, get the model's files, and order the steps.

    Raises `PlanRejected` where the base or the files rule the plan out. `look` is called with the
    base, before anything is downloaded.
    """
    facts, plan = decided.facts, decided.plan
    decide = _decider(facts, decided.reference, services)
    if with_base:
        facts = replace(facts, base=_base_of(facts, plan, services))
        plan = decide(facts)
        look(facts, plan)
    taken = _with_files(decided, facts, services)  # the checks above need no download
    if taken is not facts:
        facts, plan = taken, decide(taken)
    if plan.needs_base and facts.base is None:
        facts = replace(facts, base=_base_at_hand(facts, services))
    quantizer = services.find_quantizer(facts.request.quantizing)
    compilers = services.find_compilers(facts.request.compile)
    sharder = services.find_sharder(plan.load_format)
    if names := needed_tools(plan, quantizer, compilers.get(plan.compiler), sharder):
        facts, plan = _with_gpus(facts, plan, quantizer, services)
        building = {quantizer.tool: build_for(facts.gpus)} if quantizer else {}
        found = {
            name: services.executor.find_tool(name, building.get(name, "cpu")) for name in names
        }
        facts = replace(facts, model=services.pin_files(facts.model), tools=found)
    plan = replace(plan, findings=(*plan.findings, *decided.chosen))
    return Planned(
        reference=decided.reference,
        facts=facts,
        plan=plan,
        recipe=recipe_of(plan, facts, services),
    )


def _with_files(decided: Decided, facts: Facts, services: BuildServices) -> Facts:
    """Replace a model and a draft that were known by their headers by their files."""
    if decided.is_peeked:
        model = services.find_model(decided.reference)
        facts = replace(facts, model=model, scales=services.read_scales(model))
    draft = facts.draft and find_asked_draft(facts.draft_asked, services.find_draft)
    return facts if draft is facts.draft else replace(facts, draft=draft)


def _gather(
    request: BuildRequest,
    reference: ModelReference,
    services: BuildServices,
    headers: ModelFiles | None,
) -> Facts:
    """Pin every name; the model by its headers, if only those were read."""
    return resolve(
        request,
        reference,
        parse_model_reference=services.parse_model_reference,
        find_model=services.find_model if headers is None else lambda _: headers,
        find_instance=services.find_instance,
        find_container=services.find_container,
        find_draft=_draft_finder(services),
        find_samples=services.find_samples,
        find_evaluation=services.find_evaluation,
        containers=services.containers(),
        read_scales=services.read_scales if headers is None else lambda _: None,
        read_head_values=services.read_head_values,
        read_workload=services.read_workload,
        writes_tree=services.outputs != "images",
    )


def _draft_finder(services: BuildServices) -> Callable[[ModelReference], ModelFiles]:
    """Return what finds a draft, by its headers where it would be downloaded."""
    return lambda reference: services.peek_draft(reference) or services.find_draft(reference)


def _with_known_draft(facts: Facts, reference: ModelReference, services: BuildServices) -> Facts:
    """Choose the first published draft that is available and passes planning.

    Missing, private, broken and rejected drafts are skipped, with the reason in a finding. Where a
    plan without a draft fails, too, the first draft's rejection is raised. Raises `Unavailable`
    where a hub does not answer: what the image holds must not depend on that.
    """
    if services.known_draft is None:
        return facts
    alone = replace(services, instances=None)  # no suggestions while candidates are tried
    decide = _decider(facts, reference, alone)
    tried: dict[str, str] = {}
    works = False  # a plan without a draft
    while True:
        choice = services.known_draft(facts.model, facts.instance, facts.container, tried)
        known = replace(facts, draft_findings=choice.findings, draft_license=choice.license)
        if not choice.reference:
            return known
        asked = parse_asked_draft(choice.reference, services.parse_model_reference)
        try:
            draft = find_asked_draft(asked, _draft_finder(services))
            values = services.read_head_values(draft, facts.model) if draft else None
            known = replace(known, draft_asked=asked, draft=draft, head_values=values)
            decide(known)
        except (NotFound, AccessDenied, ModelRefused) as error:
            tried[choice.reference] = error.message
        except PlanRejected as rejected:
            works = works or _works(decide, facts)
            if not works:
                return known
            tried[choice.reference] = errors_in(rejected.findings)[0].message
        else:
            return known


def _works(decide: Callable[[Facts], Plan], facts: Facts) -> bool:
    try:
        decide(facts)
    except PlanRejected:
        return False
    return True


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
    """Choose the method for `--quantize auto`; `none` where no method works."""
    alone = replace(services, instances=())  # no suggested instances while candidates are tried
    plain = request.model_copy(update={"quantize": NONE})
    facts = _gather(plain, reference, alone, headers)
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


def _base_of(facts: Facts, plan: Plan, services: BuildServices) -> BaseImage:
    """Return the base that is built on; for a tree, the image that its steps run in, or none."""
    is_tree = services.outputs == "trees"
    if is_tree and not plan.needs_base:
        return services.find_base("scratch", Platform())
    container, instance = facts.container, facts.instance
    named = facts.request.base or container.default_base
    if not named:
        where = f"{container.family} on {instance.name}"
        if is_tree:
            raise UsageError(
                f"no image is known to run a step in: {where}",
                hint="name the image that will serve the tree with --base, or leave --compile and "
                "--load-format out",
            )
        raise UsageError(
            f"no base image is known for {where}",
            hint="name one with --base, or use --base scratch for weights and configuration",
        )
    base = services.find_base(named, Platform())
    refuse_other_machine(base, instance)
    return base


def _base_at_hand(facts: Facts, services: BuildServices) -> BaseImage | None:
    """Return the base image if it is available: compiled artifacts depend on its digest."""
    try:
        return services.find_base(facts.request.base or facts.container.default_base, Platform())
    except PackagerError:
        return None  # the plan reports that the step's cache status is unknown
