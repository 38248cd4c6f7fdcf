"""A job as one Kubernetes Job: a pod that runs its stages one after another.

Earlier stages are init containers, which Kubernetes runs in order.  Files that the job was given
come in a ConfigMap; what stages hand on is in a volume of the pod.  A pod that is tried again
begins anew, and takes what its predecessor finished out of the shared cache.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packager.addons.fleet.cluster import Cluster
from packager.addons.fleet.kubernetes import (
    CACHE_DIR,
    CONFIG_MAP_BYTES,
    LONGEST_NAME,
    check_names,
    environment_of,
    label,
)
from packager.addons.server.jobs.commands import arguments_of
from packager.addons.server.jobs.values import BackgroundJob, Stage
from packager.core.errors import UsageError
from packager.engines.rendering.environment import render_template

JOB_DIR = "/var/lib/packager-job"
# Statuses of packager that the next try would have, too.
PERMANENT = (2, 3, 4, 5, 7, 8, 65, 66, 70, 76, 77)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSize:
    """Resources that a pod requests; 0: the cluster's default."""

    cpus: int = 0
    memory_bytes: int = 0
    gpus: int = 0


def files_too_large(size: int) -> UsageError:
    """Return an error: no ConfigMap holds the files of the job."""
    return UsageError(
        f"the files of the job have {size} bytes, a ConfigMap holds {CONFIG_MAP_BYTES}",
        hint="put the large ones where pods can read them, such as a bucket",
        code="FilesTooLarge",
    )


def render_job(
    job: BackgroundJob, files: Mapping[str, bytes], cluster: Cluster, size: PodSize
) -> str:
    """Print a ConfigMap with the job's files, where it has any, and the Job, as YAML documents."""
    check_names(cluster)
    called = f"packager-{label(job.name)[: LONGEST_NAME - 16].strip('-')}-{job.id[:6]}"
    labels = {"app.kubernetes.io/name": "packager-job", "packager.dev/job": job.id}
    names = sorted(files)
    documents = []
    if names:
        encoded = {
            f"file-{number}": base64.b64encode(files[name]).decode()
            for number, name in enumerate(names)
        }
        if (total := sum(map(len, encoded.values()))) > CONFIG_MAP_BYTES:
            raise files_too_large(total)
        documents.append(
            render_template(
                "deploy/kubernetes/files.yaml.j2",
                called=called,
                namespace=cluster.namespace,
                labels=labels,
                files=encoded,
            )
        )
    stages = [_container(stage, number, cluster) for number, stage in enumerate(job.asked.stages)]
    queue = {"kueue.x-k8s.io/queue-name": cluster.queue} if cluster.queue else {}
    documents.append(
        render_template(
            "deploy/kubernetes/stages.yaml.j2",
            called=called,
            namespace=cluster.namespace,
            labels={**labels, **queue},
            retries=cluster.retries,
            deadline_s=job.asked.limits.run_s,
            suspend=bool(cluster.queue),
            permanent=list(PERMANENT),
            service_account=cluster.service_account,
            tolerations=_tolerations(size),
            image=cluster.image,
            directory=JOB_DIR,
            secret=cluster.secret,
            resources=_resources(size),
            earlier=stages[:-1],
            last=stages[-1:],
            mounts=_mounts(names),
            volumes=_volumes(names, cluster, called),
        )
    )
    return "---\n".join(documents)


def _container(stage: Stage, number: int, cluster: Cluster) -> dict[str, Any]:
    # Kubernetes puts variables in the place of $(NAME), and one dollar in the place of two.
    words = [word.replace("$", "$$") for word in arguments_of(stage, Path(JOB_DIR))]
    own = [
        {"name": name, "value": value.replace("$", "$$")}
        for name, value in sorted(stage.environment.items())
    ]
    return {
        "name": f"{number + 1}-{label(stage.name)}"[:63].rstrip("-"),
        "args": words,
        "env": [*environment_of(cluster), *own],
    }


def _resources(size: PodSize) -> dict[str, dict[str, str]]:
    asked: dict[str, str] = {}
    limits: dict[str, str] = {}
    if size.cpus:
        asked["cpu"] = str(size.cpus)
    if size.memory_bytes:
        asked["memory"] = limits["memory"] = str(size.memory_bytes)
    if size.gpus:
        asked["nvidia.com/gpu"] = limits["nvidia.com/gpu"] = str(size.gpus)
    return ({"requests": asked} if asked else {}) | ({"limits": limits} if limits else {})


def _tolerations(size: PodSize) -> list[dict[str, str]]:
    if not size.gpus:
        return []
    return [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]


def _mounts(names: list[str]) -> list[dict[str, Any]]:
    files = [
        {
            "name": "files",
            "mountPath": f"{JOB_DIR}/{name}",
            "subPath": f"file-{number}",
            "readOnly": True,
        }
        for number, name in enumerate(names)
    ]
    return [
        {"name": "job", "mountPath": JOB_DIR},
        *files,
        {"name": "cache", "mountPath": CACHE_DIR},
    ]


def _volumes(names: list[str], cluster: Cluster, called: str) -> list[dict[str, Any]]:
    kept = {"persistentVolumeClaim": {"claimName": cluster.claim}}
    return [
        {"name": "job", "emptyDir": {}},
        *([{"name": "files", "configMap": {"name": called}}] if names else []),
        {"name": "cache", **(kept if cluster.claim else {"emptyDir": {}})},
    ]
