"""Rows of the platforms that images are deployed on, by the entry points of the distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packager.plugins.rows import Row

if TYPE_CHECKING:
    from packager.deploy.compose.wanted import ComposeWanted
    from packager.deploy.kubernetes.wanted import KubernetesWanted
    from packager.deploy.sagemaker.wanted import SageMakerWanted
    from packager.plugins.tables import DeployerRow
    from packager.ports import Deployer


def _sagemaker() -> Deployer[SageMakerWanted]:
    from packager.deploy.sagemaker.deployer import SageMakerDeployer

    return SageMakerDeployer()


def _compose() -> Deployer[ComposeWanted]:
    from packager.deploy.compose.deployer import ComposeDeployer

    return ComposeDeployer()


def _kubernetes() -> Deployer[KubernetesWanted]:
    from packager.deploy.kubernetes.deployer import KubernetesDeployer

    return KubernetesDeployer()


def _kserve() -> Deployer[KubernetesWanted]:
    from packager.deploy.kubernetes.kserve import KServeDeployer

    return KServeDeployer()


def _hyperpod() -> Deployer[KubernetesWanted]:
    from packager.deploy.kubernetes.hyperpod import HyperPodDeployer

    return HyperPodDeployer()


SAGEMAKER: DeployerRow = Row("an endpoint of Amazon SageMaker", _sagemaker)
COMPOSE: DeployerRow = Row("this machine, by Docker Compose", _compose)
KUBERNETES: DeployerRow = Row("a Deployment or LeaderWorkerSet of Kubernetes", _kubernetes)
KSERVE: DeployerRow = Row("an InferenceService or LLMInferenceService of KServe", _kserve)
HYPERPOD: DeployerRow = Row("an InferenceEndpointConfig of SageMaker HyperPod", _hyperpod)
