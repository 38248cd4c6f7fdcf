"""All layouts of a model over the devices of an instance that a container can start.

Layouts come best first.  All devices are used where the engine has a way: larger tensor
parallelism, copies inside one server, a server on each group of devices, experts spread over
all of them.  Devices stay idle only where none applies, with the reason as a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from packager.core.findings import Finding, errors_in
from packager.core.instance import LOCAL, Instance
from packager.core.model import ModelProfile
from packager.core.request import MOST_NODES
from packager.core.split import Split
from packager.core.techniques import Rejected
from packager.core.traits import EngineTraits
from packager.estimate.sizing.blocks import UNBLOCKED, BlockedModel
from packager.estimate.sizing.parallelism import (
    RequestedSplit,
    find_degrees,
    find_pipelines,
    refuse_experts,
)

# Between machines every token's hidden state crosses the network once a stage.  AWS sells EFA with
# remote memory access from 400 Gbit/s on; a slower link is too slow to serve one model on two
# machines.
LEAST_NETWORK_GBPS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Splits:
    """Layouts to try, best first, and findings about the others."""

    splits: tuple[Split, ...]
    rejected: tuple[Rejected, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def depths(self) -> tuple[int, ...]:
        """The numbers of pipeline stages, in the order in which they are tried."""
        return tuple(dict.fromkeys(split.pp_degree for split in self.splits))

    def where(self, fits: Callable[[Split], bool]) -> Splits:
        """Return only the layouts that fit, or all where none does."""
        fitting = tuple(split for split in self.splits if fits(split))
        return replace(self, splits=fitting or self.splits)


def find_splits(
    profile: ModelProfile,
    instance: Instance,
    traits: EngineTraits,
    requested: RequestedSplit,
    blocked: BlockedModel = UNBLOCKED,
) -> Splits:
    """List the layouts that the request, the model, the devices and the engine allow.

    Order: fewer pipeline stages, fewer idle devices, copies that share nothing, then the
    smaller tensor-parallel degree, which exchanges less.  `--goal latency` and Neuron turn
    the last around.
    """
    nodes = requested.nodes or 1
    faults = tuple(_faults(profile, instance, traits, requested))
    spread = bool(profile.experts) and traits.expert_parallel and requested.ep is not False
    degrees, rejected, found = find_degrees(
        profile,
        instance,
        requested.tp_degree,
        whole_experts=spread,
        copies_kv_heads=traits.copies_kv_heads,
        blocked=blocked,
    )
    depths, pipeline_findings = find_pipelines(requested, profile, instance, traits)
    findings = (*faults, *found, *pipeline_findings)
    if errors_in(findings):
        return Splits(splits=(), rejected=rejected, findings=findings)
    if nodes > 1:
        depths = tuple(depth for depth in depths if depth % nodes == 0) or (nodes,)
    candidates = [
        split
        for depth in depths
        for degree in degrees
        for split in _layouts(profile, instance, traits, requested, degree, depth)
        if split.expert_parallel or not blocked.refuse_experts(split.expert_degree)
    ]
    order = {degree: place for place, degree in enumerate(_preferred(degrees, requested))}
    everything = instance.devices * nodes
    candidates.sort(
        key=lambda split: (
            split.pp_degree,
            0 if instance.name == LOCAL else everything - split.devices,
            split.dp_attention,
            order[split.tp_degree],
            split.expert_parallel and not requested.ep,
        )
    )
    return Splits(splits=tuple(candidates), rejected=rejected, findings=findings)


def _preferred(degrees: tuple[int, ...], requested: RequestedSplit) -> tuple[int, ...]:
    return tuple(sorted(degrees, reverse=True)) if requested.latency else degrees


def _layouts(
    profile: ModelProfile,
    instance: Instance,
    traits: EngineTraits,
    requested: RequestedSplit,
    degree: int,
    depth: int,
) -> Iterator[Split]:
    """Yield what can be done with one tensor-parallel degree and one depth of pipeline."""
    nodes = requested.nodes or 1
    groups = instance.devices * nodes // (degree * depth)
    if not groups:
        return
    alone = Split(tp_degree=degree, pp_degree=depth, nodes=nodes)
    if traits.workers:
        yield from _with_experts(profile, traits, requested, replace(alone, workers=groups))
        return
    one = instance.name == LOCAL or nodes > 1  # what several machines hold is one copy
    copies = requested.dp_degree or (1 if one else groups)
    if copies > groups:
        return
    copied = [*_copies(profile, traits, requested, alone, copies)]
    yield from copied
    if not copied and requested.dp_degree in (None, 1):
        yield from _with_experts(profile, traits, requested, alone)


def _copies(
    profile: ModelProfile,
    traits: EngineTraits,
    requested: RequestedSplit,
    alone: Split,
    copies: int,
) -> Iterator[Split]:
    """Yield layouts with several copies inside one server."""
    if copies == 1 or not traits.data_parallel:
        return
    copied = replace(alone, dp_degree=copies)
    if not profile.experts or traits.own_experts:
        yield from _with_experts(profile, traits, requested, copied)
    if profile.experts and traits.dp_attention:
        shared = replace(copied, dp_attention=True)
        yield from _with_experts(profile, traits, requested, shared)


def _with_experts(
    profile: ModelProfile, traits: EngineTraits, requested: RequestedSplit, split: Split
) -> Iterator[Split]:
    """Yield a layout with experts that are cut, and with experts that are kept whole."""
    if not profile.experts:
        yield split
        return
    if not requested.ep and not refuse_experts(profile, split.expert_degree):
        yield split
    may_spread = traits.expert_parallel and requested.ep is not False
    if may_spread and split.expert_degree > 1 and not profile.experts % split.expert_degree:
        yield replace(split, expert_parallel=True)


def _faults(
    profile: ModelProfile, instance: Instance, traits: EngineTraits, requested: RequestedSplit
) -> Iterator[Finding]:
    """Yield an error for each requested degree that is impossible."""
    copies = requested.dp_degree or 1
    if copies > 1 and traits.workers:
        message = f"{traits.who} starts a server on each group of devices, not copies in one"
        hint = "leave dp_degree out; `--tp-degree N` makes groups of N devices"
        yield Finding("error", "dp-not-supported", message, hint)
    elif copies > 1 and not traits.data_parallel:
        message = f"{traits.who} has no data parallelism: DP {copies} is requested"
        hint = "leave dp_degree out, or use `--family vllm` on an instance with NVIDIA GPUs"
        yield Finding("error", "dp-not-supported", message, hint)
    devices = instance.devices * (requested.nodes or 1)
    wanted = copies * (requested.tp_degree or 1) * (requested.pp_degree or 1)
    if copies > 1 and wanted > devices:
        message = f"DP {copies} is requested: {wanted} devices are needed, there are {devices}"
        hint = "lower dp_degree: dp_degree times tp_degree times pp_degree devices are needed"
        yield Finding("error", "dp-not-allowed", message, hint)
    if requested.ep and not profile.experts:
        message = "expert parallelism is requested, and the model has no experts"
        yield Finding("error", "ep-not-allowed", message, "leave ep out")
    elif requested.ep and not traits.expert_parallel:
        message = f"{traits.who} has no expert parallelism"
        yield Finding("error", "ep-not-supported", message, "leave ep out, or use `--family vllm`")
    yield from _node_faults(instance, traits, requested)


def _node_faults(
    instance: Instance, traits: EngineTraits, requested: RequestedSplit
) -> Iterator[Finding]:
    nodes = requested.nodes or 1
    if nodes == 1:
        return
    if nodes > traits.most_nodes:
        message = f"{traits.who} serves one model on {traits.most_nodes} machine: "
        message += f"{nodes} nodes are requested"
        hint = "use `--family vllm` or `--family sglang` with a newer container version"
        yield Finding("error", "nodes-not-supported", message, hint)
    elif instance.name == LOCAL:
        message = "one machine is `local`, and it has no second"
        yield Finding("error", "nodes-not-supported", message, "name an instance type")
    elif (requested.dp_degree or 1) > 1:
        message = f"several machines hold one copy: DP {requested.dp_degree} is requested"
        hint = "leave dp_degree or nodes out; groups of machines are scaled as a whole"
        yield Finding("error", "dp-not-allowed", message, hint)


def may_use_nodes(instance: Instance, traits: EngineTraits) -> range:
    """Return the numbers of machines that may be tried where one does not hold the model."""
    network_gbps = instance.network_gbps or 0  # unknown: too slow
    if instance.name == LOCAL or network_gbps < LEAST_NETWORK_GBPS:
        return range(0)
    return range(2, min(traits.most_nodes, MOST_NODES) + 1)


def check_idle(
    split: Split, instance: Instance, traits: EngineTraits, requested: RequestedSplit
) -> Iterator[Finding]:
    """Yield a warning where devices have no work, with the reason."""
    idle = instance.devices * split.nodes - split.devices
    if idle <= 0 or instance.kind == "cpu":
        return
    if requested.dp_degree is not None:
        reason = f"DP {requested.dp_degree} is requested"
        hint = "leave dp_degree out to use all devices"
    elif instance.name == LOCAL:
        reason, hint = "on `local` nothing is copied unasked", "ask for copies with --dp-degree"
    elif not (traits.data_parallel or traits.workers):
        reason = f"{traits.who} has no data parallelism"
        hint = "leave tp_degree out, or " if requested.tp_degree is not None else ""
        hint += "choose a smaller instance, or `--family vllm` or `lmi`, which run copies"
        if instance.kind == "neuron":
            hint = "choose a smaller instance, or a larger tp_degree"
    else:
        reason = f"{instance.devices} devices are not a multiple of the {split.devices} in use"
        if split.copies == 1:
            reason = "the experts cannot be spread over more of them"
        hint = "choose another tp_degree, or a smaller instance"
    message = f"{split.words} runs on {split.devices} of {instance.devices * split.nodes} "
    message += f"devices; {idle} stay idle: {reason}"
    yield Finding("warning", "devices-idle", message, hint)
