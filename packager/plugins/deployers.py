"""Deployers: the platforms that an image is deployed on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from packager.plugins.rows import Row, Table

if TYPE_CHECKING:
    from packager.deploy.compose.wanted import ComposeWanted
    from packager.deploy.kubernetes.wanted import KubernetesWanted
    from packager.deploy.sagemaker.wanted import SageMakerWanted
    from packager.ports import Deployer

DeployerRow: TypeAlias = "Row[[], Deployer[Any]]"


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


# In the order of `packager deploy --help`.
DEPLOYERS: Table[DeployerRow] = Table(
    "platform",
    {
        "sagemaker": Row("an endpoint of Amazon SageMaker", _sagemaker),
        "compose": Row("this machine, by Docker Compose", _compose),
        "kubernetes": Row("a Deployment or LeaderWorkerSet of Kubernetes", _kubernetes),
        "kserve": Row("an InferenceService or LLMInferenceService of KServe", _kserve),
        "hyperpod": Row("an InferenceEndpointConfig of SageMaker HyperPod", _hyperpod),
    },
    port="Deployer",
    group="packager.deployers",
)
