"""Deployments on a cluster that runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from packager.addons.deploy.kubernetes.client import ApiRefused, ApiServer, ObjectPlace, place_of
from packager.addons.deploy.kubernetes.deployer import KubernetesDeployer
from packager.addons.deploy.kubernetes.hyperpod import HyperPodDeployer
from packager.addons.deploy.kubernetes.kserve import KServeDeployer
from packager.addons.deploy.kubernetes.objects import MANAGER, OWNER
from packager.addons.deploy.kubernetes.rollout import status_of
from packager.addons.deploy.kubernetes.spec import KubernetesSpec
from packager.addons.deploy.kubernetes.ways import ServiceRoute, Way, find_way
from packager.core.deployment import Applied, Change, Deployment, DeployStatus
from packager.core.errors import (
    AccessDenied,
    NotFound,
    PackagerError,
    PlanRejected,
    Unavailable,
    UsageError,
)
from packager.core.findings import errors_in

WATCH_S = 30.0  # between looks at the pods, whose changes the main object does not show
LEAST_S = 0.2  # between two looks, where a server ends watches at once
OF_CAPTURES = ("ConfigMap",)
SCALED = ("Deployment", "LeaderWorkerSet")  # kinds whose replicas may be an autoscaler's
# Fields that the server sets, which no two answers share.
_OWN = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")
_COUNTED = "deprecated.daemonset.template.generation"  # by the server, an annotation of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlatform:
    """What runs a deployment, and the kinds of its objects: the main one first."""

    deployer: KubernetesDeployer | KServeDeployer | HyperPodDeployer
    main: tuple[tuple[str, str], ...]  # API version and kind
    others: tuple[tuple[str, str], ...] = ()
    scheme: str = ""  # of names in reports; "" where the API server's proxy leads nowhere


KUBERNETES = ClusterPlatform(
    deployer=KubernetesDeployer(),
    main=(("apps/v1", "Deployment"), ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")),
    others=(
        ("v1", "Service"),
        ("v1", "ConfigMap"),
        ("apps/v1", "DaemonSet"),
        ("policy/v1", "PodDisruptionBudget"),
        ("autoscaling/v2", "HorizontalPodAutoscaler"),
        ("keda.sh/v1alpha1", "ScaledObject"),
        ("monitoring.coreos.com/v1", "ServiceMonitor"),
    ),
    scheme="kubernetes",
)
KSERVE = ClusterPlatform(
    deployer=KServeDeployer(),
    main=(
        ("serving.kserve.io/v1beta1", "InferenceService"),
        ("serving.kserve.io/v1alpha2", "LLMInferenceService"),
    ),
    scheme="kserve",
)
HYPERPOD = ClusterPlatform(
    deployer=HyperPodDeployer(),
    main=(("inference.sagemaker.aws.amazon.com/v1", "InferenceEndpointConfig"),),
)


def not_ours(where: ObjectPlace) -> UsageError:
    """Return an error: an object of that name belongs to another owner."""
    return UsageError(
        f"{where} exists, and packager did not make it for this deployment",
        hint="give another --name, or --force to take it over",
        code="NotOurs",
    )


def still_ending(where: ObjectPlace) -> Unavailable:
    """Return an error: an object would be changed, and gone soon after: it is being deleted."""
    return Unavailable(
        f"{where} is still being deleted",
        hint="apply again once its pods ended",
        code="StillEnding",
    )


def deploy_failed(name: str, why: str) -> PackagerError:
    """Return an error: a deployment does not serve after it was waited for."""
    return PackagerError(
        f"{name!r} does not serve: {why}",
        hint="`kubectl describe pod` and `logs` tell more",
        code="DeployFailed",
        exit_code=69,
    )


class LiveCluster:
    """One platform of one cluster, in a namespace."""

    def __init__(
        self,
        platform: ClusterPlatform,
        server: ApiServer,
        namespace: str,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._platform = platform
        self._server = server
        self._namespace = namespace
        self._say = say

    def diff(self, deployment: Deployment, wanted: KubernetesSpec) -> tuple[Change, ...]:
        """Return what `apply` would do, as the server would: defaults and webhooks included."""
        return tuple(change for change, _, _ in self._changes(deployment, wanted))

    def apply(self, deployment: Deployment, wanted: KubernetesSpec) -> Applied:
        """Apply objects that differ, and delete those no longer desired.

        A dry run of every object comes first, so that a refusal leaves all unchanged.
        """
        planned = tuple(self._changes(deployment, wanted))
        for change, document, there in planned:
            if change.kind == "delete":
                self._server.delete(place_of(there), there["metadata"]["uid"])
            elif change.kind != "same":
                self._server.apply(document, force=wanted.force, dry_run=False)
            if change.kind != "same":
                self._say(f"{change.kind} {change.resource} {change.name}")
        return Applied(
            changes=tuple(replace(change, differences=()) for change, _, _ in planned),
            address=f"http://{deployment.name}.{self._namespace}.svc:{deployment.port}",
        )

    def status(self, name: str, *, wait_s: float = 0.0) -> DeployStatus:
        """Return the state of a deployment, after waiting so long for it to settle."""
        until = time.monotonic() + wait_s
        last_text = ""
        while True:
            began = time.monotonic()
            found = self._main(name)
            status = status_of(found, self._pods(name))
            last_text = self._tell(status, last_text)
            left = until - time.monotonic()
            if status.state in ("ready", "failed") or left <= 0:
                return status
            where = self._place(found["apiVersion"], found["kind"], name)
            version = found["metadata"]["resourceVersion"]
            for changed in self._server.watch(where, version, min(left, WATCH_S)):
                if status_of(changed).state in ("ready", "failed"):
                    break  # read once more, with its pods
            time.sleep(max(min(LEAST_S - (time.monotonic() - began), left), 0))

    def invoke(self, name: str, body: bytes) -> bytes:
        """Send one request through the API server to the deployment's Service."""
        way = self._way(name)
        path = way.path(self._namespace, way.question)
        assert path is not None
        return self._server.post(path, body)

    def route(self, name: str) -> tuple[ServiceRoute, str]:
        """Return the way to a deployment, and the path that takes a chat."""
        way = self._way(name)
        shown = f"{self._platform.scheme}://{self._namespace}/{name}"
        route = ServiceRoute(self._server, way, shown=shown, namespace=self._namespace)
        return route, way.question

    def model(self, name: str) -> str:
        """Return the name that a deployment's server gives its model; "" where it has no list."""
        way = self._way(name)
        path = way.path(self._namespace, "/v1/models")
        found = self._server.read(path) if path is not None else None
        listed = (found or {}).get("data")
        first = listed[0] if isinstance(listed, list) and listed else {}
        return str(first.get("id") or "") if isinstance(first, dict) else ""

    def _way(self, name: str) -> Way:
        if not self._platform.scheme:
            raise UsageError(
                "HyperPod's endpoints are asked through SageMaker",
                hint="use `packager deploy sagemaker invoke` with the endpoint's name",
            )
        return find_way(self._server, self._main(name), self._namespace)

    def delete(self, name: str) -> tuple[Change, ...]:
        """Delete only what `apply` made under this name."""
        found = list(self._made(name))
        for one in found:
            self._server.delete(place_of(one), one["metadata"]["uid"])
            self._say(f"delete {one['kind']} {one['metadata']['name']}")
        return tuple(
            Change(kind="delete", resource=one["kind"], name=one["metadata"]["name"])
            for one in found
        )

    def _changes(
        self, deployment: Deployment, wanted: KubernetesSpec
    ) -> Iterator[tuple[Change, Mapping[str, Any], Mapping[str, Any]]]:
        """Yield each change with the desired and the present object."""
        findings = tuple(self._platform.deployer.check(deployment, wanted))
        if errors_in(findings):
            raise PlanRejected(findings)
        objects = self._platform.deployer.objects(deployment, wanted)
        kept: set[tuple[str, str]] = set()
        for document in objects.values():
            where = place_of(document)
            kept.add((where.kind, where.name))
            there = self._server.get(where)
            if there is not None and not wanted.force and not _is_ours(there, deployment.name):
                raise not_ours(where)
            if there is not None and there["metadata"].get("deletionTimestamp"):
                raise still_ending(where)
            document = _keeping_replicas(document, there or {})
            then = self._server.apply(document, force=wanted.force, dry_run=True)
            differ = tuple(changed_fields(_shown(there or {}), _shown(then))) if there else ()
            kind: Any = "create" if there is None else "update" if differ else "same"
            change = Change(kind=kind, resource=where.kind, name=where.name, differences=differ)
            yield change, document, there or {}
        for one in self._made(deployment.name):
            name = one["metadata"]["name"]
            if (one["kind"], name) not in kept:
                yield Change(kind="delete", resource=one["kind"], name=name), {}, one

    def _made(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield what `apply` made. What controllers made has the same labels, and an owner."""
        selector = f"{OWNER}={name},app.kubernetes.io/managed-by={MANAGER}"
        for version, kind in (*self._platform.main, *self._platform.others):
            try:
                listed = self._server.listed(self._place(version, kind), selector)
            except AccessDenied:
                if kind not in OF_CAPTURES:
                    raise
                continue  # who may not read them has made none
            for one in listed:
                meta = one["metadata"]
                if not meta.get("ownerReferences") and not meta.get("deletionTimestamp"):
                    yield {**one, "apiVersion": version, "kind": kind}

    def _main(self, name: str) -> dict[str, Any]:
        for version, kind in self._platform.main:
            found = self._server.get(self._place(version, kind, name))
            if found is not None:
                return {**found, "apiVersion": version, "kind": kind}
        raise NotFound(
            f"the namespace {self._namespace!r} has no deployment {name!r}",
            hint="give --namespace, or apply it",
        )

    def _pods(self, name: str) -> list[dict[str, Any]]:
        return self._server.listed(self._place("v1", "Pod"), f"{OWNER}={name}")

    def _place(self, version: str, kind: str, name: str = "") -> ObjectPlace:
        return ObjectPlace(version, kind, self._namespace, name)

    def _tell(self, status: DeployStatus, last_text: str) -> str:
        text = f"{status.state} ({status.said})" + (f": {status.reason}" if status.reason else "")
        if text != last_text:
            self._say(text)
        return text


def changed_fields(there: Any, then: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the fields in which two objects differ, with both values; None where one has none."""
    if isinstance(there, Mapping) and isinstance(then, Mapping):
        for name in (*there, *(one for one in then if one not in there)):
            inner = f"{path}.{name}" if path else name
            yield from changed_fields(there.get(name), then.get(name), inner)
    elif isinstance(there, list) and isinstance(then, list) and len(there) == len(then):
        for number, (now, wanted) in enumerate(zip(there, then, strict=True)):
            yield from changed_fields(now, wanted, f"{path}[{number}]")
    elif there != then:
        yield path, there, then


def _shown(found: Mapping[str, Any]) -> dict[str, Any]:
    meta = {key: one for key, one in (found.get("metadata") or {}).items() if key not in _OWN}
    notes = {key: one for key, one in (meta.get("annotations") or {}).items() if key != _COUNTED}
    meta = {**meta, "annotations": notes}
    rest = {key: one for key, one in found.items() if key not in ("metadata", "status")}
    return {**rest, "metadata": meta}


def _keeping_replicas(document: Mapping[str, Any], there: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object that leaves its replicas to an autoscaler, with those that are there.

    As long as they are ours alone: a field that nobody applies gets its default, and all servers
    but one would end. They are the autoscaler's once it has changed them.
    """
    if document["kind"] not in SCALED or "replicas" in document["spec"]:
        return document
    ours = [
        one["fieldsV1"]["f:spec"]
        for one in there.get("metadata", {}).get("managedFields") or ()
        if one.get("manager") == MANAGER and "f:spec" in (one.get("fieldsV1") or {})
    ]
    if not any("f:replicas" in one for one in ours):
        return document
    return {**document, "spec": {**document["spec"], "replicas": there["spec"]["replicas"]}}


def _is_ours(there: Mapping[str, Any], name: str) -> bool:
    labels = there["metadata"].get("labels") or {}
    return labels.get(OWNER) == name and labels.get("app.kubernetes.io/managed-by") == MANAGER


__all__ = ["HYPERPOD", "KSERVE", "KUBERNETES", "ApiRefused", "ClusterPlatform", "LiveCluster"]
