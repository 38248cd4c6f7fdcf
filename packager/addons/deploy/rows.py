"""Rows of the platforms that images are deployed on, by the entry points of the distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packager.cli.plugins.rows import Row

if TYPE_CHECKING:
    from packager.addons.deploy.compose.spec import ComposeSpec
    from packager.addons.deploy.kubernetes.spec import KubernetesSpec
    from packager.addons.deploy.sagemaker.spec import SageMakerSpec
    from packager.cli.plugins.tables import DeployerRow
    from packager.core.ports import Deployer


def _sagemaker() -> Deployer[SageMakerSpec]:
    from packager.addons.deploy.sagemaker.deployer import SageMakerDeployer

    return SageMakerDeployer()


def _compose() -> Deployer[ComposeSpec]:
    from packager.addons.deploy.compose.deployer import ComposeDeployer

    return ComposeDeployer()


def _kubernetes() -> Deployer[KubernetesSpec]:
    from packager.addons.deploy.kubernetes.deployer import KubernetesDeployer

    return KubernetesDeployer()


def _kserve() -> Deployer[KubernetesSpec]:
    from packager.addons.deploy.kubernetes.kserve import KServeDeployer

    return KServeDeployer()


def _hyperpod() -> Deployer[KubernetesSpec]:
    from packager.addons.deploy.kubernetes.hyperpod import HyperPodDeployer

    return HyperPodDeployer()


SAGEMAKER: DeployerRow = Row("an endpoint of Amazon SageMaker", _sagemaker)
COMPOSE: DeployerRow = Row("this machine, by Docker Compose", _compose)
KUBERNETES: DeployerRow = Row("a Deployment or LeaderWorkerSet of Kubernetes", _kubernetes)
KSERVE: DeployerRow = Row("an InferenceService or LLMInferenceService of KServe", _kserve)
HYPERPOD: DeployerRow = Row("an InferenceEndpointConfig of SageMaker HyperPod", _hyperpod)
