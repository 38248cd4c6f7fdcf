"""Deployers: the platforms that an image is deployed on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from packager.plugins.rows import Row, Table

if TYPE_CHECKING:
    from packager.deploy.sagemaker.wanted import SageMakerWanted
    from packager.ports import Deployer

DeployerRow: TypeAlias = "Row[[], Deployer[Any]]"


def _sagemaker() -> Deployer[SageMakerWanted]:
    from packager.deploy.sagemaker.deployer import SageMakerDeployer

    return SageMakerDeployer()


# In the order of `packager deploy --help`.
DEPLOYERS: Table[DeployerRow] = Table(
    "platform",
    {"sagemaker": Row("an endpoint of Amazon SageMaker", _sagemaker)},
    port="Deployer",
    group="packager.deployers",
)
