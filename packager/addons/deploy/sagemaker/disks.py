"""Disks of hosting instances: local disks of some types, volumes of the others."""

from __future__ import annotations

import math

from packager.catalog.instances import instance_rows
from packager.core.deployment import Deployment

LEAST_GB, MOST_GB = 1, 512
DEFAULT_GB = 30  # volume that SageMaker attaches by default
GB = 10**9


def local_bytes(name: str) -> int | None:
    """Return the bytes of an instance type's own disks; 0 without any, None for an unknown one."""
    for known, row in instance_rows():
        if known.name == name:
            return int(float(row["local_nvme_gb"] or 0) * GB)
    return None


def needed_bytes(deployment: Deployment) -> int:
    """Return what is written to the disk: the image, as layers and unpacked, or mounted weights."""
    image = 2 * (deployment.image_bytes or 0)
    mounted = (deployment.model_bytes or 0) if deployment.weights.kind == "mounted" else 0
    return image + mounted + (deployment.scratch_bytes or 0)


def volume_gb(deployment: Deployment, asked: int | None) -> int | None:
    """Return VolumeSizeInGB; None where the type has disks of its own, which SageMaker takes."""
    if asked is not None:
        return asked
    if local_bytes(deployment.instance.name) != 0:
        return None
    needed = math.ceil(needed_bytes(deployment) / GB)
    return min(needed, MOST_GB) if needed > DEFAULT_GB else None


def disk_bytes(deployment: Deployment, asked: int | None) -> int | None:
    """Return the disk that a deployment gets; None if unknown."""
    local = local_bytes(deployment.instance.name)
    if local is None or local:
        return local
    return (volume_gb(deployment, asked) or DEFAULT_GB) * GB
