"""Several machines for one copy of a model, where one does not hold it."""

from __future__ import annotations

from collections.abc import Iterator

from packager.core.errors import PlanRejected
from packager.core.findings import Finding
from packager.core.instance import Instance
from packager.core.plan import Plan
from packager.core.split import Split
from packager.core.traits import EngineTraits
from packager.estimate.sizing.splits import LEAST_NETWORK_GBPS


def check_nodes(split: Split, instance: Instance, traits: EngineTraits) -> Iterator[Finding]:
    """Describe how several machines have to be started."""
    if split.nodes == 1:
        return
    message = (
        f"{split.nodes} x {instance.name} hold the model together: TP {split.tp_degree} inside "
        f"a machine, {split.pp_degree} pipeline stages across them; all start "
        f"{traits.who} with {traits.node_options}"
    )
    hint = (
        "an endpoint of SageMaker is one machine: this is for EC2 or EKS, where `packager deploy "
        "kubernetes` makes one group of them, a LeaderWorkerSet; `--nodes 1` shows what fits one"
    )
    yield Finding("warning", "several-nodes", message, hint)
    speed_gbps = instance.network_gbps
    if speed_gbps is None or speed_gbps < LEAST_NETWORK_GBPS:
        speed = "is not known" if speed_gbps is None else f"has {speed_gbps} Gbit/s"
        message = f"the network between machines of {instance.name} {speed}"
        hint = f"use instances with {LEAST_NETWORK_GBPS} Gbit/s (EFA) or more"
        yield Finding("warning", "nodes-network", message, hint)


def refuse_unasked_nodes(plan: Plan, asked: int | None) -> None:
    """Raise `PlanRejected` for a build over several machines that the user did not request.

    Only a cluster starts such an image, and its build may take an hour.
    """
    if plan.nodes == 1 or asked is not None:
        return
    message = (
        f"{plan.nodes} x {plan.instance.name} are needed, and an image for several machines is "
        "built where they are asked for"
    )
    hint = (
        f"give --nodes {plan.nodes}, and deploy it with `packager deploy kubernetes`; "
        "`packager build --nodes 1` names what fits one machine"
    )
    raise PlanRejected((Finding("error", "nodes-not-asked", message, hint),))
