"""Over how many devices a model can be split, and the choice among the ways.

The vocabulary never forbids a degree: engines pad it.  Degrees that are passed
over are explained, each with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from packager.catalog.neuron import COMMON_DEGREES, find_core
from packager.core.findings import Finding
from packager.core.instance import GPUS, Instance
from packager.core.model import ModelProfile
from packager.core.plan import MemoryBudget
from packager.core.split import Split
from packager.core.techniques import Rejected
from packager.core.traits import EngineTraits
from packager.core.units import gib
from packager.estimate.sizing.blocks import UNBLOCKED, BlockedModel
from packager.estimate.sizing.memory import is_converted_to_mha


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedSplit:
    """The degrees of a request; None: chosen by the planner."""

    tp_degree: int | None = None
    pp_degree: int | None = None
    dp_degree: int | None = None
    ep: bool | None = None
    nodes: int | None = None
    latency: bool = False  # the goal: larger tensor-parallel degrees come first


def find_degrees(
    profile: ModelProfile,
    instance: Instance,
    asked: int | None = None,
    *,
    whole_experts: bool = False,
    copies_kv_heads: bool = True,
    blocked: BlockedModel = UNBLOCKED,
) -> tuple[tuple[int, ...], tuple[Rejected, ...], tuple[Finding, ...]]:
    """List the degrees to try, best first; only `asked` if it is set.

    Divisors of the device count are considered, so that copies of the model use all devices.  A
    forbidden degree is an error only if the user requested it.  Neuron servers run one copy: there
    all cores come first.  `whole_experts`: the engine can spread experts instead of cutting them;
    `copies_kv_heads`: it copies one key-value head to several devices.  `blocked` has the weights
    that share scales.
    """

    def refused(degree: int) -> str:
        return _refusal_of(profile, instance, degree, blocked, whole_experts, copies_kv_heads)

    if asked is not None:
        reason = refused(asked)
        if not reason:
            return (asked,), (), tuple(_neuron_findings(profile, instance, asked))
        others = [degree for degree in _candidates(instance) if not refused(degree)]
        hint = f"ask for one that is possible here: {', '.join(map(str, sorted(others)))}"
        error = Finding("error", "tp-not-allowed", f"TP {asked} is asked for: {reason}", hint)
        return (), (), (error,)
    reasons = {degree: refused(degree) for degree in _candidates(instance)}
    rejected = tuple(
        Rejected(
            what=f"tp {degree}",
            code="tp-not-allowed",
            reason=f"TP {degree} is not possible: {reason}",
        )
        for degree, reason in reasons.items()
        if reason
    )
    return tuple(degree for degree, reason in reasons.items() if not reason), rejected, ()


def _refusal_of(
    profile: ModelProfile,
    instance: Instance,
    degree: int,
    blocked: BlockedModel,
    whole_experts: bool,
    copies_kv_heads: bool,
) -> str:
    if not copies_kv_heads and profile.kv_heads % degree and degree <= instance.devices:
        return f"the engine cannot split {profile.kv_heads} key-value heads over it"
    reason = refusal(profile, instance, degree, blocked)
    if reason and whole_experts and not profile.experts % degree:
        dense = replace(blocked, experts=())
        return refusal(replace(profile, expert_size=0), instance, degree, dense)
    return reason


def refuse_experts(profile: ModelProfile, degree: int) -> str:
    """Explain why experts cannot be cut into `degree` parts; empty when they can."""
    if profile.expert_size % degree:
        return f"the experts' size {profile.expert_size} is not a multiple of it"
    return ""


def refusal(
    profile: ModelProfile, instance: Instance, degree: int, blocked: BlockedModel = UNBLOCKED
) -> str:
    """Return why the model cannot be split `degree` ways on the instance; empty when it can."""
    if degree > instance.devices:
        return f"the instance has {instance.devices} device{'s' if instance.devices > 1 else ''}"
    if instance.kind == "neuron":  # heads are padded, key-value heads copied
        return blocked.refuse(degree) or blocked.refuse_experts(degree)
    if profile.heads % degree:
        return f"{profile.heads} attention heads are not a multiple of it"
    shares_heads = profile.attention == "heads"
    if shares_heads and profile.kv_heads % degree and degree % profile.kv_heads:
        return f"{profile.kv_heads} key-value heads can be neither split nor copied evenly"
    if profile.intermediate_size % degree:
        return f"the intermediate size {profile.intermediate_size} is not a multiple of it"
    if profile.expert_size % degree:
        return f"the experts' size {profile.expert_size} is not a multiple of it"
    for count in profile.split_counts:
        if count % degree:
            return f"{count} heads of linear attention are not a multiple of it"
    return blocked.refuse(degree) or blocked.refuse_experts(degree)


def choose_split(
    splits: tuple[Split, ...], budget_at: Callable[[Split], MemoryBudget]
) -> tuple[Split | None, tuple[Rejected, ...]]:
    """Return the first layout whose per-device budget fits, None without one, and the others.

    Every layout passed over is explained to the user, once for each way of cutting the model.
    """
    passed_over: dict[str, Rejected] = {}
    for split in splits:
        budget = budget_at(split)
        if budget.fits:
            return split, tuple(passed_over.values())
        explained = explain_cut(split, budget)
        passed_over.setdefault(explained.what, explained)
    return None, tuple(passed_over.values())


def explain_cut(split: Split, budget: MemoryBudget) -> Rejected:
    """Return why a way of cutting the model does not fit, in numbers."""
    cut = f"TP {split.tp_degree}" + (f" PP {split.pp_degree}" if split.pp_degree > 1 else "")
    reason = f"{cut} needs {gib(budget.needed_bytes)} per device; "
    reason += f"{gib(budget.usable_bytes)} usable"
    if budget.lacking_bytes and budget.needed_bytes <= budget.usable_bytes:
        reason = f"{cut} lacks {gib(budget.lacking_bytes)} beside the engine's share of the memory"
    return Rejected(what=cut.lower(), code="tp-does-not-fit", reason=reason)


def find_pipelines(
    requested: RequestedSplit, profile: ModelProfile, instance: Instance, traits: EngineTraits
) -> tuple[tuple[int, ...], tuple[Finding, ...]]:
    """List the pipeline depths to try, 1 first; only the requested one, if any."""
    depth = requested.pp_degree
    if depth is None:
        if not traits.pipeline or instance.kind not in GPUS:
            return (1,), ()
        devices = instance.devices * (requested.nodes or 1)
        depths = range(1, min(devices, profile.layers) + 1)
        return tuple(one for one in depths if devices % one == 0), ()
    if depth > 1 and not traits.pipeline:
        message = (
            f"{traits.who} does not support pipeline parallelism on {instance.name} "
            f"(pp_degree={depth} requested)"
        )
        hint = "use `--family vllm` on an instance with NVIDIA GPUs, or leave pp_degree out"
        return (), (Finding("error", "pp-not-supported", message, hint),)
    devices = instance.devices * (requested.nodes or 1)
    if depth > profile.layers or depth * (requested.tp_degree or 1) > devices:
        message = (
            f"PP {depth} is requested: the model has {profile.layers} layers, "
            f"{instance.name} {devices} devices"
        )
        hint = "lower pp_degree: pp_degree times tp_degree devices are needed"
        return (), (Finding("error", "pp-not-allowed", message, hint),)
    return (depth,), ()


def note_split(profile: ModelProfile, instance: Instance, degree: int) -> tuple[Finding, ...]:
    """Return notes on what the chosen degree does to attention heads on Neuron."""
    return tuple(_neuron_findings(profile, instance, degree))


def _candidates(instance: Instance) -> tuple[int, ...]:
    everything = instance.devices
    if instance.kind == "neuron":
        core = find_core(_core_version(instance))
        known = core.degrees if core else COMMON_DEGREES
        fewer = sorted((degree for degree in known if degree < everything), reverse=True)
        return (everything, *fewer)
    return tuple(degree for degree in range(1, everything + 1) if everything % degree == 0)


def _core_version(instance: Instance) -> str:
    return instance.device_name.rpartition("-")[2]


def _neuron_findings(profile: ModelProfile, instance: Instance, degree: int) -> Iterator[Finding]:
    if instance.kind != "neuron":
        return
    if degree not in _candidates(instance):
        usual = ", ".join(map(str, sorted(_candidates(instance))))
        message = f"TP {degree} is none of the degrees that Neuron's guides use here: {usual}"
        hint = "compile and try it before you rely on it"
        yield Finding("warning", "tp-topology", message, hint)
    padded = -(-profile.heads // degree) * degree
    if padded != profile.heads:
        message = f"{profile.heads} attention heads are padded to {padded} at TP {degree}"
        yield Finding("note", "heads-padded", message)
    if is_converted_to_mha(profile, degree):
        message = (
            f"at TP {degree} the {profile.kv_heads} key-value heads are neither split nor copied: "
            f"each of {padded} heads gets its own, and the cache grows"
        )
        hint = "choose a degree that divides, or is a multiple of, the key-value heads"
        yield Finding("warning", "kv-heads-converted", message, hint)
