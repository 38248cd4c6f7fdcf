"""What every platform promises of what is applied, without any: servers of ours and doubles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from packager.addons.deploy.compose.spec import ComposeSpec
from packager.addons.deploy.kubernetes.client import ApiServer
from packager.addons.deploy.kubernetes.kubeconfig import ClusterAccess, ClusterCredentials
from packager.addons.deploy.kubernetes.live import (
    HYPERPOD,
    KSERVE,
    KUBERNETES,
    ClusterPlatform,
    LiveCluster,
)
from packager.addons.deploy.kubernetes.spec import KubernetesSpec
from packager.addons.deploy.sagemaker.clients import Clients
from packager.addons.deploy.sagemaker.live import LiveSageMaker
from packager.addons.deploy.sagemaker.spec import SageMakerSpec
from packager.core.deployment import Change, Deployment
from packager.core.errors import NotFound, PlanRejected
from packager.core.ports import DeploysLive
from tests.support.cluster_deployments import VLLM
from tests.support.deployments import ROLE, deployment
from tests.support.doubles.cluster import running_cluster
from tests.support.doubles.endpoint_containers import FakeContainers
from tests.support.hosting_server import hosting, look_often, use_for_aws
from tests.unit.addons.deploy.compose.test_live import Live, Machine, on


@dataclass
class Target:
    """A platform, and what is deployed there."""

    live: DeploysLive[Any]
    deployed: Deployment
    wanted: Any

    def apply(self) -> set[str]:
        return kinds(self.live.apply(self.deployed, self.wanted).changes)

    def is_absent(self) -> bool:
        try:
            return self.live.status(self.deployed.name).state == "absent"
        except NotFound:
            return True


def kinds(changes: tuple[Change, ...]) -> set[str]:
    return {one.kind for one in changes}


@contextmanager
def on_sagemaker(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    look_often(monkeypatch)
    with hosting(place, FakeContainers(images={"tiny:1", "tiny:2"})) as server:
        use_for_aws(monkeypatch, server)
        live = LiveSageMaker(Clients("us-east-1"), poll_s=0.01)
        yield Target(live, deployment(image="tiny:1"), SageMakerSpec(role_arn=ROLE))


@contextmanager
def on_cluster(platform: ClusterPlatform) -> Iterator[Target]:
    with running_cluster() as (cluster, address):
        access = ClusterAccess(server=address, credentials=ClusterCredentials(token=cluster.token))
        live = LiveCluster(platform, ApiServer(access), "default")
        yield Target(live, VLLM, KubernetesSpec())


@pytest.fixture(params=["sagemaker", "compose", "kubernetes", "kserve", "hyperpod"])
def target(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Target]:
    clusters = {"kubernetes": KUBERNETES, "kserve": KSERVE, "hyperpod": HYPERPOD}
    if request.param in clusters:
        with on_cluster(clusters[request.param]) as found:
            yield found
    elif request.param == "sagemaker":
        with on_sagemaker(tmp_path, monkeypatch) as found:
            yield found
    else:
        yield Target(Live(tmp_path, Machine()), on("ml.g5.12xlarge"), ComposeSpec())


def test_what_is_applied_twice_changes_once(target: Target) -> None:
    assert target.apply() == {"create"}
    target.live.status(target.deployed.name, wait_s=5)

    assert target.apply() == {"same"}
    assert kinds(target.live.diff(target.deployed, target.wanted)) == {"same"}


@pytest.mark.extended
def test_a_difference_changes_nothing(target: Target) -> None:
    assert kinds(target.live.diff(target.deployed, target.wanted)) == {"create"}
    assert target.is_absent()
    target.apply()
    before = target.live.status(target.deployed.name, wait_s=5).image
    other = replace(target.deployed, image="tiny:2")

    assert {"update", "create"} & kinds(target.live.diff(other, target.wanted))
    assert target.live.status(target.deployed.name).image == before
    assert kinds(target.live.diff(target.deployed, target.wanted)) == {"same"}


@pytest.mark.extended
def test_what_is_deleted_is_gone_and_can_be_applied_again(target: Target) -> None:
    assert target.live.delete(target.deployed.name) == ()
    target.apply()
    target.live.status(target.deployed.name, wait_s=5)

    assert kinds(target.live.delete(target.deployed.name)) == {"delete"}
    assert target.is_absent()
    assert target.live.delete(target.deployed.name) == ()
    assert target.apply() == {"create"}


def test_what_does_not_fit_is_sent_to_nobody(target: Target) -> None:
    target.deployed = replace(target.deployed, devices=16)

    with pytest.raises(PlanRejected):
        target.apply()

    assert target.is_absent()
