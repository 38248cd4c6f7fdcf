"""What a cluster's objects say of a deployment: its state, and why pods do not start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from packager.core.deployment import DeployState, DeployStatus
from packager.core.text import escape

# Reasons of waiting containers that are no failure yet.
# Phases of an InferenceEndpointConfig, of which all others are on the way there: the enum
# of `status.state` in aws/sagemaker-hyperpod-cli's chart of the operator (011ca92, 2026-06-22).
_HYPERPOD: Mapping[str, DeployState] = {
    "DeploymentComplete": "ready",
    "DeploymentFailed": "failed",
    "DeletionPending": "ending",
    "DeletionInProgress": "ending",
    "DeletionComplete": "ending",
    "DeletionFailed": "failed",
}
STARTING = frozenset({"ContainerCreating", "PodInitializing", ""})


def status_of(found: Mapping[str, Any], pods: Iterable[Mapping[str, Any]] = ()) -> DeployStatus:
    """Return the state of a deployment's main object; its pods say why it takes long."""
    kind = found["kind"]
    if found["metadata"].get("deletionTimestamp"):
        return _status(found, "ending", "Terminating")
    if kind == "Deployment":
        made = _of_deployment(found, tuple(pods))
    elif kind == "LeaderWorkerSet":
        made = _of_groups(found, tuple(pods))
    elif kind == "InferenceEndpointConfig":
        made = _of_hyperpod(found)
    else:
        made = _of_kserve(found)
    return made


def why_waiting(pods: Iterable[Mapping[str, Any]]) -> str:
    """Return the first reason for which a pod is not ready, in the cluster's words."""
    for pod in pods:
        name, status = pod["metadata"]["name"], pod.get("status") or {}
        for condition in status.get("conditions") or ():
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                return _said(name, condition.get("reason"), condition.get("message"))
        for one in (*_of(status, "initContainerStatuses"), *_of(status, "containerStatuses")):
            state = one.get("state") or {}
            waiting = state.get("waiting") or {}
            ended = (one.get("lastState") or {}).get("terminated") or state.get("terminated") or {}
            if ended.get("reason") == "OOMKilled":
                return _said(name, "OOMKilled", "its memory was not enough")
            if waiting.get("reason", "") not in STARTING:
                return _said(name, waiting["reason"], waiting.get("message"))
    return ""


def _of_deployment(found: Mapping[str, Any], pods: tuple[Mapping[str, Any], ...]) -> DeployStatus:
    status = found.get("status") or {}
    wanted = int(found["spec"].get("replicas", 1))
    ready = int(status.get("availableReplicas") or 0)
    updated = int(status.get("updatedReplicas") or 0)
    conditions = {one["type"]: one for one in _of(status, "conditions")}
    observed = int(status.get("observedGeneration") or 0) >= found["metadata"]["generation"]
    progress = conditions.get("Progressing", {})
    failure = conditions.get("ReplicaFailure", {})
    given = {"ready": ready, "wanted": wanted}
    if observed and progress.get("reason") == "ProgressDeadlineExceeded":
        reason = why_waiting(pods) or str(progress.get("message") or "")
        return _status(found, "failed", "ProgressDeadlineExceeded", reason=reason, **given)
    if observed and failure.get("status") == "True":
        said, reason = str(failure.get("reason")), str(failure.get("message") or "")
        return _status(found, "failed", said, reason=reason, **given)
    total = int(status.get("replicas") or 0)
    if observed and updated == ready == total == wanted:
        return _status(found, "ready", "Available", **given)
    state: DeployState = "updating" if ready else "creating"
    said = str(progress.get("reason") or "") if observed else "not seen yet"
    return _status(found, state, said, reason=why_waiting(pods), **given)


def _of_groups(found: Mapping[str, Any], pods: tuple[Mapping[str, Any], ...]) -> DeployStatus:
    status = found.get("status") or {}
    wanted = int(found["spec"].get("replicas", 1))
    ready, updated = int(status.get("readyReplicas") or 0), int(status.get("updatedReplicas") or 0)
    conditions = {one["type"]: one.get("status") for one in _of(status, "conditions")}
    given = {"ready": ready, "wanted": wanted}
    generation = found["metadata"]["generation"]
    observed = int(status.get("observedGeneration") or generation) >= generation
    settled = observed and conditions.get("UpdateInProgress") != "True"
    if conditions.get("Available") == "True" and settled and ready == updated == wanted:
        return _status(found, "ready", "Available", **given)
    state: DeployState = "updating" if ready else "creating"
    said = next((name for name, value in conditions.items() if value == "True"), "")
    return _status(found, state, said, reason=why_waiting(pods), **given)


def _of_kserve(found: Mapping[str, Any]) -> DeployStatus:
    status = found.get("status") or {}
    conditions = {one["type"]: one for one in _of(status, "conditions")}
    ready = conditions.get("Ready", {})
    current = int(status.get("observedGeneration") or found["metadata"]["generation"])
    moved = str((status.get("modelStatus") or {}).get("transitionStatus") or "")
    reason = str(ready.get("message") or ready.get("reason") or "")
    if moved in ("InvalidSpec", "BlockedByFailedLoad"):
        failure = (status.get("modelStatus") or {}).get("lastFailureInfo") or {}
        return _status(found, "failed", moved, reason=str(failure.get("message") or reason))
    address = str(status.get("url") or "")
    if ready.get("status") == "True" and current >= found["metadata"]["generation"]:
        return _status(found, "ready", "Ready", address=address)
    said = str(ready.get("reason") or "")
    return _status(found, "creating", said, reason=reason, address=address)


def _of_hyperpod(found: Mapping[str, Any]) -> DeployStatus:
    status = found.get("status") or {}
    said = str(status.get("state") or "")
    conditions = _of(status, "conditions")
    reason = next((str(one["message"]) for one in conditions if one.get("message")), "")
    state = _HYPERPOD.get(said, "creating")
    generation = found["metadata"]["generation"]
    if int(status.get("observedGeneration") or generation) < generation:
        state = "updating"  # what it says is of the deployment before
    return _status(found, state, said, reason="" if state == "ready" else reason)


def _status(found: Mapping[str, Any], state: DeployState, said: str, **given: Any) -> DeployStatus:
    given["reason"] = escape(given.get("reason", "")[:400])
    return DeployStatus(state=state, said=escape(said[:80]), image=_image(found), **given)


def _image(found: Mapping[str, Any]) -> str:
    template = (found.get("spec") or {}).get("template") or {}
    containers: list[Mapping[str, Any]] = (template.get("spec") or {}).get("containers") or [{}]
    return str(containers[0].get("image") or "")


def _of(status: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = status.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _said(pod: str, reason: object, message: object) -> str:
    return f"{pod}: {reason}" + (f": {message}" if message else "")
