"""Objects of a deployment, in the order in which they are applied."""

from __future__ import annotations

from typing import Any

from packager.addons.deploy.kubernetes.capture import (
    ANNOTATION,
    SUFFIX,
    capture_digest,
    capture_modules,
)
from packager.addons.deploy.kubernetes.machines import selector, tolerations
from packager.addons.deploy.kubernetes.pods import PORT_NAME, pod_spec, times_of, with_rank
from packager.addons.deploy.kubernetes.spec import KubernetesSpec
from packager.core.deployment import Deployment

OWNER = "packager.dev/deployment"
MANAGER = "packager"
LONGEST_SETTLING_S = 3600  # that an API server takes of a HorizontalPodAutoscaler
PAUSE = "registry.k8s.io/pause:3.10"


def labels_of(deployment: Deployment) -> dict[str, str]:
    """Return the labels by which everything of a deployment is found."""
    return {
        "app.kubernetes.io/name": deployment.name,
        "app.kubernetes.io/managed-by": MANAGER,
        OWNER: deployment.name,
    }


def selected(deployment: Deployment) -> dict[str, str]:
    """Return the labels that select the pods, which no update may change."""
    return {OWNER: deployment.name}


def metadata(deployment: Deployment, wanted: KubernetesSpec, suffix: str = "") -> dict[str, Any]:
    """Return name, namespace and labels of one object."""
    name = deployment.name + suffix
    return {"name": name, "namespace": wanted.namespace, "labels": labels_of(deployment)}


def kubernetes_objects(deployment: Deployment, wanted: KubernetesSpec) -> dict[str, Any]:
    """Return every object by the name of its file."""
    made: dict[str, Any] = {}
    if wanted.prepull:
        made["00-prepull.yaml"] = prepull(deployment, wanted)
    if wanted.capture:
        made["05-capture.yaml"] = capture_map(deployment, wanted)
    made["10-service.yaml"] = service(deployment, wanted)
    if deployment.nodes > 1:
        made["20-leader-worker-set.yaml"] = leader_worker_set(deployment, wanted)
    else:
        made["20-deployment.yaml"] = deployment_object(deployment, wanted)
    made["30-disruption-budget.yaml"] = disruption_budget(deployment, wanted)
    if wanted.scaler == "hpa":
        made["40-autoscaler.yaml"] = autoscaler(deployment, wanted)
    elif wanted.scaler == "keda":
        made["40-scaled-object.yaml"] = scaled_object(deployment, wanted)
    if wanted.monitor and deployment.metrics_path:
        made["50-service-monitor.yaml"] = service_monitor(deployment, wanted)
    return made


def kustomization(names: list[str]) -> dict[str, Any]:
    """Return the file with which `kubectl apply -k` takes the directory."""
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": names,
    }


def capture_map(deployment: Deployment, wanted: KubernetesSpec) -> dict[str, Any]:
    """Return the ConfigMap with the modules that capture."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(deployment, wanted, SUFFIX),
        "data": dict(capture_modules()),
    }


def service(deployment: Deployment, wanted: KubernetesSpec) -> dict[str, Any]:
    """Return the Service; of several nodes only the first answers."""
    chosen = selected(deployment)
    if deployment.nodes > 1:
        chosen["leaderworkerset.sigs.k8s.io/worker-index"] = "0"
    port = {"name": PORT_NAME, "port": deployment.port, "targetPort": PORT_NAME}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(deployment, wanted),
        "spec": {"selector": chosen, "ports": [{**port, "protocol": "TCP"}]},
    }


def deployment_object(deployment: Deployment, wanted: KubernetesSpec) -> dict[str, Any]:
    """Return the Deployment. Replicas are the autoscaler's where there is one."""
    rolling = {"maxSurge": 1, "maxUnavailable": 0}
    if not wanted.surge:
        rolling = {"maxSurge": 0, "maxUnavailable": 1}
    fixed = _fixed_replicas(wanted)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(deployment, wanted),
        "spec": {
            **fixed,
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": times_of(deployment, wanted).deadline_s,
            "selector": {"matchLabels": selected(deployment)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            "template": {
                "metadata": {"labels": labels_of(deployment), **_annotations(wanted)},
                "spec": pod_spec(deployment, wanted),
            },
        },
    }


def leader_worker_set(deployment: Deployment, wanted: KubernetesSpec) -> dict[str, Any]:
    """Return the set of groups of nodes, each one replica; a group is restarted as a whole.

    Replicas are the autoscaler's where there is one.
    """
    pod = pod_spec(deployment, wanted)
    meta = {"labels": labels_of(deployment)}
    leader = {"metadata": meta, "spec": with_rank(pod, deployment, leader=True)}
    worker = {"metadata": meta, "spec": with_rank(pod, deployment, leader=False)}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": metadata(deployment, wanted),
        "spec": {
            **_fixed_replicas(wanted),
            "startupPolicy": "LeaderCreated",
            "leaderWorkerTemplate": {
                "size": deployment.nodes,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": leader,
                "workerTemplate": worker,
            },
        },
    }


def disruption_budget(deployment: Deployment, wanted: KubernetesSpec) -> dict[str, Any]:
    """Return the budget: drains of nodes end one server at a time.

    Pods that do not serve may always go: by default one replica that crashes again and again
    keeps its node from being drained for ever (kubernetes.io, "Unhealthy Pod Eviction Policy").
    """
    chosen = {"matchLabels": selected(deployment)}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(deployment, wanted),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": chosen,
        },
    }


def autoscaler(deployment: Deployment, wanted: KubernetesSpec) -> dict[str, Any]:
    """Return the HorizontalPodAutoscaler on the queue, as prometheus-adapter names it."""
    metric = {"name": adapter_name(deployment.queue_metric)}
    target = {"type": "AverageValue", "averageValue": str(wanted.queue_target)}
    settle_s = min(max(300, times_of(deployment, wanted).budget_s), LONGEST_SETTLING_S)
    settle = {"stabilizationWindowSeconds": settle_s}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata(deployment, wanted),
        "spec": {
            "scaleTargetRef": _target(deployment),
            "minReplicas": wanted.replicas,
            "maxReplicas": wanted.max_replicas,
            "metrics": [{"type": "Pods", "pods": {"metric": metric, "target": target}}],
            "behavior": {"scaleDown": settle},
        },
    }


def scaled_object(deployment: Deployment, wanted: KubernetesSpec) -> dict[str, Any]:
    """Return KEDA's ScaledObject on the queue."""
    where = f'namespace="{wanted.namespace}",service="{deployment.name}"'
    asked = {
        "serverAddress": wanted.prometheus,
        "query": f"sum({deployment.queue_metric}{{{where}}})",
        "threshold": str(wanted.queue_target),
    }
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": metadata(deployment, wanted),
        "spec": {
            "scaleTargetRef": _target(deployment),
            "minReplicaCount": wanted.replicas,
            "maxReplicaCount": wanted.max_replicas,
            "cooldownPeriod": max(300, times_of(deployment, wanted).budget_s),
            "triggers": [{"type": "prometheus", "metadata": asked}],
        },
    }


def service_monitor(deployment: Deployment, wanted: KubernetesSpec) -> dict[str, Any]:
    """Return the ServiceMonitor of the Prometheus operator."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": metadata(deployment, wanted),
        "spec": {
            "selector": {"matchLabels": selected(deployment)},
            "endpoints": [{"port": PORT_NAME, "path": deployment.metrics_path, "interval": "15s"}],
        },
    }


def prepull(deployment: Deployment, wanted: KubernetesSpec) -> dict[str, Any]:
    """Return the DaemonSet: its first container is the image, which ends at once."""
    own = {"packager.dev/prepull": deployment.name}
    quiet = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    small = {"requests": {"cpu": "10m", "memory": "16Mi"}}
    spec: dict[str, Any] = {"automountServiceAccountToken": False}
    if wanted.pull_secret:
        spec["imagePullSecrets"] = [{"name": wanted.pull_secret}]
    if nodes := {**selector(deployment.instance), **wanted.node_selector}:
        spec["nodeSelector"] = nodes
    if tolerated := tolerations(deployment):
        spec["tolerations"] = tolerated
    spec["securityContext"] = {
        "runAsNonRoot": True,
        "runAsUser": 65534,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    pulled = {"name": "pull", "image": deployment.image, "command": ["/bin/true"]}
    spec["initContainers"] = [{**pulled, "resources": small, "securityContext": quiet}]
    spec["containers"] = [
        {"name": "pause", "image": PAUSE, "resources": small, "securityContext": quiet}
    ]
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata(deployment, wanted, "-prepull"),
        "spec": {
            "selector": {"matchLabels": own},
            "template": {"metadata": {"labels": own}, "spec": spec},
        },
    }


def adapter_name(metric: str) -> str:
    """Return a metric as the custom metrics API can name it: colons are not for its paths."""
    return metric.replace(":", "_")


def _annotations(wanted: KubernetesSpec) -> dict[str, Any]:
    return {"annotations": {ANNOTATION: capture_digest()}} if wanted.capture else {}


def _fixed_replicas(wanted: KubernetesSpec) -> dict[str, int]:
    return {} if wanted.scaler != "none" else {"replicas": wanted.replicas}


def _target(deployment: Deployment) -> dict[str, str]:
    if deployment.nodes > 1:
        group = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}
    else:
        group = {"apiVersion": "apps/v1", "kind": "Deployment"}
    return {**group, "name": deployment.name}
