"""A plan as Indexed Jobs: one for each stage and sort of machine.

Every pod runs `packager warm one` for its index, as a laptop does.  Kubernetes does not order Jobs:
those of later stages are suspended until a user or Kueue resumes them.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from packager.addons.fleet.cluster import Cluster
from packager.addons.fleet.planning import canonical, class_of
from packager.core.errors import UsageError
from packager.core.instance import Instance
from packager.core.warmup import PERMANENT, Job, WarmPlan
from packager.engines.rendering.environment import render_template
from packager.optimize.steps.presence import without_lease

CONFIG_MAP_BYTES = 1024 * 1024 - 4096  # of an object; names and labels take some
PLAN_DIR = "/etc/packager-warm"
CACHE_DIR = "/var/cache/packager"
LONGEST_NAME = 52  # pods of a Job get a suffix, and their host name has 63
CORES_A_CHIP = {"NeuronCore-v2": 2, "NeuronCore-v3": 4}  # as many as one chip shows software


def plan_too_large(size: int) -> UsageError:
    """Return an error: no ConfigMap holds the plan."""
    return UsageError(
        f"the plan has {size} bytes, a ConfigMap holds {CONFIG_MAP_BYTES}",
        hint="put the plan on a web server and name it with --plan-url, or split the grid",
        code="PlanTooLarge",
    )


def bad_name(what: str, name: str) -> UsageError:
    """Return an error: kubernetes would refuse the name."""
    return UsageError(
        f"{what} {name!r} is not a name that Kubernetes takes",
        hint="use lower case letters, digits and hyphens",
        code="BadName",
    )


def render_jobs(plan: WarmPlan, cluster: Cluster, instances: Sequence[Instance]) -> str:
    """Print the ConfigMap and the Jobs, as YAML documents in the order to apply them."""
    check_names(cluster)
    data = canonical(plan)
    name = f"packager-warm-{hashlib.sha256(data).hexdigest()[:10]}"
    labels = {"app.kubernetes.io/name": "packager-warm", "packager.dev/plan": name[14:]}
    documents = []
    if not cluster.plan_url:
        if len(data) > CONFIG_MAP_BYTES:
            raise plan_too_large(len(data))
        documents.append(
            render_template(
                "deploy/kubernetes/config_map.yaml.j2",
                called=name,
                namespace=cluster.namespace,
                labels=labels,
                plan=data.decode(),
            )
        )
    for jobs in _groups(plan):
        documents.append(_job(jobs, cluster, instances, name, labels))
    return "---\n".join(documents)


def _groups(plan: WarmPlan) -> Iterator[tuple[Job, ...]]:
    """Yield jobs that go together; their indices follow each other."""
    for _, group in itertools.groupby(plan.jobs, lambda job: (job.stage, class_of(job))):
        yield tuple(group)


def _job(
    jobs: Sequence[Job],
    cluster: Cluster,
    instances: Sequence[Instance],
    plan_name: str,
    labels: dict[str, str],
) -> str:
    first = jobs[0]
    sort = label("-".join(str(part) for part in class_of(first) if part))
    name = f"{plan_name}-{first.stage}-{sort}"[:LONGEST_NAME].rstrip("-")
    own = {**labels, "packager.dev/stage": str(first.stage), "packager.dev/device": sort}
    if cluster.queue:
        own["kueue.x-k8s.io/queue-name"] = cluster.queue
    place = cluster.plan_url or f"{PLAN_DIR}/plan.json"
    return render_template(
        "deploy/kubernetes/job.yaml.j2",
        called=name,
        namespace=cluster.namespace,
        labels=own,
        completions=len(jobs),
        parallelism=min(cluster.parallelism, len(jobs)),
        retries=cluster.retries,
        permanent=list(PERMANENT),
        suspend=bool(cluster.queue) or first.stage > 0,
        service_account=cluster.service_account,
        affinity=_affinity(first, instances) if cluster.pin_nodes else {},
        tolerations=_tolerations(first),
        image=cluster.image,
        command=["packager"],
        args=[
            *("warm", "one", "--plan", place),
            *("--first", str(first.index), "--index", "$(JOB_COMPLETION_INDEX)"),
        ],
        env=environment_of(cluster),
        secret=cluster.secret,
        resources=_resources(jobs),
        mounts=_mounts(cluster),
        volumes=_volumes(cluster, plan_name),
    )


def environment_of(cluster: Cluster) -> list[dict[str, str]]:
    """Return the variables of a pod with the paths of packager's caches."""
    given = {
        "HOME": f"{CACHE_DIR}/home",
        "PACKAGER_CACHE": f"{CACHE_DIR}/packager",
        "PACKAGER_TOOLS": f"{CACHE_DIR}/tools",
    }
    if cluster.shared:
        given["PACKAGER_CACHE_SHARED"] = ",".join(map(without_lease, cluster.shared))
    return [{"name": name, "value": value} for name, value in given.items()]


def _resources(jobs: Sequence[Job]) -> dict[str, dict[str, str]]:
    """Return requests and limits for the largest job; only devices and memory have limits."""
    asked = {"cpu": str(max(job.resources.cpus for job in jobs))}
    limits: dict[str, str] = {}
    if memory := max(job.resources.memory_bytes for job in jobs):
        asked["memory"] = str(memory)
        limits["memory"] = str(2 * memory)  # for what runs away, not for an estimate's error
    if disk := max(job.resources.disk_bytes for job in jobs):
        asked["ephemeral-storage"] = str(disk)
    needs = jobs[0].resources
    if needs.accelerator == "nvidia":
        limits["nvidia.com/gpu"] = asked["nvidia.com/gpu"] = str(needs.devices)
    elif needs.accelerator == "neuron":
        chips = -(-needs.devices // CORES_A_CHIP.get(needs.device, 1))
        limits["aws.amazon.com/neuron"] = asked["aws.amazon.com/neuron"] = str(chips)
    return {"requests": asked} | ({"limits": limits} if limits else {})


def _affinity(job: Job, instances: Sequence[Instance]) -> dict[str, Any]:
    """Require an instance type that has the device, as often as it is needed."""
    needs = job.resources
    if not needs.devices:
        return {}
    types = sorted(
        {
            one.name.removeprefix("ml.")
            for one in instances
            if one.kind == needs.accelerator
            and needs.device in (one.device_name, "")
            and one.devices >= needs.devices
        }
    )
    if not types:
        return {}
    chosen = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": types}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [chosen]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _tolerations(job: Job) -> list[dict[str, str]]:
    key = {"nvidia": "nvidia.com/gpu", "neuron": "aws.amazon.com/neuron"}.get(
        job.resources.accelerator
    )
    return [{"key": key, "operator": "Exists", "effect": "NoSchedule"}] if key else []


def _mounts(cluster: Cluster) -> list[dict[str, Any]]:
    plan = {"name": "plan", "mountPath": PLAN_DIR, "readOnly": True}
    cache = {"name": "cache", "mountPath": CACHE_DIR}
    return [cache] if cluster.plan_url else [plan, cache]


def _volumes(cluster: Cluster, plan_name: str) -> list[dict[str, Any]]:
    plan = {"name": "plan", "configMap": {"name": plan_name}}
    kept = {"persistentVolumeClaim": {"claimName": cluster.claim}}
    cache = {"name": "cache", **(kept if cluster.claim else {"emptyDir": {}})}
    return [cache] if cluster.plan_url else [plan, cache]


def label(text: str) -> str:
    """Return the letters and digits of a text, with hyphens in between."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def check_names(cluster: Cluster) -> None:
    """Raise `UsageError` for a name that Kubernetes would refuse."""
    for what, name in (
        ("namespace", cluster.namespace),
        ("queue", cluster.queue),
        ("secret", cluster.secret),
        ("claim", cluster.claim),
        ("service account", cluster.service_account),
    ):
        if name and not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", name):
            raise bad_name(what, name)
