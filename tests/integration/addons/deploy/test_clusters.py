"""Deployments on an API server: applied, watched, asked, deleted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from packager.addons.deploy.kubernetes.client import ApiRefused, ApiServer, FieldConflict
from packager.addons.deploy.kubernetes.kubeconfig import ClusterAccess, ClusterCredentials
from packager.addons.deploy.kubernetes.live import (
    HYPERPOD,
    KSERVE,
    KUBERNETES,
    LiveCluster,
)
from packager.addons.deploy.kubernetes.spec import KubernetesSpec
from packager.core.deployment import Change
from packager.core.errors import AccessDenied, NotFound, Unavailable, UsageError
from tests.support.cases import cases
from tests.support.cluster_deployments import TGI, VLLM
from tests.support.doubles.cluster import Cluster, Key, running_cluster
from tests.support.refusals import raises_code

WANTED = KubernetesSpec()
SCALED = KubernetesSpec(scaler="hpa", max_replicas=3)
MAIN: Key = ("default", "Deployment", "llama")
MAIN_KINDS = ("InferenceService", "InferenceEndpointConfig")
ERRORS = {one.__name__: one for one in (ApiRefused, AccessDenied, Unavailable)}


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Cluster, str]]:
    with running_cluster() as made:
        yield made


@pytest.fixture
def cluster(served: tuple[Cluster, str]) -> Cluster:
    """The cluster as it was made, whatever the last test left of it."""
    served[0].__init__()  # type: ignore[misc]
    return served[0]


@pytest.fixture
def server(cluster: Cluster, served: tuple[Cluster, str]) -> ApiServer:
    return ApiServer(
        ClusterAccess(server=served[1], credentials=ClusterCredentials(token=cluster.token))
    )


@pytest.fixture
def live(server: ApiServer) -> LiveCluster:
    return LiveCluster(KUBERNETES, server, "default")


def kinds(changes: tuple[Change, ...]) -> dict[str, str]:
    return {one.resource: one.kind for one in changes}


def test_a_difference_names_fields_and_changes_nothing(cluster: Cluster, live: LiveCluster) -> None:
    live.apply(VLLM, WANTED)
    before = cluster.objects[MAIN]
    other = replace(VLLM, image="r.example/team/llama:2")

    changes = live.diff(other, replace(WANTED, replicas=2))

    assert kinds(changes)["Deployment"] == "update"
    found = next(one for one in changes if one.resource == "Deployment")
    assert {path: then for path, _, then in found.differences} == {
        "spec.replicas": 2,
        "spec.template.spec.containers[0].image": "r.example/team/llama:2",
    }
    assert cluster.objects[MAIN] is before


def test_what_is_no_longer_wanted_is_deleted(cluster: Cluster, live: LiveCluster) -> None:
    live.apply(VLLM, SCALED)
    assert ("default", "HorizontalPodAutoscaler", "llama") in cluster.objects
    assert "replicas" not in cluster.objects[MAIN]["spec"]

    assert kinds(live.apply(VLLM, WANTED).changes)["HorizontalPodAutoscaler"] == "delete"
    assert ("default", "HorizontalPodAutoscaler", "llama") not in cluster.objects
    assert cluster.objects[MAIN]["spec"]["replicas"] == 1


def test_fields_of_other_managers_are_left_or_taken(cluster: Cluster, live: LiveCluster) -> None:
    live.apply(VLLM, WANTED)
    cluster.edit(MAIN, "kubectl", ("spec", "replicas"), 5)
    cluster.edit(MAIN, "kubectl", ("metadata", "annotations"), {"note": "mine"})

    with pytest.raises(FieldConflict, match=r"kubectl.*spec\.replicas") as raised:
        live.apply(VLLM, WANTED)
    assert "--force" in raised.value.hint
    live.apply(VLLM, replace(WANTED, force=True))
    assert cluster.objects[MAIN]["spec"]["replicas"] == 1
    assert cluster.objects[MAIN]["metadata"]["annotations"] == {"note": "mine"}


def test_objects_of_others_are_not_taken(cluster: Cluster, live: LiveCluster) -> None:
    cluster.put({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "llama"}, "spec": {}})
    with raises_code("NotOurs", match="'llama' exists"):
        live.apply(VLLM, WANTED)
    assert MAIN not in cluster.objects
    assert live.delete("llama") == ()
    assert ("default", "Service", "llama") in cluster.objects


def test_a_busy_server_is_asked_again(cluster: Cluster, live: LiveCluster) -> None:
    cluster.busy = 3
    assert kinds(live.apply(VLLM, WANTED).changes)["Deployment"] == "create"


def test_kinds_that_the_cluster_has_not_are_named(cluster: Cluster, live: LiveCluster) -> None:
    cluster.custom.clear()
    with pytest.raises(ApiRefused, match=r"ServiceMonitor 'llama'.*no such kind"):
        live.apply(VLLM, replace(WANTED, monitor=True))
    assert live.delete("llama") == ()


def test_a_missing_namespace_is_named(server: ApiServer) -> None:
    live = LiveCluster(KUBERNETES, server, "nowhere")
    with pytest.raises(ApiRefused, match="no such namespace"):
        live.apply(VLLM, replace(WANTED, namespace="nowhere"))


def test_a_wrong_token_is_access_denied(cluster: Cluster, live: LiveCluster) -> None:
    cluster.token = "another"
    with pytest.raises(AccessDenied, match="Unauthorized") as raised:
        live.status("llama")
    assert "a-token-of-the-cluster" not in str(raised.value)


PLATFORMS = {"kubernetes": KUBERNETES, "kserve": KSERVE, "hyperpod": HYPERPOD}


@cases("statuses")
def test_controllers_set_status(cluster: Cluster, server: ApiServer, case: dict[str, Any]) -> None:
    """Where there is something to wait for, it is reported while somebody watches."""
    platform = LiveCluster(PLATFORMS[case["platform"]], server, "default")
    (kind,) = {"Deployment", *MAIN_KINDS} & kinds(platform.apply(VLLM, WANTED).changes).keys()
    if "pod" in case:
        cluster.put(pod(**case["pod"]))
    if case.get("waits"):
        cluster.on_watch = lambda one: one.report(kind, "llama", **case["reports"])
    elif "reports" in case:
        cluster.report(kind, "llama", **case["reports"])

    found = platform.status("llama", wait_s=10 if case.get("waits") else 0)

    assert {name: getattr(found, name) for name in case["shows"]} == case["shows"]


@cases("refused")
def test_what_the_server_refuses_leaves_everything_as_it_was(
    cluster: Cluster,
    live: LiveCluster,
    monkeypatch: pytest.MonkeyPatch,
    answer: list[Any],
    error: str,
) -> None:
    monkeypatch.setattr("packager.addons.deploy.kubernetes.client._wait", lambda _: None)
    cluster.refuse["Deployment"] = tuple(answer)
    with pytest.raises(ERRORS[error], match=answer[-1].split(":")[0][:20]):
        live.apply(VLLM, WANTED)
    assert cluster.objects == {}


def test_hyperpod_is_asked_through_sagemaker(server: ApiServer) -> None:
    hyperpod = LiveCluster(HYPERPOD, server, "default")
    hyperpod.apply(TGI, WANTED)
    with pytest.raises(UsageError, match="through SageMaker"):
        hyperpod.invoke("llama", b"{}")


def test_requests_go_through_the_servers_proxy(cluster: Cluster, live: LiveCluster) -> None:
    live.apply(VLLM, WANTED)
    assert live.invoke("llama", b"{}") == b'{"choices":[]}'
    path = "/api/v1/namespaces/default/services/llama:http/proxy/invocations"
    assert cluster.requests[-1] == f"POST {path}"
    cluster.answer = b""
    with pytest.raises(Unavailable, match="no endpoints"):
        live.invoke("llama", b"{}")


def test_deleting_ends_what_was_applied_alone(cluster: Cluster, live: LiveCluster) -> None:
    live.apply(VLLM, SCALED)
    other = replace(VLLM, name="other")
    live.apply(other, WANTED)
    copied = {"name": "made", "labels": cluster.objects[MAIN]["metadata"]["labels"]}
    owned = {**copied, "ownerReferences": [{"kind": "Something"}]}
    cluster.put({"apiVersion": "v1", "kind": "Service", "metadata": owned, "spec": {}})

    ended = {"Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler"}
    assert set(kinds(live.delete("llama"))) == ended
    assert {name for _, _, name in cluster.objects} == {"other", "made"}
    assert live.delete("llama") == ()
    with pytest.raises(NotFound, match="no deployment 'llama'"):
        live.status("llama")


def pod(state: dict[str, Any], last: dict[str, Any] | None = None) -> dict[str, Any]:
    labels = {"packager.dev/deployment": "llama"}
    reported = {"containerStatuses": [{"state": state, "lastState": last or {}}]}
    meta = {"name": "llama-1", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": reported}
