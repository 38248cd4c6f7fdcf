"""A plan for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from packager.core.errors import PlanRejected
from packager.core.facts import ContainerFacts
from packager.core.findings import FILES_LEFT_OUT, Finding, finding_document
from packager.core.image import Platform
from packager.core.parsers import ChosenParser
from packager.core.plan import Plan
from packager.core.processors import known_flags
from packager.core.recipe import CacheStatus, Recipe
from packager.core.reports.report import Bar, Pair, Share
from packager.core.reports.text import finding_lines
from packager.core.startup import StartupPrediction
from packager.core.techniques import LayerGroup, Rejected
from packager.core.text import escape
from packager.core.units import decimal, gib, percent, usd
from packager.estimate.performance.monthly import monthly_sentence
from packager.estimate.performance.opinion import Opinion
from packager.estimate.performance.predict import Prediction
from packager.estimate.performance.report_opinion import opinion_document
from packager.estimate.performance.report_outlook import Outlook, outlook_document
from packager.estimate.performance.report_rank import Menu, menu_document
from packager.estimate.performance.report_startup import startup_document
from packager.optimize.steps.report import forecast_documents, forecast_sentences
from packager.pipeline.planning.fit import reserves
from packager.pipeline.report_adapters import adapter_sentences, adapters_document
from packager.pipeline.report_capacity import (
    capacity_document,
    task_pairs,
    tokens_left,
)

if TYPE_CHECKING:
    from packager.pipeline.elsewhere import CatalogChoices

NO_STEPS = Recipe()

# Proposers of tokens that need no files.
PROPOSERS = {
    "mtp": "the model's own MTP head",
    "ngram": "the prompt's own words",
    "ngram_gpu": "the prompt's own words, looked up on the GPU",
    "suffix": "the prompt and earlier answers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPage:
    """A plan with the other content of its page."""

    plan: Plan
    recipe: Recipe = NO_STEPS
    forecasts: tuple[CacheStatus, ...] = ()
    outlook: Outlook | None = None  # None: no published figures of the device
    menu: Menu | None = None  # of goals; None: not requested
    opinion: Opinion | None = None  # None: not requested
    startup: StartupPrediction | None = None  # None: of a ranking's plans
    elsewhere: CatalogChoices | None = None  # None: not requested

    @property
    def monthly_words(self) -> str:
        """Return a month's cost at the stated load; "" where the throughput is unknown."""
        if self.outlook is None or self.outlook.monthly is None:
            return ""
        return monthly_sentence(self.outlook.monthly, self.outlook.prediction)

    @property
    def prediction(self) -> Prediction | None:
        return self.outlook.prediction if self.outlook else None


def page_document(page: PlanPage) -> dict[str, Any]:
    """The page as JSON: the values that the text shows."""
    return {
        **plan_document(page.plan),
        "steps": [step.name for step in page.recipe.steps],
        "forecasts": forecast_documents(page.forecasts),
        "predicted": outlook_document(page.outlook) if page.outlook else None,
        "second_opinion": opinion_document(page.opinion, page.prediction) if page.opinion else None,
        "startup": startup_document(page.startup) if page.startup else None,
        # null: not requested; []: no published figures of the device
        "anywhere": page.elsewhere.document() if page.elsewhere else None,
        "to_try": None if page.menu is None else menu_document(page.menu),
    }


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return the plan alone as JSON."""
    budget = plan.budget
    return {
        "model": asdict(plan.model),
        "profile": asdict(plan.profile),
        "instance": {
            "name": plan.instance.name,
            "device": plan.instance.device_name,
            "devices": plan.instance.devices,
            "device_bytes": plan.instance.device_bytes,
            "price_usd_hour": plan.instance.price_usd_hour,
            "price_basis": plan.instance.price_basis,
            "machine": plan.instance.machine,
            "processor": list(processor_features(plan)),
        },
        "container": _container_document(plan.container),
        "platform": str(plan.platform),
        "served_name": plan.served_name,
        "answers_as": plan.answers_as,
        "precision": plan.precision,
        "tp_degree": plan.tp_degree,
        "pp_degree": plan.pp_degree,
        "replicas": plan.replicas,
        "split": {
            **asdict(plan.split),
            "devices": plan.split.devices,
            "copies": plan.split.copies,
            "words": plan.split.words,
        },
        "shape": asdict(plan.shape),
        "capacity": capacity_document(plan),
        "workload": asdict(plan.workload),
        "gpu_memory_utilization": plan.gpu_memory_utilization,
        "dtype": plan.dtype,
        "kv_dtype": plan.kv_dtype,
        "weights": plan.weights,
        "load_format": plan.load_format or None,
        "quantization": _quantization_document(plan),
        "draft": asdict(plan.draft) if plan.draft else None,
        **({"adapters": adapters_document(plan.adapters)} if plan.adapters else {}),
        "tool_call_parser": _parser_document(plan.tool_parser),
        "reasoning_parser": _parser_document(plan.reasoning_parser),
        "stopping": _stopping_document(plan),
        "memory_per_device": {
            **asdict(budget),
            "needed_bytes": budget.needed_bytes,
            "kv_tokens_left": tokens_left(plan),
        },
        "rejected": [asdict(rejected) for rejected in plan.rejected],
        "findings": [finding_document(finding) for finding in plan.findings],
    }


def findings_to_show(plan: Plan) -> tuple[Finding, ...]:
    """Return the findings without notes that the list of rejected options repeats."""
    reasons = {rejected.reason for rejected in plan.rejected}
    return tuple(
        found for found in plan.findings if found.severity != "note" or found.message not in reasons
    )


def rejection_lines(error: PlanRejected) -> list[str]:
    """Return why there is no plan, and suggested alternatives.

    Notes on files left out are omitted, as no image is made; JSON has them.
    """
    lines = finding_lines(found for found in error.findings if found.code != FILES_LEFT_OUT)
    if error.nearest:
        lines += ["", "what fits instead, planned just now:"]
        lines += [f"  {change}" for change in error.nearest]
    return [escape(line) for line in lines]


def container_words(container: ContainerFacts) -> str:
    """Return a container's name so that it reads well with and without a version of its own."""
    engine = f"{container.engine} {container.engine_version}".strip()
    if not container.version:
        variant = f", {container.variant}" if container.variant else ""
        return f"{container.family} image{variant}, {engine}"
    variant = f" {container.variant}" if container.variant else ""
    return f"{container.family}{variant} {container.version} with {engine}"


def spread_words(plan: Plan) -> str:
    """Describe the spread over devices: `8 devices: TP 2 x 4 copies (data parallel)`."""
    split = plan.split
    if split.devices == 1:
        return "tensor parallel 1, 1 copy"
    total = plan.instance.devices * split.nodes
    devices = (
        f"{total} devices" if split.devices == total else f"{split.devices} of {total} devices"
    )
    return f"{devices}: {split.words}"


def price_words(plan: Plan) -> str:
    """Format the price of an hour of all machines with its source; "" where unknown."""
    if not plan.usd_hour:
        return ""
    words = plan.instance.price_basis.partition("[")[0]  # `published[F]` names its table
    basis = f" ({words})" if words else ""
    return f"${plan.usd_hour:g}/h{basis}"


def processor_features(plan: Plan) -> tuple[str, ...]:
    """Return what the processor is known to have of what engines choose kernels by."""
    return tuple(sorted(known_flags(plan.instance)))


def _platform_pair(plan: Plan) -> tuple[Pair, ...]:
    """Return the image's platform where it is not the usual one, with the processor's features."""
    if plan.platform == Platform():
        return ()
    features = processor_features(plan)
    with_features = f", on processors with {', '.join(features)}" if features else ""
    return (Pair("platform", f"{plan.platform}{with_features}"),)


def _container_document(container: ContainerFacts) -> dict[str, Any]:
    """Return a container as the catalog describes it, without the traits of its engine."""
    document = asdict(container)
    del document["traits"]
    return document


def _quantization_document(plan: Plan) -> dict[str, Any] | None:
    if plan.quantization is None:
        return None
    document = asdict(plan.quantization)
    groups = [one["quantization"] for one in document["groups"] if one["quantization"]]
    for one in (document, *groups):
        del one["layout"]  # how it is computed
    for one in groups:
        del one["groups"]
    return document


def groups_sentence(plan: Plan) -> str:
    """Write the scheme of each part of the model; "" where all parts have one."""
    groups = plan.quantization.groups if plan.quantization else ()
    return "; ".join(_group_words(one) for one in groups if one.modules)


def _group_words(group: LayerGroup) -> str:
    matrices = "1 matrix" if group.modules == 1 else f"{group.modules:,} matrices"
    chosen = group.quantization
    scheme = (chosen.scheme or "as they are") if chosen else "as they are"
    return f"{escape(group.target)} {scheme} ({matrices}, {count_words(group.parameters)} weights)"


def _parser_document(chosen: ChosenParser | None) -> dict[str, str] | None:
    if chosen is None:
        return None
    return {"name": chosen.name, "reason": chosen.reason, "source": chosen.source}


def _stopping_document(plan: Plan) -> dict[str, Any] | None:
    if plan.stopping is None:
        return None
    return {**asdict(plan.stopping), "grace_s": plan.stopping.grace_s}


def host_sentence(container: ContainerFacts) -> str:
    """Describe the requirements on the container's host; "" where unknown."""
    if not container.least_driver:
        return ""
    words = f"NVIDIA driver {container.least_driver} or later, for CUDA {container.cuda}"
    ami = container.inference_ami
    return f"{words}; on SageMaker InferenceAmiVersion {ami}" if ami else words


def stopping_sentence(plan: Plan) -> str:
    """Write what happens to running requests at SIGTERM, and which grace period fits it."""
    stopping = plan.stopping
    if stopping is None:
        return ""
    if stopping.drain_s == 0:
        return "running requests are lost at SIGTERM: take traffic away before it"
    if stopping.drain_s is None:
        return (
            "running requests end first, however long they take; give the container a grace "
            f"period of {stopping.grace_s} s or more"
        )
    return (
        f"running requests get {stopping.drain_s} s after SIGTERM; give the container a grace "
        f"period of {stopping.grace_s} s"
    )


def detail_sentences(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield labelled details for production; nothing where none are known."""
    for label, chosen in (("tool calls", plan.tool_parser), ("reasoning", plan.reasoning_parser)):
        if chosen is not None:
            yield label, f"{chosen.name}: {chosen.reason}"
    if groups := groups_sentence(plan):
        yield "layers", groups
    if needs := host_sentence(plan.container):
        yield "needs", needs
    if stops := stopping_sentence(plan):
        yield "stops", stops


def work_sentences(
    plan: Plan, recipe: Recipe, forecasts: tuple[CacheStatus, ...] = ()
) -> Iterator[str]:
    """Describe the steps that a build would run, and those that it would skip."""
    if forecasts:
        yield from forecast_sentences(forecasts)
    elif recipe.steps:
        yield f"{', '.join(step.name for step in recipe.steps)}"
    elif plan.quantization and plan.quantization.existing:
        yield f"no step: the checkpoint is already {plan.quantization.scheme}"
    elif "quantize" in recipe.finishes:
        yield "no step: the weights are quantized while they are read"
    elif plan.quantization:
        yield (
            f"the weights are served as {plan.quantization.scheme}, "
            "but no step that makes them so is planned"
        )
    else:
        yield "no step: the weights are served as they are"
    if plan.draft:
        reference = plan.draft.reference or PROPOSERS[plan.draft.kind]
        most = "up to " if plan.draft.kind == "suffix" else ""
        yield f"{most}{plan.draft.speculative_tokens} tokens are drafted at a time from {reference}"
    yield from adapter_sentences(plan.adapters)


def cost_sentence(plan: Plan, outlook: Outlook | None) -> str:
    """Describe the cost of the instance and of its tokens."""
    hour = price_words(plan)
    if not hour:
        _, none, reason = plan.instance.price_basis.partition("none: ")
        return f"not known: {reason if none else 'no price of this instance in the catalog'}"
    if outlook is None:
        return f"{hour}; tokens cannot be priced without published figures of the device"
    last = outlook.points[-1]
    assert last.prices is not None  # the instance has a price, so its points have
    discount = f", {percent(outlook.discount)} off" if outlook.discount else ""
    if outlook.prediction.workload.texts:
        return (
            f"{hour}{discount}; at {last.point.concurrency} requests at once "
            f"${usd(last.prices.input)} per million tokens in, "
            f"${usd(last.prices.output)} per million texts, ±{percent(outlook.prediction.widest)}"
        )
    return (
        f"{hour}{discount}; at {last.point.concurrency} requests at once "
        f"${usd(last.prices.output)} per million tokens out, "
        f"${usd(last.prices.total)} per million in and out, ±{percent(outlook.prediction.widest)}"
    )


def memory_bar(plan: Plan) -> Bar:
    """Return the parts of a device's memory, without empty ones, and what is left of it.

    An engine with a paged cache takes for it whatever the rest leaves.
    """
    budget = plan.budget
    usable = max(1, budget.usable_bytes)
    cache, drafted, state = budget.kv_bytes, budget.draft_kv_bytes, budget.state_bytes
    free = max(0, budget.usable_bytes - budget.needed_bytes)
    pooling = plan.profile.pooling
    if not reserves(plan.instance) and (pooling is None or pooling.is_causal):
        share = drafted / max(1, cache + drafted)
        pool = max(budget.kv_pool_bytes, cache + drafted)
        drafted, state, free = int(pool * share), 0, 0
        cache = pool - drafted
    parts = (
        ("weights", "W", budget.weights_bytes),
        ("draft", "D", budget.draft_weights_bytes),
        ("kv cache", "K", cache),
        ("draft cache", "d", drafted),
        ("state", "S", state),
        ("activations", "A", budget.activations_bytes),
        ("overhead", "O", budget.overhead_bytes),
        ("free", ".", free),
    )
    return Bar(
        label="memory",
        text=f"{gib(budget.usable_bytes)} of {gib(budget.device_bytes)} usable on each device",
        shares=tuple(
            Share(name, letter, gib(size), size / usable) for name, letter, size in parts if size
        ),
    )


def rejected_sentence(rejected: Rejected) -> str:
    """Return a rejected option with its reason and alternative."""
    return f"{rejected.reason}; {rejected.instead}" if rejected.instead else rejected.reason


def decision_pairs(plan: Plan) -> tuple[Pair, ...]:
    """Describe what is served, where, by what and for which requests."""
    profile, instance, shape = plan.profile, plan.instance, plan.shape
    price = price_words(plan)
    nodes = f"{plan.nodes} x " if plan.nodes > 1 else ""
    each = " on each copy" if plan.replicas > 1 else ""
    source = f"{plan.model.name}@{plan.model.revision[:12]}" if plan.model.revision else "local"
    return (
        Pair(
            "model",
            f"{profile.architecture}, {count_words(profile.parameters)} parameters, "
            f"{plan.precision}, {decimal(profile.weight_bytes)} ({source})",
        ),
        Pair(
            "instance",
            f"{nodes}{instance.name}: {instance.devices} x {instance.device_name}, "
            f"{gib(instance.device_bytes)} each" + (f", {price}" if price else ""),
        ),
        Pair("container", container_words(plan.container)),
        *_platform_pair(plan),
        Pair("serves", f"{plan.served_name!r}{_answered(plan)}, {spread_words(plan)}"),
        *task_pairs(plan),
        Pair(
            "shape",
            f"{shape.max_batch} requests{each}, {shape.max_input_tokens} input tokens"
            + (f", {shape.max_total_tokens} in all" if profile.pooling is None else ""),
        ),
    )


def _answered(plan: Plan) -> str:
    """Return the model name in answers, for servers that cannot be configured with one."""
    if plan.answers_as == plan.served_name:
        return ""
    return f" (answers say {plan.answers_as!r})" if plan.answers_as else " (answers name no model)"


def count_words(number: int) -> str:
    """Write a count of parameters: `70.6B`."""
    for unit, name in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.1f}{name}"
    return str(number)
