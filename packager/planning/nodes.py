"""Several machines for one copy of a model, where one does not hold it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from packager.core.facts import Facts
from packager.core.findings import Finding, errors_in
from packager.core.instance import Instance
from packager.core.plan import Plan
from packager.core.split import Abilities, Split
from packager.errors import PlanRejected
from packager.planning.splits import LEAST_NETWORK_GBPS, may_use_nodes

# What only more devices cure: any other error would stay on more machines.
CURED = frozenset({"does-not-fit", "no-split"})


def plan_on_nodes(
    facts: Facts,
    rejected: PlanRejected,
    abilities: Abilities,
    decide: Callable[[Facts], Plan],
) -> Plan | None:
    """Return a plan over as few machines as hold the model, at most four; None where none do.

    Only where the request says nothing of machines, and they have a fast network.
    """
    causes = {finding.code for finding in errors_in(rejected.findings)}
    if facts.request.nodes is not None or not causes <= CURED:
        return None
    for nodes in may_use_nodes(facts.instance, abilities):
        request = facts.request.model_copy(update={"nodes": nodes})
        try:
            return decide(replace(facts, request=request))
        except PlanRejected:
            continue
    return None


def check_nodes(split: Split, instance: Instance, abilities: Abilities) -> Iterator[Finding]:
    """Describe what several machines need, and that no image is built for them yet."""
    if split.nodes == 1:
        return
    message = (
        f"{split.nodes} x {instance.name} hold the model together: TP {split.tp_degree} inside "
        f"a machine, {split.pp_degree} pipeline stages across them; all start "
        f"{abilities.who} with {abilities.node_options}"
    )
    hint = (
        "an endpoint of SageMaker is one machine: this is for EC2 or EKS, as one group such as a "
        "LeaderWorkerSet with EFA; `--nodes 1` shows what fits one machine"
    )
    yield Finding("warning", "several-nodes", message, hint)
    if instance.network_gbps < LEAST_NETWORK_GBPS:
        speed = f"has {instance.network_gbps} Gbit/s" if instance.network_gbps else "is not known"
        message = f"the network between machines of {instance.name} {speed}"
        hint = f"use instances with {LEAST_NETWORK_GBPS} Gbit/s (EFA) or more"
        yield Finding("warning", "nodes-network", message, hint)


def refuse_nodes(plan: Plan) -> None:
    """Refuse to build an image for several machines; raise `PlanRejected`.

    Each machine needs its rank and the address of the first when it starts.  Who starts the
    group must give them, and no deployment that does is rendered yet.
    """
    if plan.nodes == 1:
        return
    message = (
        f"{plan.nodes} x {plan.instance.name} are needed, and no image is built for several "
        "machines yet: each needs its rank and the first one's address when it starts"
    )
    hint = "`packager build --nodes 1` names what fits one machine; choose that, or quantize"
    raise PlanRejected((Finding("error", "nodes-not-rendered", message, hint),))
