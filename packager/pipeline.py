"""The line. Every command is this sequence, stopped early or run with other doers.

    request ─▶ facts ─▶ plan ─▶ recipe ─▶ artifacts ─▶ serving ─▶ image ─▶ refs ─▶ record

Everything that can be refused is refused before the first step runs, and
nothing is named before everything is there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Literal, TypeVar

from packager.core.artifact import Artifacts
from packager.core.cached import difference_name
from packager.core.catalog import Accelerator, Rule
from packager.core.checkpoint import QuantizedCheckpoint
from packager.core.devices import (
    LARGE_HIDDEN,
    GpuUse,
    GpuWish,
    choose_gpus,
    choose_threads,
    gpus_in,
)
from packager.core.facts import ContainerFacts, Facts
from packager.core.findings import Finding, errors_in
from packager.core.image import BaseImage, ImageSpec, Platform, Written
from packager.core.instance import Instance
from packager.core.model import ModelFile, ModelFiles, ScaleValues, WeightsHeader
from packager.core.plan import Plan
from packager.core.quality import EVALUATION_TOKENS, STEP, TOOL, Evaluation, Limits, QualityReport
from packager.core.recipe import Recipe, Step, StepForecast, StepOutcome
from packager.core.record import (
    BuildRecord,
    RecordedBase,
    RecordedDraft,
    RecordedFinding,
    RecordedImage,
    RecordedLayer,
    RecordedModel,
    RecordedStep,
    Transfer,
)
from packager.core.request import BuildRequest
from packager.core.samples import Samples
from packager.core.serving import ServingConfig
from packager.core.split import Split
from packager.core.techniques import Draft
from packager.core.tool import ToolFacts, build_for
from packager.core.workload import Workload
from packager.errors import (
    CachedFileChanged,
    LostFromCache,
    NotCached,
    PackagerError,
    PlanRejected,
    QualityRejected,
    UsageError,
)
from packager.imaging.assemble import assemble_image, check_layers
from packager.imaging.reshard import split_large
from packager.planning.choice import target_of
from packager.planning.effort import PastRun
from packager.planning.gpus import check_gpu_use, check_gpu_wish
from packager.planning.job import Market, with_effort
from packager.planning.method import AUTO, NONE, choose_method, methods_to_try
from packager.planning.neuron_targets import serves_only_exported
from packager.planning.nodes import refuse_nodes
from packager.planning.planner import make_plan
from packager.planning.recipe import make_recipe, needed_tools
from packager.ports import Compiler, ContainerFamily, Executor, Quantizer, UsesGpus
from packager.resolve import KnownDraftOf, resolve
from packager.techniques.drafts.relayout import lay_out_draft
from packager.techniques.evaluation import (
    evaluation_effort,
    evaluation_gpu_use,
    evaluation_step,
    is_large,
)

RunStep = Callable[[Step], StepOutcome]
Done = TypeVar("Done")

# What happens to steps whose result is not in the cache: they run; or those that compile are
# left out of the image; or nothing is built.
OnMiss = Literal["run", "skip-compile", "refuse"]

_NAMED = 5  # differences of the nearest entry, in a message

# Fields of a request that decide whether there is an image, and nothing in it.
MEASURING = frozenset(
    ("evaluate", "evaluate_samples", "evaluate_tokens", "evaluate_seed")
    + ("max_kld", "min_top1", "max_ppl_increase")
)

# Fields that decide where steps run, and nothing in the image beside their results.
PLACES = frozenset(("executor", "address"))  # on which machine: no record repeats them
RUNNING = frozenset(("gpus", "threads", *PLACES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The doers a run uses. Chosen in `wiring`, replaced in tests."""

    find_model: Callable[[str], ModelFiles]
    find_instance: Callable[[str], Instance]
    find_container: Callable[[BuildRequest, Instance], ContainerFacts]
    find_base: Callable[[str, Platform], BaseImage]
    family: Callable[[str], ContainerFamily]
    executor: Executor
    run_steps: Callable[[], AbstractContextManager[RunStep]]  # results are there until it ends
    foresee: Callable[[Step], StepForecast]
    find_quantizer: Callable[[str | None], Quantizer | None]
    find_compilers: Callable[[str | None], Mapping[str, Compiler]]  # that may be meant
    on_miss: OnMiss = "run"
    distrust_cache: Callable[[CachedFileChanged], None] = lambda _: None  # hash what it gives
    find_samples: Callable[[BuildRequest], Samples | None]  # to calibrate with
    find_evaluation: Callable[[BuildRequest, Samples | None], Samples | None]  # without those
    read_quality: Callable[[tuple[ModelFile, ...]], QualityReport]  # of a finished evaluation
    pin_files: Callable[[ModelFiles], ModelFiles]  # with digests, as far as they may be read
    reach: Callable[[], None]  # the outputs, before any work
    write: Callable[[ImageSpec], tuple[Written, Transfer]]
    save: Callable[[BuildRecord], None]
    created: str  # RFC 3339 time that goes into the image
    accelerator_of: Callable[[Instance], Accelerator]
    read_header: Callable[[ModelFile], WeightsHeader]  # of weights to be split, wherever they are
    find_draft: Callable[[str], ModelFiles] | None = None
    known_draft: KnownDraftOf | None = None  # what `--draft auto` means
    # That may be suggested when nothing fits; None: nothing is suggested, not even another shape.
    instances: tuple[Instance, ...] | None = ()
    smaller_checkpoints: Callable[[str], tuple[QuantizedCheckpoint, ...]] = lambda _: ()
    rules: tuple[Rule, ...] = ()  # what goes together and what does not
    this_machine: Callable[[], Instance] | None = None  # where steps run; None: nobody says
    past: Callable[[], tuple[PastRun, ...]] = tuple  # steps that were run, with their times
    containers: Callable[[], tuple[ContainerFacts, ...]] = lambda: ()  # that may be suggested
    read_scales: Callable[[ModelFiles], ScaleValues | None] = lambda _: None  # of packed weights
    # The model by its headers where `find_model` would download it; None elsewhere.
    peek_model: Callable[[str], ModelFiles | None] = lambda _: None
    read_workload: Callable[[str], Workload] | None = None  # of a file of requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The line up to the recipe: nothing has been run or written."""

    facts: Facts
    plan: Plan
    recipe: Recipe
    forecasts: tuple[StepForecast, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """The line up to the image: steps have run, no sink was touched."""

    planned: Planned
    artifacts: Artifacts
    serving: ServingConfig
    image: ImageSpec
    findings: tuple[Finding, ...] = ()  # what only the assembled image shows
    quality: QualityReport | None = None


def plan(request: BuildRequest, tools: Tools, *, with_base: bool = False) -> Planned:
    """Decide what would be built. No base image is needed for that, but for compilers' keys."""
    planned = _planned(request, tools, with_base=with_base)
    forecasts = tuple(map(tools.foresee, planned.recipe.steps))
    return _with_effort(replace(planned, forecasts=forecasts), tools)


def market_of(tools: Tools) -> Market:
    """Gather what steps are timed and priced with."""
    return Market(
        here=tools.this_machine() if tools.this_machine else None,
        instances=tools.instances or (),
        accelerator_of=tools.accelerator_of,
        past=tools.past(),
    )


def _with_effort(planned: Planned, tools: Tools) -> Planned:
    """Add to what the cache said: of what has to be run how long, where and at what price."""
    steps = {step.name: step for step in planned.recipe.steps}
    found = [(forecast, steps[forecast.step]) for forecast in planned.forecasts]
    found += _foreseen_evaluation(planned.facts)
    if all(forecast.state == "hit" for forecast, _ in found):
        return planned
    market = market_of(tools)
    timed = (with_effort(forecast, step, market) for forecast, step in found)
    return replace(planned, forecasts=tuple(timed))


def assemble(request: BuildRequest, tools: Tools, run_step: RunStep | None = None) -> Assembled:
    """Do everything but write. Without `run_step` nothing is run either."""
    planned = _planned(request, tools, with_base=True)
    refuse_nodes(planned.plan)
    forecasts = tuple(map(tools.foresee, planned.recipe.steps))
    planned = as_allowed(replace(planned, forecasts=forecasts), tools.on_miss)
    planned = with_tools_installed(planned, tools) if run_step else _with_effort(planned, tools)
    facts, plan = planned.facts, planned.plan
    artifacts = run_recipe(planned.recipe, facts, run_step)
    quality = None
    if run_step and facts.evaluation is not None:
        planned, artifacts, quality = evaluated(planned, artifacts, tools, run_step)
    if plan.weights == "baked":
        artifacts = with_draft_laid_out(artifacts, planned, tools.read_header)
        artifacts = split_weights(artifacts, tools.read_header, facts.request.max_layer_size)
    plan = with_effective_shape(plan, artifacts)
    planned = replace(planned, plan=plan)  # the record says what is served
    serving = tools.family(facts.container.family).render(plan, artifacts)
    assert facts.base is not None
    image = assemble_image(
        facts.base,
        artifacts,
        serving,
        labels=make_labels(facts, plan),
        created=tools.created,
        weights=plan.weights,
        order=facts.request.layer_order or "base-first",
        compression=facts.request.compression or "none",
    )
    limit = facts.request.max_layer_size
    return Assembled(
        planned=planned,
        artifacts=artifacts,
        serving=serving,
        image=image,
        findings=tuple(check_layers(image, limit)) if limit else (),
        quality=quality,
    )


def build(request: BuildRequest, tools: Tools) -> BuildRecord:
    """Write the image to every output and record how it was made."""
    started = time.monotonic()
    tools.reach()
    with tools.run_steps() as run_step:

        def work() -> tuple[Assembled, Written, Transfer]:
            assembled = assemble(request, tools, run_step)
            return assembled, *tools.write(assembled.image)

        assembled, written, transfer = with_cache_healed(tools, work)
    record = make_record(assembled, written, transfer, seconds=time.monotonic() - started)
    tools.save(record)
    return record


def with_cache_healed(tools: Tools, work: Callable[[], Done]) -> Done:
    """Do the work; once more where the cache gave other bytes than were published, or lost them.

    The second time every file out of the cache is hashed before it is used: what is broken is
    set aside there, and made anew where steps may run.  Where anything was named the first time,
    its bytes had been compared.
    """
    try:
        return work()
    except CachedFileChanged as error:
        tools.distrust_cache(error)
    except LostFromCache:
        pass  # what is missing is foreseen now, and handled as it was asked for
    return work()


def as_allowed(planned: Planned, on_miss: OnMiss) -> Planned:
    """Keep to what is allowed to run when it is not in the cache; raise when nothing is."""
    missing = [one for one in planned.forecasts if one.state != "hit"]
    if on_miss == "refuse" and missing:
        first = missing[0]
        raise NotCached(
            f"step {first.step!r} is not in the cache{_why_missing(first)}",
            hint="`packager cache explain` compares it with what is there; "
            "build without --require-cached where steps may run",
        )
    compiling = {step.name for step in planned.recipe.steps if step.gives == "compiled"}
    skipped = [one for one in missing if one.step in compiling]
    if on_miss != "skip-compile" or not skipped:
        return planned
    lacking = f"step {skipped[0].step!r} is not in the cache{_why_missing(skipped[0])}"
    if _only_quantizer(planned.recipe, planned.plan) in compiling:
        raise NotCached(
            f"{lacking}, and the model is quantized nowhere else",
            hint="build without --no-compile-on-miss, or without --compile",
        )
    elsewhere = "build without --no-compile-on-miss, here or where the cache is filled"
    variant = planned.plan.container.variant
    if serves_only_exported(planned.plan.container):
        raise NotCached(f"{lacking}, and {variant} serves nothing but its result", hint=elsewhere)
    message = f"nothing is compiled ahead of time: {lacking}"
    finding = Finding("warning", "compile-skipped", message, elsewhere)
    return replace(
        planned,
        plan=replace(planned.plan, compiler="", findings=(*planned.plan.findings, finding)),
        recipe=Recipe(tuple(one for one in planned.recipe.steps if one.name not in compiling)),
        forecasts=tuple(one for one in planned.forecasts if one.step not in compiling),
    )


def _only_quantizer(recipe: Recipe, plan: Plan) -> str:
    """Return the compiling step that quantizes on its way; "" where a step of its own does."""
    chosen = plan.quantization
    if chosen is None or chosen.existing or any(step.gives == "model" for step in recipe.steps):
        return ""
    return next((step.name for step in recipe.steps if step.holds_weights), "")


def _why_missing(forecast: StepForecast) -> str:
    if forecast.differs:
        names = [difference_name(pointer) for pointer in forecast.differs]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return f"; the nearest entry differs in {', '.join(names[:_NAMED])}{more}"
    return f": {forecast.reason}" if forecast.reason else ""


def with_tools_installed(planned: Planned, tools: Tools) -> Planned:
    """Install what will have to run.

    An environment may have other versions than its tool declares.  They are
    in the keys, so the recipe is made again: nothing is filed under a wrong key.
    """
    missed = {one.step: one.tool for one in planned.forecasts if one.state != "hit"}
    for step in planned.recipe.steps:
        if step.name in missed:
            tools.executor.admit(step)
    wanted = set(missed.values())
    known = planned.facts.tools
    for name in sorted(wanted):
        tools.executor.prepare(name, known[name].build if name in known else "cpu")
    found = {name: tools.executor.find_tool(name, known[name].build) for name in known}
    if all(
        replace(found[name], installed=True) == replace(known[name], installed=True)
        for name in wanted
    ):
        return planned
    facts = replace(planned.facts, tools=found)
    return replace(planned, facts=facts, recipe=_recipe(planned.plan, facts, tools))


def run_recipe(recipe: Recipe, facts: Facts, run_step: RunStep | None) -> Artifacts:
    """Run the steps in order; what no step gives is served as it is."""
    outcomes: dict[str, StepOutcome] = {}
    files = {
        "model": facts.model.files,
        "draft": facts.draft.files if facts.draft else (),
        "compiled": (),
    }
    for step in recipe.steps if run_step else ():
        assert run_step is not None
        outcomes[step.name] = run_step(with_results(step, outcomes))
        files[step.gives] = outcomes[step.name].files
    if any(step.holds_weights for step in recipe.steps):
        files["model"] = tuple(file for file in files["model"] if file.role != "weights")
    return Artifacts(
        model=files["model"],
        draft=files["draft"],
        compiled=files["compiled"],
        ran=tuple(name for name, outcome in outcomes.items() if not outcome.reused),
        reused=tuple(name for name, outcome in outcomes.items() if outcome.reused),
        outcomes=outcomes,
    )


def evaluated(
    planned: Planned, artifacts: Artifacts, tools: Tools, run_step: RunStep
) -> tuple[Planned, Artifacts, QualityReport]:
    """Measure what the recipe did to the model; raise when that is more than was allowed.

    It is no step of the recipe: what it compares has no digests before that has run.
    """
    facts, request = planned.facts, planned.facts.request
    assert facts.evaluation is not None
    asked = Evaluation(
        max_tokens=request.evaluate_tokens or EVALUATION_TOKENS, seed=request.evaluate_seed or 0
    )
    step, outcome = run_evaluation(
        facts.model,
        artifacts.model,
        facts.evaluation,
        asked,
        tools,
        run_step,
        gpus=request.gpus,
        threads=request.threads,
    )
    report = tools.read_quality(outcome.files)
    limits = Limits(
        max_kld=request.max_kld,
        min_top1=request.min_top1,
        max_ppl_increase=request.max_ppl_increase,
    )
    if broken := list(limits.broken_by(report)):
        raise QualityRejected(
            f"quantizing cost more quality than allowed: {'; '.join(broken)}",
            hint="leave modules out with --quantize-ignore, choose another method, or allow more",
            quality=report,
        )
    done = {step.name: outcome}
    name = (step.name,)
    return (
        replace(planned, recipe=Recipe((*planned.recipe.steps, step))),
        replace(
            artifacts,
            ran=artifacts.ran + (() if outcome.reused else name),
            reused=artifacts.reused + (name if outcome.reused else ()),
            outcomes={**artifacts.outcomes, **done},
        ),
        report,
    )


def run_evaluation(
    base: ModelFiles,
    candidate: tuple[ModelFile, ...],
    samples: Samples,
    asked: Evaluation,
    tools: Tools,
    run_step: RunStep,
    *,
    gpus: GpuWish = None,
    threads: int | None = None,
) -> tuple[Step, StepOutcome]:
    """Compare two checkpoints, or take the figures from the cache."""
    chosen = gpus_for(gpus, evaluation_gpu_use(base), tools)
    at_once = threads_for(threads, tools, is_large=is_large(base))

    def describe(tool: ToolFacts) -> Step:
        return evaluation_step(base, candidate, samples, asked, tool, gpus=chosen, threads=at_once)

    return run_with_tool(describe, TOOL, tools, run_step, gpus=chosen)


def run_with_tool(
    describe: Callable[[ToolFacts], Step],
    name: str,
    tools: Tools,
    run_step: RunStep,
    *,
    gpus: int = 0,
) -> tuple[Step, StepOutcome]:
    """Run a step that is in no recipe, with its tool installed where it has to run.

    As in `with_tools_installed`, the tool is looked at again when it was installed.
    """
    build = build_for(gpus)
    step = describe(tools.executor.find_tool(name, build))
    if tools.on_miss != "refuse" and tools.foresee(step).state != "hit":
        tools.executor.admit(step)
        tools.executor.prepare(name, build)
        step = describe(tools.executor.find_tool(name, build))
    return step, run_step(step)


def refuse_missing_gpus(wish: GpuWish, tools: Tools) -> None:
    """Raise `PlanRejected` where more GPUs are asked for than whoever runs steps has.

    Asked before anything is downloaded.  Where no step may run, results that a machine with
    GPUs made are taken from the cache.
    """
    if not wish or wish == "auto" or tools.on_miss == "refuse":
        return
    if found := tuple(check_gpu_wish(wish, gpus_in(tools.executor.capacity()))):
        raise PlanRejected(found)


def gpus_for(wish: GpuWish, use: GpuUse, tools: Tools) -> int:
    """Return how many GPUs a step gets."""
    asks = use.most and not isinstance(wish, int)  # a number was compared with it before
    return choose_gpus(wish, use, gpus_in(tools.executor.capacity()) if asks else None)


def threads_for(wish: int | None, tools: Tools, *, is_large: bool) -> int:
    """Return how many threads a step computes with; cores are counted where they matter."""
    cores = tools.executor.capacity().get("cpus") if is_large and not wish else None
    return choose_threads(wish, cores, is_large=is_large)


def with_results(step: Step, outcomes: Mapping[str, StepOutcome]) -> Step:
    """Add to a step the files of the earlier steps that it works on."""
    inputs = {
        role: replace(given, files=outcomes[given.result_of].files) if given.result_of else given
        for role, given in step.inputs.items()
    }
    return replace(step, inputs=inputs)


def with_effective_shape(plan: Plan, artifacts: Artifacts) -> Plan:
    """Take over the shape of artifacts that are larger than asked for.

    What is compiled decides: an engine told otherwise would compile again or refuse.
    """
    given = {
        pointer.removeprefix("/shape/"): value
        for outcome in artifacts.outcomes.values()
        for pointer, value in outcome.effective.items()
    }
    known = {name: given[name] for name in shape_of(plan) if name in given}
    return replace(plan, shape=replace(plan.shape, **known)) if known else plan


def split_weights(
    artifacts: Artifacts, read_header: Callable[[ModelFile], WeightsHeader], limit: int | None
) -> Artifacts:
    """Describe weights files that are too large for a layer as shards. Nothing is copied."""
    return replace(
        artifacts,
        model=split_large(artifacts.model, read_header, limit=limit),
        draft=split_large(artifacts.draft, read_header, limit=limit),
    )


def with_draft_laid_out(
    artifacts: Artifacts, planned: Planned, read_header: Callable[[ModelFile], WeightsHeader]
) -> Artifacts:
    """Describe the draft's files as the engine reads them. Nothing is copied."""
    if planned.facts.draft is None:
        return artifacts
    config = planned.facts.draft.config
    return replace(
        artifacts, draft=lay_out_draft(artifacts.draft, config, planned.plan, read_header)
    )


_UNLABELLED = {"model", "base", "outputs", "draft", *MEASURING, *RUNNING}


def make_labels(facts: Facts, plan: Plan) -> Mapping[str, str]:
    """Describe the build in image labels: no paths, no times, nothing of the machine."""
    assert facts.base is not None
    asked = facts.request.model_dump(mode="json", exclude_none=True, exclude=_UNLABELLED)
    record: dict[str, object] = {
        "schema": 1,
        "packager": facts.packager_version,
        "model": {
            "source": plan.model.source,
            "name": plan.model.name,
            "revision": plan.model.revision,
        },
        "request": asked,
        "base": facts.base.digest,
        "engine": f"{plan.container.engine} {plan.container.engine_version}".strip(),
        "tp_degree": plan.tp_degree,
        "precision": plan.precision,
        "shape": shape_of(plan),
    }
    if plan.split != Split(tp_degree=plan.tp_degree):
        record["split"] = plan.split.words
    if plan.draft is not None:
        record["draft"] = draft_of(plan.draft)
    return {
        "org.opencontainers.image.title": plan.served_name,
        "org.opencontainers.image.base.digest": facts.base.digest,
        "dev.packager.version": facts.packager_version,
        "dev.packager.family": plan.container.family,
        "dev.packager.instance": plan.instance.name,
        "dev.packager.record": json.dumps(record, sort_keys=True, separators=(",", ":")),
    }


def make_record(
    assembled: Assembled, written: Written, transfer: Transfer, *, seconds: float
) -> BuildRecord:
    """Record everything that is needed to repeat the build, and what it did."""
    facts, plan = assembled.planned.facts, assembled.planned.plan
    base = assembled.image.base
    return BuildRecord(
        packager_version=facts.packager_version,
        request=with_devices_pinned(assembled.planned).model_copy(update=dict.fromkeys(PLACES)),
        model=RecordedModel(
            source=plan.model.source, name=plan.model.name, revision=plan.model.revision
        ),
        draft=RecordedDraft.model_validate(draft_of(plan.draft)) if plan.draft else None,
        base=RecordedBase(
            reference=base.reference, digest=base.digest, platform=str(base.platform)
        ),
        family=plan.container.family,
        engine=plan.container.engine,
        engine_version=plan.container.engine_version,
        tp_degree=plan.tp_degree,
        served_name=plan.served_name,
        shape=shape_of(plan),
        created=assembled.image.created,
        digest=written.image.digest,
        config_digest=written.image.config_descriptor.digest,
        layers=tuple(
            RecordedLayer(
                role=layer.role,
                digest=layer.digest,
                size=layer.size,
                believed=layer.believed or None,
            )
            for layer in written.layers
        ),
        images=tuple(
            RecordedImage(target=ref.target, name=ref.name, digest=ref.digest)
            for ref in written.refs
        ),
        findings=tuple(
            RecordedFinding(
                severity=found.severity, code=found.code, message=found.message, hint=found.hint
            )
            for found in (*plan.findings, *assembled.findings)
        ),
        steps=tuple(_recorded_steps(assembled)),
        quality=assembled.quality,
        transfer=transfer,
        seconds=round(seconds, 3),
    )


def with_devices_pinned(planned: Planned) -> BuildRequest:
    """Return the request with what quantizing got: another machine would choose otherwise."""
    request, facts = planned.facts.request, planned.facts
    quantizing = [step for step in planned.recipe.steps if step.gives == "model"]
    changes: dict[str, int] = {}
    if any(step.gpu_use.most for step in quantizing):
        changes["gpus"] = facts.gpus
    if facts.threads > 1 and quantizing:
        changes["threads"] = facts.threads
    return request.model_copy(update=changes) if changes else request


def draft_of(draft: Draft) -> dict[str, str | int]:
    """Where the draft is pinned and what it does, as documents spell it. No local paths."""
    pinned = draft.ref
    found: dict[str, str | int] = {
        "kind": draft.kind,
        "version": draft.version,
        "speculative_tokens": draft.speculative_tokens,
        "source": pinned.source if pinned else "",
        "name": pinned.name if pinned else "",
        "revision": pinned.revision if pinned else "",
        "license": draft.license,
    }
    return {key: value for key, value in found.items() if value}


def shape_of(plan: Plan) -> dict[str, int]:
    """The planned shape as documents spell it."""
    return asdict(plan.shape)


def _planned(request: BuildRequest, tools: Tools, *, with_base: bool) -> Planned:
    refuse_missing_gpus(request.gpus, tools)
    headers = tools.peek_model(request.model)
    chosen: tuple[Finding, ...] = ()
    if request.quantize == AUTO:
        request, chosen = _with_method(request, tools, headers)
    facts = _gather(request, tools, headers, with_base=with_base)
    quantizer = tools.find_quantizer(request.quantize)
    compilers = tools.find_compilers(request.compile)
    decide = _decider(facts, tools)
    plan = decide(facts)
    if headers is not None:  # what is refused by now has cost no download
        model = tools.find_model(request.model)
        facts = replace(facts, model=model, scales=tools.read_scales(model))
        plan = decide(facts)
    if request.evaluation and (plan.quantization is None or plan.quantization.existing):
        raise UsageError(
            "nothing is quantized here, so there is nothing to evaluate",
            hint="add --quantize METHOD; `packager evaluate` compares two checkpoints",
        )
    if plan.compiler and facts.base is None:
        facts = replace(facts, base=_base_at_hand(facts, tools))
    if names := needed_tools(plan, quantizer, compilers.get(plan.compiler)):
        facts, plan = _with_gpus(facts, plan, quantizer, tools)
        building = {quantizer.tool: build_for(facts.gpus)} if quantizer else {}
        found = {name: tools.executor.find_tool(name, building.get(name, "cpu")) for name in names}
        facts = replace(facts, model=tools.pin_files(facts.model), tools=found)
    plan = replace(plan, findings=(*plan.findings, *chosen))
    return Planned(facts=facts, plan=plan, recipe=_recipe(plan, facts, tools))


def _gather(
    request: BuildRequest, tools: Tools, headers: ModelFiles | None, *, with_base: bool
) -> Facts:
    """Pin every name; the model by its headers where they were found alone."""
    return resolve(
        request,
        find_model=tools.find_model if headers is None else lambda _: headers,
        find_instance=tools.find_instance,
        find_container=tools.find_container,
        find_base=tools.find_base if with_base else None,
        find_draft=tools.find_draft,
        known_draft=tools.known_draft,
        find_samples=tools.find_samples,
        find_evaluation=tools.find_evaluation,
        containers=tools.containers(),
        read_scales=tools.read_scales if headers is None else lambda _: None,
        read_workload=tools.read_workload,
    )


def _decider(facts: Facts, tools: Tools) -> Callable[[Facts], Plan]:
    """Return the planner with the doers of a request, for facts with more or less detail."""
    return partial(
        make_plan,
        family=tools.family(facts.container.family),
        instances=tools.instances,
        smaller=tools.smaller_checkpoints(facts.request.model),
        rules=tools.rules,
        quantizer=tools.find_quantizer(facts.request.quantize),
        compilers=tools.find_compilers(facts.request.compile),
        accelerator_of=tools.accelerator_of,
    )


def _with_method(
    request: BuildRequest, tools: Tools, headers: ModelFiles | None
) -> tuple[BuildRequest, tuple[Finding, ...]]:
    """Choose the method that `--quantize auto` stands for; `none` where no method works."""
    alone = replace(tools, instances=())  # no other instance is suggested for what is tried
    plain = request.model_copy(update={"quantize": NONE})
    facts = _gather(plain, alone, headers, with_base=False)
    plans: dict[str, Plan] = {}
    quantized = bool(facts.model.config.get("quantization_config"))
    for method in methods_to_try(facts.instance, quantized=quantized):
        asked = request.model_copy(update={"quantize": method})
        tried = replace(facts, request=asked, samples=tools.find_samples(asked))
        with suppress(PlanRejected):
            plans[method] = _decider(tried, alone)(tried)
    if not plans:
        return plain, ()
    target = target_of(request, facts.workload)
    method, why = choose_method(plans, target, tools.accelerator_of(facts.instance))
    return request.model_copy(update={"quantize": method}), (why,)


def _with_gpus(
    facts: Facts, plan: Plan, quantizer: Quantizer | None, tools: Tools
) -> tuple[Facts, Plan]:
    """Choose the GPUs that quantizing runs on; raise `PlanRejected` where they are too small."""
    if plan.quantization is None or plan.quantization.existing:
        return facts, plan
    use = quantizer.gpu_use(facts, plan) if isinstance(quantizer, UsesGpus) else GpuUse()
    wish = facts.request.gpus
    there = gpus_in(tools.executor.capacity()) if use.most and wish != 0 else None
    found = tuple(check_gpu_use("quantize", wish, use, there))
    if errors_in(found):
        raise PlanRejected((*plan.findings, *found))
    large = plan.profile.hidden_size >= LARGE_HIDDEN
    facts = replace(
        facts,
        gpus=choose_gpus(wish, use, there),
        threads=threads_for(facts.request.threads, tools, is_large=large),
    )
    return facts, replace(plan, findings=(*plan.findings, *found)) if found else plan


def _recipe(plan: Plan, facts: Facts, tools: Tools) -> Recipe:
    return make_recipe(
        plan,
        facts,
        tools.find_quantizer(facts.request.quantize),
        tools.find_compilers(facts.request.compile).get(plan.compiler),
        tools.family(facts.container.family),
    )


def _base_at_hand(facts: Facts, tools: Tools) -> BaseImage | None:
    """Look at the base even for a plan: what is compiled is for one base, by its digest."""
    try:
        return tools.find_base(facts.request.base or facts.container.default_base, Platform())
    except PackagerError:
        return None  # the plan says that nothing can be told of the step


def _foreseen_evaluation(facts: Facts) -> list[tuple[StepForecast, Step]]:
    """What is known of measuring before there is something to measure."""
    texts, request = facts.evaluation, facts.request
    if texts is None:
        return []
    reason = f"its input is the quantized model; {len(texts.samples)} texts"
    asked = Evaluation(max_tokens=request.evaluate_tokens or EVALUATION_TOKENS)
    needs = evaluation_effort(facts.model, texts, asked)
    env = {} if is_large(facts.model) else {"OMP_NUM_THREADS": "1"}
    use = evaluation_gpu_use(facts.model)
    step = Step(name=STEP, tool=TOOL, gives="quality", needs=needs, env=env, gpu_use=use)
    return [(StepForecast(step=STEP, tool=TOOL, state="unknown", reason=reason), step)]


def _recorded_steps(assembled: Assembled) -> Iterator[RecordedStep]:
    for step in assembled.planned.recipe.steps:
        outcome = assembled.artifacts.outcomes[step.name]
        yield RecordedStep(
            name=step.name,
            tool=step.tool,
            key=outcome.key,
            reused=outcome.reused,
            seconds=outcome.result.seconds,
            peak_memory_bytes=outcome.result.peak_memory_bytes,
            versions=dict(outcome.result.versions),
            details=dict(outcome.result.details),
        )
