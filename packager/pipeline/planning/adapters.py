"""LoRA adapters in a plan: whether they fit, what an engine reads of them, slots and options.

A pure function of the facts.  What an engine would read wrongly is rewritten while it is packaged,
with a note, or refused: nothing is loaded that PEFT would compute otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from packager.core.adapters import (
    AdaptedModule,
    Adapter,
    AdapterPlan,
    AdapterRewrite,
    ServedAdapter,
)
from packager.core.facts import Facts
from packager.core.findings import Finding, Severity, errors_in
from packager.core.plan import Plan
from packager.core.serving import ADAPTERS_DIR, MODEL_DIR, MOUNTED_MODEL_DIR
from packager.core.suggestions import nearest
from packager.core.traits import AdapterTraits
from packager.engines.adapters import OWNED, adapter_options, slot_rank
from packager.engines.effects import engine_named
from packager.estimate.sizing.adapters import AdapterSlots, adapter_bytes
from packager.models.adapters.fitting import (
    AdapterFit,
    fit_adapter,
    is_expert,
    is_expert_path,
    matrix_sides,
)
from packager.models.adapters.pairs import tensor_names
from packager.models.architectures.profile import architecture_of
from packager.optimize.compile.choose import NOT_REQUESTED
from packager.pipeline.planning.adapter_checks import MERGE, check_adapter

DEFAULT_SLOTS = 4  # at most, where the request does not say: each takes memory of every device
RUNTIME_RANK = 16  # of adapters that nobody has seen yet
ALL_TARGETS = ("all", "all-linear", "all_linear")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterChoice:
    """The adapters of a plan, and the facts with the options that serve them."""

    facts: Facts
    plan: AdapterPlan | None = None
    findings: tuple[Finding, ...] = ()


def choose_adapters(facts: Facts) -> AdapterChoice:
    """Check every adapter against base and engine, and choose slots and options."""
    request, traits = facts.request, facts.container.traits.adapters
    if not facts.adapters and not request.allow_runtime_adapters:
        wanted = request.max_adapters is not None
        unused = Finding(
            "error", "adapters-none", "--max-adapters is given, and no adapter", "add one"
        )
        return AdapterChoice(facts=facts, findings=(unused,) if wanted else ())
    who = facts.container.traits.who or facts.container.family
    if traits is None:
        message = f"{who} serves no LoRA adapters here"
        return AdapterChoice(
            facts=facts, findings=(Finding("error", "adapters-unsupported", message, MERGE),)
        )
    findings: list[Finding] = list(_check_model(facts, traits, who))
    served: list[ServedAdapter] = []
    for adapter in facts.adapters:
        fit = fit_adapter(adapter, facts.model)
        findings += [*fit.findings, *check_adapter(adapter, fit, facts, traits, who)]
        rewrite, refused = _rewrite(adapter, fit, traits)
        findings += [*refused, *_notes_on(adapter, rewrite, facts)]
        served.append(_served(adapter, rewrite, facts, traits))
    plan = _planned(served, facts, traits)
    if traits.ranks and not plan.rank:
        largest = max(served, key=lambda one: one.rank)
        message = f"adapter {largest.name!r} has rank {largest.rank}; slots of {who} have "
        message += f"{traits.ranks[-1]} at most"
        findings.append(Finding("error", "adapter-rank", message, MERGE))
    options, of_options = _options(plan, facts, traits, who)
    findings += [*of_options, *_check_serving(plan, facts, traits, who)]
    if errors_in(findings):
        options = {}
    given = request.engine_options or {}
    changed = request.model_copy(update={"engine_options": {**options, **given} or None})
    return AdapterChoice(facts=replace(facts, request=changed), plan=plan, findings=tuple(findings))


def check_adapters(plan: Plan) -> Iterator[Finding]:
    """Refuse slots that a layout over devices cannot divide."""
    if plan.adapters is None:
        return
    options = engine_named(plan.container, dict(plan.engine_options))
    rank = options.get("max-lora-rank", "")
    sharded = options.get("fully-sharded-loras", "").lower() == "true"
    if sharded and rank.isdecimal() and int(rank) % plan.tp_degree:
        message = f"slots of rank {rank} cannot be divided over {plan.tp_degree} devices"
        hint = "leave fully-sharded-loras out, or choose --tp-degree"
        yield Finding("error", "adapter-rank", message, hint)


def with_slot_bytes(plan: Plan, slots: AdapterSlots | None) -> Plan:
    """Return the plan with what the slots take on each device, in its layout."""
    if plan.adapters is None:
        return plan
    taken = adapter_bytes(plan.profile, plan.split, slots)
    return replace(plan, adapters=replace(plan.adapters, device_bytes=taken))


def compiler_for(requested: str | None, plan: Plan) -> tuple[str | None, tuple[Finding, ...]]:
    """Return the compiler to ask for: none where adapters turn compiled code off, or change it."""
    traits = plan.container.traits.adapters
    if plan.adapters is None or traits is None or requested in NOT_REQUESTED:
        return requested, ()
    kind = plan.instance.kind
    if kind in traits.stops_compiling:
        message = "with adapters the engine does not compile on processors: nothing is baked for it"
    else:
        message = "what is compiled without adapters does not serve with them: nothing is baked"
    severity: Severity = "note" if requested == "auto" else "error"
    return "off", (Finding(severity, "adapters-compile", message, "use --compile off"),)


def _planned(served: list[ServedAdapter], facts: Facts, traits: AdapterTraits) -> AdapterPlan:
    request = facts.request
    count = len(served)
    slots = request.max_adapters or max(1, min(count, DEFAULT_SLOTS))
    largest = max((one.rank for one in served), default=RUNTIME_RANK)
    leaves = sorted({leaf for one in served for leaf in one.leaves})
    return AdapterPlan(
        adapters=tuple(served),
        slots=count if traits.layout == "variable" else slots,
        rank=slot_rank(traits, largest),
        leaves=() if traits.wraps_all else tuple(leaves),
        runtime=bool(request.allow_runtime_adapters),
    )


def _served(
    adapter: Adapter, rewrite: AdapterRewrite | None, facts: Facts, traits: AdapterTraits
) -> ServedAdapter:
    place = ADAPTERS_DIR
    if facts.request.weights == "mounted" and facts.writes_tree:
        place = f"{MOUNTED_MODEL_DIR}/adapters"
    elif traits.in_model:
        model = MODEL_DIR if facts.request.weights == "baked" else MOUNTED_MODEL_DIR
        place = f"{model}/adapters"
    return ServedAdapter(
        name=adapter.name,
        ref=adapter.ref,
        directory=f"{place}/{adapter.name}",
        rank=adapter.max_rank,
        leaves=adapter.leaves,
        size=adapter.size,
        rewrite=rewrite,
    )


def _options(
    plan: AdapterPlan, facts: Facts, traits: AdapterTraits, who: str
) -> tuple[Mapping[str, str], list[Finding]]:
    """Return the options that the request does not set itself, and what it sets wrongly."""
    request = facts.request
    given = engine_named(facts.container, request.engine_options)
    name = request.served_name or facts.model.ref.name
    options = adapter_options(
        traits, plan.adapters, slots=plan.slots, rank=plan.rank, served_name=name
    )
    named = {own: next(iter(engine_named(facts.container, {own: ""}))) for own in options}
    findings = []
    for own, value in options.items():
        stated = given.get(named[own])
        if stated is None:
            continue
        if own in OWNED:
            message = f"{own!r} is set by --adapter, and by --engine-option"
            findings.append(
                Finding("error", "options-conflict", message, "leave the engine's option out")
            )
        elif stated.isdecimal() and int(stated) < int(value):
            message = f"{own!r} is {stated}; the adapters need {value}"
            findings.append(
                Finding("error", "options-conflict", message, f"leave {own} out of {who}'s options")
            )
    left = {own: value for own, value in options.items() if named[own] not in given}
    return left, findings


def _check_model(facts: Facts, traits: AdapterTraits, who: str) -> Iterator[Finding]:
    architecture = architecture_of(facts.model.config)
    if architecture in traits.without:
        message = f"{who} has no adapters for {architecture}"
        yield Finding("error", "adapters-unsupported", message, MERGE)
    has_experts = any(map(is_expert_path, matrix_sides(facts.model)))
    if has_experts and facts.instance.kind in traits.no_experts:
        message = f"{who} computes experts and adapters together on GPUs alone"
        yield Finding("error", "adapters-unsupported", message, MERGE)
    served = facts.request.served_name or facts.model.ref.name
    for adapter in facts.adapters:
        if adapter.name == served:
            message = f"the adapter {adapter.name!r} has the name of the model itself"
            yield Finding("error", "adapter-name", message, "give one of them another name")


def _rewrite(
    adapter: Adapter, fit: AdapterFit, traits: AdapterTraits
) -> tuple[AdapterRewrite | None, tuple[Finding, ...]]:
    """Return what has to be written otherwise for this engine, or why it cannot be."""
    why = tuple(_misread(adapter, fit, traits))
    if not why:
        return None, ()
    if any(one.form == "experts" for one in adapter.modules):
        message = f"adapter {adapter.name!r} has {', '.join(why)}, and experts in one tensor"
        return None, (Finding("error", "adapter-field", message, MERGE),)
    return AdapterRewrite(rank=adapter.max_rank, paths=dict(fit.paths), why=why), ()


def _misread(adapter: Adapter, fit: AdapterFit, traits: AdapterTraits) -> Iterator[str]:
    """Yield what the engine's version would read otherwise than PEFT."""
    if any(not _is_near(one.scale, _read_scale(adapter, one, traits)) for one in adapter.modules):
        yield "scales that the engine does not read"
    is_mixed = any(one.rank != adapter.rank for one in adapter.modules)
    if is_mixed and ("ranks" not in traits.honours or any(map(is_expert, adapter.modules))):
        yield "matrices of several ranks"
    targets = adapter.config.get("target_modules")
    if "regex" not in traits.honours and isinstance(targets, str) and targets not in ALL_TARGETS:
        yield "a pattern for target modules"
    names = {one.path: (one.a.name, one.b.name) for one in adapter.modules}
    if any(tensor_names(one.path, one.form) != names[one.path] for one in adapter.modules):
        yield "names of tensors that a trainer left"
    if fit.copies:
        yield "copies of the base's own weights"
    if "bias" in adapter.flags:
        yield "a field for biases, of which it has none"
    if fit.paths:
        yield "names of modules that the base's checkpoint spells otherwise"


def _read_scale(adapter: Adapter, module: AdaptedModule, traits: AdapterTraits) -> float:
    """Return the scale that the engine applies: of experts none knows the root of the rank."""
    by_root = adapter.config.get("use_rslora") is True
    if "patterns" in traits.honours and not (by_root and is_expert(module)):
        return module.scale
    is_read = by_root and "root" in traits.honours and not is_expert(module)
    return float(adapter.alpha / (adapter.rank**0.5 if is_read else adapter.rank))


def _is_near(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-12 * max(abs(one), abs(other))


def _notes_on(adapter: Adapter, rewrite: AdapterRewrite | None, facts: Facts) -> Iterator[Finding]:
    if rewrite is not None:
        message = (
            f"adapter {adapter.name!r} is rewritten while it is packaged: {', '.join(rewrite.why)}"
        )
        hint = f"scales go into B, and every pair gets rank {rewrite.rank}: deltas stay the same"
        yield Finding("note", "adapter-rewritten", message, hint)
    if adapter.left_out:
        named = "; ".join(f"{path} ({why})" for path, why in list(adapter.left_out.items())[:4])
        more = f" and {len(adapter.left_out) - 4} more" if len(adapter.left_out) > 4 else ""
        message = f"of the adapter {adapter.name!r} is left out: {named}{more}"
        yield Finding("note", "files-left-out", message)
    own = facts.model.ref.published_name
    if (
        own
        and adapter.base
        and adapter.base.rpartition("/")[2].lower() != own.rpartition("/")[2].lower()
    ):
        is_close = nearest(adapter.base, (own,)) == own
        trained = f"adapter {adapter.name!r} was trained on {adapter.base[:120]!r}"
        message = f"{trained}, and the base is {own!r}"
        hint = "shapes and names fit; another model of the same shape answers worse"
        yield Finding("note" if is_close else "warning", "adapter-base", message, hint)


def _check_serving(
    plan: AdapterPlan, facts: Facts, traits: AdapterTraits, who: str
) -> Iterator[Finding]:
    """Find where the base answers in an adapter's place, and what waits for a slot."""
    request = facts.request
    if plan.runtime and not (traits.runtime_variable or traits.always_runtime):
        message = f"{who} loads no adapters while it serves"
        yield Finding(
            "error", "adapters-unsupported", message, "leave --allow-runtime-adapters out"
        )
    elif plan.runtime or traits.always_runtime:
        message = f"whoever reaches {who} can load adapters from any directory that it reads"
        yield Finding(
            "warning", "adapters-runtime", message, "let only your own services reach its port"
        )
    if traits.in_model and request.weights == "mounted" and not facts.writes_tree:
        message = f"{who} looks for adapters beside the weights, which are mounted"
        yield Finding(
            "error", "adapters-mounted", message, "write the tree: --output dir:DIR or s3://…"
        )
    if plan.adapters and traits.base_answers:
        message = f"the base answers in an adapter's place {traits.base_answers}"
        hint = "`packager smoke --adapter` shows that each name reaches its adapter"
        yield Finding(
            "warning" if traits.answers_unknown else "note", "adapter-base-answers", message, hint
        )
    if plan.waiting:
        message = f"{plan.slots} of {len(plan.adapters)} adapters are on the devices at once; "
        message += "a request for another one waits until it is copied from the host's memory"
        yield Finding("note", "adapters-wait", message, "--max-adapters N keeps more")
    if request.draft not in (None, "none") and plan.adapters:
        message = "the draft proposes what the base would say: adapters make it gain less"
        yield Finding("note", "adapters-draft", message, "measure it with `packager draft measure`")
