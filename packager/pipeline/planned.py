"""Converts a request into facts, plan and recipe, without running or writing anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

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
from packager.core.image import BaseImage
from packager.core.model import ModelFiles
from packager.core.plan import Plan
from packager.core.recipe import Step
from packager.core.references import HubReference
from packager.core.request import BuildRequest
from packager.core.tool import build_for
from packager.images.slim_label import refuse_other_machine
from packager.models.checkpoints.gate import inspect_quantized
from packager.optimize.drafts.request import AUTO as AUTO_DRAFT
from packager.optimize.quantize.method import AUTO, NONE, choose_method, methods_to_try
from packager.optimize.steps.devices import refuse_missing_gpus, threads_for
from packager.optimize.steps.gpus import check_gpu_use
from packager.pipeline.adapters import take_adapters, with_merged
from packager.pipeline.converted import with_converted
from packager.pipeline.licences import licence_findings
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.recipe import make_recipe, needed_tools, quantizer_of
from packager.pipeline.planning.requested import target_of
from packager.pipeline.planning.services import PlannerServices
from packager.pipeline.resolve import (
    draft_finder,
    find_requested_draft,
    find_samples,
    parse_draft_request,
    resolve,
)
from packager.pipeline.services import BuildServices
from packager.pipeline.stages import Decided, Planned
from packager.pipeline.streaming import layers_step

_OF_ONE_WAY = ("quantize-streams", "quantize-by-tool")  # findings of how weights are quantized


def make_decided(request: BuildRequest, services: BuildServices) -> Decided:
    """Pin every name but the base's, and decide by the model's headers.

    Nothing is downloaded, and only models are looked up over the network: errors of the request or
    the model are reported before a registry is contacted. Raises `PlanRejected` where nothing can
    be built.
    """
    refuse_missing_gpus(request.gpus, services)
    is_tree = services.outputs == "trees"  # an engine mounts a tree
    written = request.model_copy(update={"weights": "mounted"}) if is_tree else request
    reference = services.parse_model_reference(request.model)
    hub_name = reference.name if isinstance(reference, HubReference) else ""
    headers = services.peek_model(reference)
    is_peeked = headers is not None

    def find_model() -> ModelFiles:
        return services.find_model(reference) if headers is None else headers

    is_open = request.quantize == AUTO
    method, chosen = (
        _choose_method(written, find_model, hub_name, services, by_headers=is_peeked)
        if is_open
        else ("", ())
    )
    decided = written.model_copy(update={"quantize": method}) if is_open else written
    pinned = resolve(decided, find_model, services, by_headers=is_peeked)
    planning = planner_services(pinned, hub_name, services)
    with working(services.on_event, "plan", pinned.instance.name):
        is_known = request.draft == AUTO_DRAFT
        facts = _with_known_draft(pinned, planning, services) if is_known else pinned
        plan = make_plan(facts, planning)
    if request.evaluation and (plan.quantization is None or plan.quantization.existing):
        raise UsageError(
            "nothing is quantized here, so there is nothing to evaluate",
            hint="add --quantize METHOD; `packager evaluate` compares two checkpoints",
        )
    return Decided(
        reference=reference,
        facts=facts,
        plan=plan,
        planning=planning,
        chosen=chosen,
        is_peeked=is_peeked,
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
    named, planning = decided.facts, decided.planning
    based, confirmed = named, decided.plan
    if with_base:
        based = replace(named, base=_base_of(named, decided.plan, services))
        confirmed = _confirm(decided.plan, named, based, planning)
        look(based, confirmed)
    taken = _with_files(decided, based, services)  # the checks above need no download
    final = _confirm(confirmed, based, taken, planning)
    ready = _with_base_at_hand(taken, final, services)
    ready, final, planning, layers = _from_cache(ready, final, planning, services)
    facts, found = _with_tools(ready, final, planning, services)
    licences = licence_findings(facts, services)
    settled = replace(final, findings=(*final.findings, *found, *decided.chosen, *licences))
    return Planned(
        reference=decided.reference,
        facts=facts,
        plan=settled,
        planning=planning,
        recipe=make_recipe(settled, facts, planning),
        layers=layers,
    )


def _from_cache(
    facts: Facts, plan: Plan, planning: PlannerServices, services: BuildServices
) -> tuple[Facts, Plan, PlannerServices, Step | None]:
    """Return a tool's step in place of the stream, or the other way, where the cache has that.

    Nothing is read to find that out for the stream: the digests of the weights are known, or it is
    not looked for.  Only where all has to be in the cache they are read, and without its layers
    there the stream gives way to the step, which says what is missing.  A step gives way to layers
    that the cache knows, which images alone are made of.  The last value is how layers that come
    of the stream are looked up, and kept.
    """
    quantizer = quantizer_of(plan, facts, planning)
    if quantizer is None:
        return facts, plan, planning, None
    # Imported here because few plans quantize.
    from packager.optimize.quantize.default import alternative_of

    if (other := alternative_of(quantizer, facts, plan)) is None:
        return facts, plan, planning, None
    tool, stream = (other, quantizer) if quantizer.streams else (quantizer, other)
    is_needed = services.on_miss == "refuse"
    named = _with_digests(facts, services.known_files)
    if is_needed or not quantizer.streams:  # a step has the digests in its key
        named = _with_digests(named, services.pin_files)
    step = tool.step(named, plan)
    layers = layers_step(step, plan)

    def is_known(one: Step | None) -> bool:
        return one is not None and one.key is not None and services.check_cache(one).state == "hit"

    if is_known(step):
        streams = False
    elif quantizer.streams:
        streams = not is_needed or is_known(layers)
    else:
        streams = services.takes_layers and services.outputs == "images" and is_known(layers)
    if streams == quantizer.streams:
        return (named if streams else facts), plan, planning, layers
    left = tuple(one for one in plan.findings if one.code not in _OF_ONE_WAY)
    chosen = replace(planning, quantizer=stream if streams else tool)
    return (named if streams else facts), replace(plan, findings=left), chosen, layers


def _with_digests(facts: Facts, pin: Callable[[ModelFiles], ModelFiles]) -> Facts:
    """Return the model with the digests of what keys list: of its files, or those they become of.

    What is computed is not hashed for a key.
    """
    model = facts.model
    if model.conversion is None or not model.conversion.source:
        return replace(facts, model=pin(model))
    source = model.conversion.source
    others = tuple(file for file in model.files if file.role != "weights")
    pinned = pin(replace(model, files=(*source, *others))).files
    known = dict(zip(others, pinned[len(source) :], strict=True))
    return replace(
        facts,
        model=replace(
            model,
            files=tuple(known.get(file, file) for file in model.files),
            conversion=replace(model.conversion, source=pinned[: len(source)]),
        ),
    )


def _confirm(plan: Plan, known: Facts, facts: Facts, planning: PlannerServices) -> Plan:
    """Return the plan that was made with `known`, or another where `facts` say more.

    Raises `PlanRejected` where they rule it out.
    """
    if _headers(facts) == _headers(known) and not any(_objections(plan, facts, planning)):
        return plan
    return make_plan(facts, planning)


def _headers(facts: Facts) -> tuple[object, ...]:
    """Return what plans are made of in the files of model and draft: all but their bytes."""
    return tuple(
        files
        and (
            replace(files, files=()),
            [(file.path, file.role, file.size) for file in files.files],
        )
        for files in (facts.model, facts.draft)
    )


def _objections(plan: Plan, facts: Facts, planning: PlannerServices) -> Iterator[object]:
    """Yield what base and files bring up that the plan does not say."""
    read = inspect_quantized(facts.model, facts.scales)
    if read.arrived is not None and read.arrived != plan.arrived:
        yield read.arrived
    found = list(read.findings)
    compiler, sharder = (
        planning.compilers.get(plan.compiler),
        planning.find_sharder(plan.load_format),
    )
    quantizer = planning.quantizer if quantizer_of(plan, facts, planning) else None
    for technique in (compiler, sharder, quantizer):
        found += technique.check(facts, plan) if technique is not None else ()
    yield from (one for one in found if one not in plan.findings)


def _with_files(decided: Decided, facts: Facts, services: BuildServices) -> Facts:
    """Replace a model and a draft that were known by their headers by their files."""
    draft = facts.draft and find_requested_draft(facts.draft_request, services.find_draft)
    found = take_adapters(replace(facts, draft=draft), services)
    if not decided.is_peeked and found.merged == facts.merged:
        return found
    model = with_converted(services.find_model(decided.reference), found.request, services)
    model = with_merged(model, found.merged, services)
    return replace(found, model=model, scales=services.read_scales(model))


def _with_known_draft(facts: Facts, planning: PlannerServices, services: BuildServices) -> Facts:
    """Choose the first published draft that is available and passes planning.

    Missing, private, broken and rejected drafts are skipped, with the reason in a finding. Where a
    plan without a draft fails, too, the first draft's rejection is raised. Raises `Unavailable`
    where a hub does not answer: what the image holds must not depend on that.
    """
    if services.known_draft is None:
        return facts
    alone = replace(planning, instances=None)  # no suggestions while candidates are tried
    tried: dict[str, str] = {}
    works = False  # a plan without a draft
    while True:
        choice = services.known_draft(facts.model, facts.instance, facts.container, tried)
        known = replace(facts, draft_findings=choice.findings, draft_license=choice.license)
        if not choice.reference:
            return known
        draft_request = parse_draft_request(choice.reference, services.parse_model_reference)
        try:
            draft = find_requested_draft(draft_request, draft_finder(services))
            values = services.read_head_values(draft, facts.model) if draft else None
            drafted = replace(known, draft_request=draft_request, draft=draft, head_values=values)
            make_plan(drafted, alone)
        except (NotFound, AccessDenied, ModelRefused) as error:
            tried[choice.reference] = error.message
        except PlanRejected as rejected:
            works = works or _works(facts, alone)
            if not works:
                return drafted
            tried[choice.reference] = errors_in(rejected.findings)[0].message
        else:
            return drafted


def _works(facts: Facts, planning: PlannerServices) -> bool:
    try:
        make_plan(facts, planning)
    except PlanRejected:
        return False
    return True


def planner_services(facts: Facts, hub_name: str, services: BuildServices) -> PlannerServices:
    """Return what the request's plans are made with; `hub_name` is the model's on its hub."""
    request = facts.request
    return PlannerServices(
        family=services.family(facts.container.family),
        quantizer=services.find_quantizer(request.quantizing),
        compilers=services.find_compilers(request.compile),
        find_sharder=services.find_sharder,
        rules=services.rules,
        accelerator_of=services.accelerator_of,
        instances=services.instances,
        smaller=services.smaller_checkpoints(hub_name) if hub_name else (),
    )


def _choose_method(
    request: BuildRequest,
    find_model: Callable[[], ModelFiles],
    hub_name: str,
    services: BuildServices,
    *,
    by_headers: bool,
) -> tuple[str, tuple[Finding, ...]]:
    """Choose the method for `--quantize auto`; `none` where no method works."""
    alone = replace(services, instances=())  # no suggested instances while candidates are tried
    plain = request.model_copy(update={"quantize": NONE})
    facts = resolve(plain, find_model, alone, by_headers=by_headers)
    plans: dict[str, Plan] = {}
    quantized = bool(facts.model.config.get("quantization_config"))
    for method in methods_to_try(facts.instance, quantized=quantized):
        changed = request.model_copy(update={"quantize": method})
        tried = replace(facts, request=changed, samples=find_samples(changed, alone))
        with suppress(PlanRejected):
            plans[method] = make_plan(tried, planner_services(tried, hub_name, alone))
    if not plans:
        return NONE, ()
    target = target_of(request, facts.workload)
    method, why = choose_method(plans, target, services.accelerator_of(facts.instance))
    return method, (why,)


def _with_tools(
    facts: Facts, plan: Plan, planning: PlannerServices, services: BuildServices
) -> tuple[Facts, tuple[Finding, ...]]:
    """Find the tools of the steps, the GPUs that quantizing runs on, and the files' digests."""
    names = needed_tools(plan, facts, planning)
    if not names:
        return facts, ()
    placed, found = _with_gpus(facts, plan, planning, services)
    quantizer = planning.quantizer
    building = {quantizer.tool: build_for(placed.gpus)} if quantizer else {}
    tools = {name: services.executor.find_tool(name, building.get(name, "cpu")) for name in names}
    named = _with_digests(placed, services.pin_files)
    return replace(named, model=services.pin_files(named.model), tools=tools), found


def _with_gpus(
    facts: Facts, plan: Plan, planning: PlannerServices, services: BuildServices
) -> tuple[Facts, tuple[Finding, ...]]:
    """Choose the GPUs that quantizing runs on; raise `PlanRejected` where they are too small."""
    if plan.quantization is None or plan.quantization.existing:
        return facts, ()
    quantizer, wish = planning.quantizer, plan.step_gpus
    use = quantizer.gpu_use(facts, plan) if quantizer else GpuUse()
    there = gpus_in(services.executor.capacity()) if use.most and wish != 0 else None
    found = tuple(check_gpu_use("quantize", wish, use, there))
    if errors_in(found):
        raise PlanRejected((*plan.findings, *found))
    large = plan.profile.hidden_size >= LARGE_HIDDEN
    threads = threads_for(plan.step_threads, services, is_large=large)
    return replace(facts, gpus=choose_gpus(wish, use, there), threads=threads), found


def _base_of(facts: Facts, plan: Plan, services: BuildServices) -> BaseImage:
    """Return the base that is built on; for a tree, the image that its steps run in, or none."""
    is_tree = services.outputs == "trees"
    if is_tree and not plan.needs_base:
        return services.find_base("scratch", plan.platform)
    container, instance = facts.container, facts.instance
    if not plan.base:
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
    base = services.find_base(plan.base, plan.platform)
    refuse_other_machine(base, instance)
    return base


def _with_base_at_hand(facts: Facts, plan: Plan, services: BuildServices) -> Facts:
    """Add the base image if it is available: compiled artifacts depend on its digest."""
    if facts.base is not None or not plan.needs_base:
        return facts
    try:
        return replace(facts, base=services.find_base(plan.base, plan.platform))
    except PackagerError:
        return facts  # the plan reports that the step's cache status is unknown
