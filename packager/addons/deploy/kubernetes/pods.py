"""Pods of a server: container, probes, volumes and what the kernel lets it do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packager.addons.deploy.grace import with_grace
from packager.addons.deploy.kubernetes.capture import capture_mounts, capture_volumes
from packager.addons.deploy.kubernetes.machines import quantity, resources, selector, tolerations
from packager.addons.deploy.kubernetes.spec import KubernetesSpec
from packager.addons.deploy.mounted_adapters import MountedAdapter
from packager.addons.deploy.servers import meeting_of
from packager.core.deployment import Deployment
from packager.core.serving import MODEL_DIR, MOUNTED_MODEL_DIR
from packager.core.stopping import PLATFORM_GRACE_S

CONTAINER = "server"
PORT_NAME = "http"
ARCHITECTURE_LABEL = "kubernetes.io/arch"  # of nodes, set by each kubelet
PROBE_S = 10
MARGIN = 1.25  # of the startup budget over the predicted load: disks differ between nodes
UNKNOWN_LOAD_S = 1800.0  # default time of a server's start
# Endpoints of a Service forget a pod after its SIGTERM: until then requests still come.
PRE_STOP_S = 5
RENDEZVOUS = 20000  # port of the first node's, of engines on several


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Time limits of a pod, in seconds."""

    budget_s: int  # from the start of the container to its first answer
    grace_s: int  # from the request to end until the kill; includes `pre_stop_s`
    pre_stop_s: int  # before its SIGTERM
    deadline_s: int  # of a rollout that makes no progress; with pulling the image


def times_of(deployment: Deployment, wanted: KubernetesSpec) -> Times:
    """Return the times of a pod; a rollout waits for the pull, the startup probe does not."""
    load_s = deployment.load_s if deployment.load_s is not None else UNKNOWN_LOAD_S
    budget_s = wanted.budget_s or math.ceil(load_s * MARGIN)
    budget_s = max(-(-budget_s // PROBE_S), 6) * PROBE_S
    grace_s = wanted.grace_s or (ended(deployment, wanted).grace_s or PLATFORM_GRACE_S) + PRE_STOP_S
    pull_s = math.ceil((deployment.pull_s or 0.0) * MARGIN)
    return Times(
        budget_s=budget_s,
        grace_s=grace_s,
        pre_stop_s=_pre_stop_s(grace_s),
        deadline_s=max(pull_s + budget_s + 120, 600),
    )


def _pre_stop_s(grace_s: int) -> int:
    return max(min(PRE_STOP_S, grace_s // 2), 1)  # API servers refuse more than the grace


def ended(deployment: Deployment, wanted: KubernetesSpec) -> Deployment:
    """Return a deployment whose engine ends running requests when the pod's grace period does."""
    before_s = _pre_stop_s(wanted.grace_s) if wanted.grace_s else 0
    return with_grace(deployment, wanted.grace_s, before_s=before_s, env=wanted.env)


def pod_spec(deployment: Deployment, wanted: KubernetesSpec, name: str = "") -> dict[str, Any]:
    """Return the specification of a pod whose container is called `name`."""
    labels = {
        **_architecture_of(deployment.platform),
        **selector(deployment.instance),
        **wanted.node_selector,
    }
    spec: dict[str, Any] = {}
    if wanted.service_account:
        spec["serviceAccountName"] = wanted.service_account
    spec["automountServiceAccountToken"] = False  # a model server sends no requests to the API
    if wanted.pull_secret:
        spec["imagePullSecrets"] = [{"name": wanted.pull_secret}]
    spec["terminationGracePeriodSeconds"] = times_of(deployment, wanted).grace_s
    if labels:
        spec["nodeSelector"] = labels
    if tolerated := tolerations(deployment):
        spec["tolerations"] = tolerated
    spec["securityContext"] = pod_security(deployment)
    if wanted.capture and (group := spec["securityContext"].get("runAsGroup")):
        spec["securityContext"]["fsGroup"] = group  # whose members may write to the claim
    spec["containers"] = [container(deployment, wanted, name or CONTAINER)]
    spec["volumes"] = volumes(deployment, wanted)
    return spec


def _architecture_of(platform: str) -> dict[str, str]:
    """Return the label of nodes that run the image, where that is not the usual one."""
    architecture = platform.rpartition("/")[2]
    return {ARCHITECTURE_LABEL: architecture} if architecture == "arm64" else {}


def pod_security(deployment: Deployment) -> dict[str, Any]:
    """Return the context of a pod: the image's user by number, where it is one."""
    user, _, group = deployment.user.partition(":")
    made: dict[str, Any] = {"seccompProfile": {"type": "RuntimeDefault"}}
    if is_number(user) and int(user):
        number = int(group) if is_number(group) else int(user)
        made = {"runAsNonRoot": True, "runAsUser": int(user), "runAsGroup": number, **made}
    return made


def is_number(user: str) -> bool:
    """Return whether a user or group of an image is a number that kernels have."""
    return user.isascii() and user.isdecimal() and len(user) <= 10 and int(user) < 1 << 31


def container(deployment: Deployment, wanted: KubernetesSpec, name: str) -> dict[str, Any]:
    """Return the container of the server; its command is the image's own."""
    deployment = ended(deployment, wanted)
    made: dict[str, Any] = {"name": name, "image": deployment.image}
    made["imagePullPolicy"] = "IfNotPresent"
    if deployment.command:
        made["command"] = [literal(word) for word in deployment.command]
    if deployment.arguments:
        made["args"] = [literal(word) for word in deployment.arguments]
    made["ports"] = [{"name": PORT_NAME, "containerPort": deployment.port}]
    if variables := [*_home(deployment, wanted), *environment(deployment, wanted)]:
        made["env"] = variables
    if asked := resources(deployment):
        made["resources"] = asked
    made |= probes(deployment, wanted)
    slept = times_of(deployment, wanted).pre_stop_s
    made["lifecycle"] = {"preStop": {"sleep": {"seconds": slept}}}
    made["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": deployment.read_only_root and not wanted.writable_root,
        "capabilities": {"drop": ["ALL"]},
    }
    made["volumeMounts"] = mounts(deployment, wanted)
    return made


def _home(deployment: Deployment, wanted: KubernetesSpec) -> list[dict[str, str]]:
    """Return where engines keep caches under a read-only root, if the image names no place.

    The runtime's choice, such as /root, is no volume, and vLLM, Triton and FlashInfer end where
    they cannot write below it.
    """
    named = deployment.home or "HOME" in {*deployment.env, *wanted.env, *wanted.secrets}
    if named or not deployment.read_only_root or wanted.writable_root:
        return []
    return [{"name": "HOME", "value": "/tmp"}]


def literal(text: str) -> str:
    """Return a text that Kubernetes reads as it is.

    It puts variables in the place of $(NAME), and one dollar in the place of each two, wherever
    they stand (`third_party/forked/golang/expansion`, read 2026-11-23).
    """
    return text.replace("$", "$$")


def environment(deployment: Deployment, wanted: KubernetesSpec) -> list[dict[str, Any]]:
    """Return the variables of the server; what a Secret holds is named, never shown."""
    given: Mapping[str, str] = {**deployment.env, **wanted.env}
    plain = [
        {"name": name, "value": literal(value)}
        for name, value in sorted(given.items())
        if name not in wanted.secrets
    ]
    secret = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": one.secret, "key": one.key}}}
        for name, one in sorted(wanted.secrets.items())
    ]
    return [*plain, *secret]


def probes(deployment: Deployment, wanted: KubernetesSpec) -> dict[str, Any]:
    """Return the three probes: one that waits for the weights, one for traffic, one for hangs."""
    asked = {"httpGet": {"path": deployment.health_path, "port": PORT_NAME}}
    budget_s = times_of(deployment, wanted).budget_s
    return {
        "startupProbe": {
            **asked,
            "periodSeconds": PROBE_S,
            "timeoutSeconds": 5,
            "failureThreshold": budget_s // PROBE_S,
        },
        "readinessProbe": {
            **asked,
            "periodSeconds": 5,
            "timeoutSeconds": 5,
            "failureThreshold": 3,
        },
        # Long prompts keep some servers from answering for seconds: a minute is none.
        "livenessProbe": {
            **asked,
            "periodSeconds": PROBE_S,
            "timeoutSeconds": 10,
            "failureThreshold": 6,
        },
    }


def mounts(deployment: Deployment, wanted: KubernetesSpec) -> list[dict[str, Any]]:
    """Return where the volumes of `volumes` are seen."""
    found: list[dict[str, Any]] = [{"name": "shm", "mountPath": "/dev/shm"}]
    found += [{"name": name, "mountPath": path} for name, path in scratch_of(deployment)]
    if wanted.weights_image:
        inside = {"subPath": MODEL_DIR.strip("/")}
        found.append({"name": "model", "mountPath": MOUNTED_MODEL_DIR, "readOnly": True, **inside})
    elif wanted.claim:
        found.append({"name": "model", "mountPath": MOUNTED_MODEL_DIR, "readOnly": True})
    for name, one in _adapter_volumes(wanted):
        place = {"name": name, "mountPath": one.directory, "readOnly": True, "subPath": one.path}
        found.append(place)
    return [*found, *capture_mounts(wanted)]


def volumes(deployment: Deployment, wanted: KubernetesSpec) -> list[dict[str, Any]]:
    """Return shared memory, the directories that the server writes to, and mounted weights."""
    size = quantity(shm_of(deployment, wanted))
    found: list[dict[str, Any]] = [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": size}}
    ]
    found += [{"name": name, "emptyDir": {}} for name, _ in scratch_of(deployment)]
    if wanted.weights_image:
        image = {"reference": wanted.weights_image, "pullPolicy": "IfNotPresent"}
        found.append({"name": "model", "image": image})
    elif wanted.claim:
        kept = {"claimName": wanted.claim, "readOnly": True}
        found.append({"name": "model", "persistentVolumeClaim": kept})
    for name, one in _adapter_volumes(wanted):
        claim = {"claimName": one.source, "readOnly": True}
        image = {"reference": one.source, "pullPolicy": "IfNotPresent"}
        kind = {"persistentVolumeClaim": claim} if one.is_claim else {"image": image}
        found.append({"name": name, **kind})
    return [*found, *capture_volumes(deployment, wanted)]


def _adapter_volumes(wanted: KubernetesSpec) -> list[tuple[str, MountedAdapter]]:
    """Return the mounted adapters, each with its volume's name."""
    ordered = sorted(wanted.adapters.items())
    return [(f"adapter-{number}", one) for number, (_, one) in enumerate(ordered)]


def shm_of(deployment: Deployment, wanted: KubernetesSpec) -> int:
    """Return the bytes of /dev/shm; without any, 64 MiB as container runtimes give."""
    return wanted.shm_bytes or deployment.shm_bytes or (64 << 20)


def scratch_of(deployment: Deployment) -> list[tuple[str, str]]:
    """Return the writable directories of a read-only root, each with its volume's name."""
    if not deployment.read_only_root:
        return []
    return [(f"scratch-{number}", path) for number, path in enumerate(deployment.writable)]


def with_rank(pod: dict[str, Any], deployment: Deployment, *, leader: bool) -> dict[str, Any]:
    """Return the pod of one of several nodes: rank and first address come from LeaderWorkerSet.

    Its webhook puts LWS_… before all other variables, so that they may name them
    (kubernetes-sigs/lws 060ab4d, `AddLWSVariables`).
    """
    server = dict(pod["containers"][0])
    meeting = meeting_of(deployment.engine)
    words = ["--nnodes", str(deployment.nodes), "--node-rank", "$(LWS_WORKER_INDEX)"]
    words += meeting.words("$(LWS_LEADER_ADDRESS)", RENDEZVOUS) if meeting else []
    alone = meeting.others if meeting is not None and not leader else ()
    if deployment.variables:
        variables = [
            *zip(words[::2], words[1::2], strict=True),
            *((word, "true") for word in alone),
        ]
        own = [{"name": _variable(deployment, name), "value": value} for name, value in variables]
        server["env"] = [*server.get("env", ()), *own]
    else:
        server["command"] = [*server.get("command", ()), *words, *alone]
    if not leader:  # answers no probes, which would kill the group
        for name in ("startupProbe", "readinessProbe", "livenessProbe", "ports"):
            del server[name]
    return {**pod, "containers": [server]}


def _variable(deployment: Deployment, option: str) -> str:
    """Return the variable of which the image's entry point makes an option."""
    return deployment.variables + option.removeprefix("--").upper().replace("-", "_")
