"""Access to clusters: credentials that stay hidden and last, and what is applied over what."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from packager.addons.deploy.kubernetes import client
from packager.addons.deploy.kubernetes.client import ApiServer, ObjectPlace
from packager.addons.deploy.kubernetes.kubeconfig import (
    BadKubeconfig,
    ClusterAccess,
    ClusterCredentials,
    find_access,
)
from packager.addons.deploy.kubernetes.live import KUBERNETES, LiveCluster
from packager.addons.deploy.kubernetes.objects import deployment_object
from packager.addons.deploy.kubernetes.rollout import status_of
from packager.addons.deploy.kubernetes.spec import KubernetesSpec
from packager.core.errors import AccessDenied
from tests.support.cases import cases
from tests.support.cluster_deployments import VLLM
from tests.support.refusals import raises_code

SCALED = KubernetesSpec(scaler="hpa", max_replicas=9)
POD = ObjectPlace("v1", "Pod", "default", "one")


def config_with(user: Mapping[str, Any], path: Path) -> Path:
    document = {
        "current-context": "one",
        "clusters": [{"name": "c", "cluster": {"server": "https://one"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.parametrize("token", ["a-secret\nb", "a-secret\x00", "a-secret-é"])
def test_a_token_that_no_header_takes_is_refused_unseen(tmp_path: Path, token: str) -> None:
    with pytest.raises(BadKubeconfig, match="one line of ASCII") as raised:
        find_access({}, kubeconfig=config_with({"token": token}, tmp_path / "config"))
    assert "a-secret" not in str(raised.value) + raised.value.hint


def test_a_token_of_a_file_is_newer_than_the_one_beside_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("rotated\n")
    user = {"token": "old", "tokenFile": "token"}
    found = find_access({}, kubeconfig=config_with(user, tmp_path / "config"))
    assert found.credentials.token == "rotated"


def test_passwords_are_of_any_script() -> None:
    access = ClusterAccess(server="https://one", credentials=ClusterCredentials(basic="ada:п"))
    sent = ApiServer(access)._headers()["Authorization"].removeprefix("Basic ")
    assert base64.b64decode(sent).decode() == "ada:п"


def test_base64_may_be_wrapped_as_its_command_does(tmp_path: Path) -> None:
    user = {"client-key-data": base64.encodebytes(b"K" * 90).decode()}
    found = find_access({}, kubeconfig=config_with(user, tmp_path / "config"))
    assert found.credentials.key == b"K" * 90


@cases("odd_files_are_refused_as_kubeconfigs")
def test_odd_files_are_refused_as_kubeconfigs(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(BadKubeconfig):
        find_access({}, kubeconfig=tmp_path / "config")


class TokenServer(ApiServer):
    """An API server that takes one token, and keeps those that it was sent."""

    taken = "new"

    def _request(self, *_: Any) -> Any:
        sent = self._headers()["Authorization"].removeprefix("Bearer ")
        self.sent = [*getattr(self, "sent", ()), sent]
        status = 200 if sent == self.taken else 401
        return SimpleNamespace(status=status, data=b'{"items": []}', headers={})


def with_token(token: str, server: str = "https://one") -> ClusterAccess:
    return ClusterAccess(server=server, credentials=ClusterCredentials(token=token))


def test_credentials_that_expired_are_asked_for_anew() -> None:
    server = TokenServer(with_token("old"), renew=lambda: with_token("new"))
    assert server.listed(POD, "a=b") == []
    assert server.listed(POD, "a=b") == []
    assert server.sent == ["old", "new", "new"]


@cases("renewed")
def test_who_is_refused_again_or_in_another_cluster_has_no_access(
    token: str, server: str, sent: list[str]
) -> None:
    asked = TokenServer(with_token("old"), renew=lambda: with_token(token, server))
    with pytest.raises(AccessDenied):
        asked.listed(POD, "a=b")
    assert asked.sent == sent


@cases("a_watch_ends_though_its_stream_does_not")
def test_a_watch_ends_though_its_stream_does_not(
    monkeypatch: pytest.MonkeyPatch, part: bytes, seconds: float
) -> None:
    monkeypatch.setattr(client, "CONNECT_S", 1e-6)
    read = 0

    def stream(_: int) -> Iterator[bytes]:
        nonlocal read
        for read in range(100):  # noqa: B007
            yield part

    response = SimpleNamespace(status=200, stream=stream)
    server = ApiServer(with_token("a"))
    server._made = SimpleNamespace(request=lambda *_, **__: response)  # type: ignore[assignment]
    assert list(server.watch(POD, "1", seconds)) == []
    assert read < 50


class Kept:
    """An API server with one Deployment; it keeps what is applied."""

    def __init__(self, **meta: Any) -> None:
        made = deployment_object(VLLM, KubernetesSpec(replicas=8))
        self.there = {**made, "metadata": {**made["metadata"], **meta}}
        self.applied: dict[str, Any] = {}

    def get(self, where: ObjectPlace) -> Any:
        return self.there if where.kind == "Deployment" else None

    def listed(self, *_: Any) -> list[Any]:
        return []

    def apply(self, document: dict[str, Any], **_: Any) -> Any:
        self.applied[document["kind"]] = document
        return document


def owned(manager: str) -> list[dict[str, Any]]:
    fields = {"f:spec": {"f:replicas": {}}}
    return [{"manager": manager, "fieldsV1": fields}, {"manager": "kubelet"}]


@pytest.mark.parametrize(("manager", "sent"), [("packager", 8), ("kube-controller-manager", None)])
def test_an_autoscaler_takes_over_the_replicas_that_run(manager: str, sent: int | None) -> None:
    """A field that nobody applies gets its default: seven of eight servers would end."""
    kept = Kept(managedFields=owned(manager))
    LiveCluster(KUBERNETES, kept, "default").apply(VLLM, SCALED)  # type: ignore[arg-type]
    assert kept.applied["Deployment"]["spec"].get("replicas") == sent
    assert "replicas" not in kept.applied["HorizontalPodAutoscaler"]["spec"]


@cases("groups_of_an_old_generation_are_not_ready")
def test_groups_of_an_old_generation_are_not_ready(observed: dict[str, int], state: str) -> None:
    """Older controllers do not say which generation they saw."""
    done = {"conditions": [{"type": "Available", "status": "True"}], **observed}
    status = {**done, "readyReplicas": 2, "updatedReplicas": 2}
    meta = {"name": "llama", "generation": 2}
    found = {"kind": "LeaderWorkerSet", "metadata": meta, "spec": {"replicas": 2}}
    assert status_of({**found, "status": status}).state == state


def test_what_is_being_deleted_is_not_applied_over() -> None:
    kept = Kept(deletionTimestamp="2026-11-23T00:00:00Z")
    with raises_code("StillEnding", match="'llama' is still being deleted"):
        LiveCluster(KUBERNETES, kept, "default").apply(VLLM, SCALED)  # type: ignore[arg-type]
    assert "Deployment" not in kept.applied


@cases("phases")
def test_phases_of_hyperpod_are_those_of_its_definition(
    phase: str, observed: int, state: str
) -> None:
    meta = {"name": "llama", "generation": 2}
    status = {"state": phase, "observedGeneration": observed}
    found = {"kind": "InferenceEndpointConfig", "metadata": meta, "spec": {}, "status": status}
    assert status_of(found).state == state
