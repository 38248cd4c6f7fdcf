"""Nodes: a pod's requests of resources, and its selection of an instance type."""

from __future__ import annotations

from packager.addons.fleet.kubernetes import CORES_A_CHIP
from packager.core.deployment import Deployment
from packager.core.instance import Instance
from packager.core.units import GIB

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
NVIDIA = "nvidia.com/gpu"
AMD = "amd.com/gpu"
NEURON = "aws.amazon.com/neuron"
NEURON_CORE = "aws.amazon.com/neuroncore"

# Of the node's processors and memory: what is left beside the kubelet and its reserves.
USABLE = 0.75
RENTED = ("sagemaker", "ec2", "gcp", "azure")  # clouds whose nodes are labelled with their type


def device_request(deployment: Deployment) -> dict[str, int]:
    """Return the devices of one pod, as device plugins count them."""
    kind, count = deployment.instance.kind, deployment.devices
    if not count or kind == "cpu":
        return {}
    if kind == "neuron":
        chip = CORES_A_CHIP.get(deployment.instance.device_name, 1)
        whole = count % chip == 0
        physical = count * (deployment.instance.cores_per_device or 1)
        return {NEURON: count // chip} if whole else {NEURON_CORE: physical}
    return {AMD if kind == "amd" else NVIDIA: count}


def pods_of_node(deployment: Deployment) -> int:
    """Return how many pods of this deployment one node has devices for."""
    if not deployment.devices:
        return 1
    return max(deployment.instance.devices // deployment.devices, 1)


def resources(deployment: Deployment) -> dict[str, dict[str, str]]:
    """Return requests and limits of the server.

    Only devices have a limit: mapped weights count as memory and are given back.  The image is in
    the requested storage, since a node that cannot hold it evicts the pod while it is pulled.
    """
    share = pods_of_node(deployment)
    asked: dict[str, str] = {}
    if deployment.instance.vcpus:
        asked["cpu"] = str(max(int(deployment.instance.vcpus * USABLE) // share, 1))
    if deployment.memory_bytes:
        asked["memory"] = _mebibytes(deployment.memory_bytes)
    storage = (deployment.scratch_bytes or 0) + -(-(deployment.image_bytes or 0) // share)
    if storage:
        asked["ephemeral-storage"] = _mebibytes(storage)
    devices = {name: str(count) for name, count in device_request(deployment).items()}
    made = {"requests": asked | devices} if asked or devices else {}
    return made | ({"limits": devices} if devices else {})


def selector(instance: Instance, *, hyperpod: bool = False) -> dict[str, str]:
    """Return the labels of nodes of an instance type; {} where no cloud sets one."""
    if instance.cloud not in RENTED:
        return {}
    name = instance.name.removeprefix("ml.")
    return {INSTANCE_TYPE: f"ml.{name}" if hyperpod else name}


def tolerations(deployment: Deployment) -> list[dict[str, str]]:
    """Return the tolerations for nodes that are reserved for devices.

    GKE sets the first by itself, EKS by custom; `sku=gpu` is AKS's.
    """
    names = device_request(deployment)
    if not names:
        return []
    key = NEURON if deployment.instance.kind == "neuron" else next(iter(names))
    found = [{"key": key, "operator": "Exists", "effect": "NoSchedule"}]
    if deployment.instance.cloud == "azure":
        found.append({"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"})
    return found


def quantity(size: int) -> str:
    """Return bytes as a quantity: whole GiB or MiB, rounded up."""
    return f"{size // GIB}Gi" if size % GIB == 0 else _mebibytes(size)


def _mebibytes(size: int) -> str:
    return f"{-(-size // (1 << 20))}Mi"
