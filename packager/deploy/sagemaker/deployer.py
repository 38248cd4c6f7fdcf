"""SageMaker's deployer."""

from __future__ import annotations

from collections.abc import Iterator

from packager.core.deployment import Deployment, RenderedFiles
from packager.deploy.checks import check_ami, check_pair
from packager.deploy.sagemaker.wanted import SageMakerWanted
from packager.findings import Finding


class SageMakerDeployer:
    """Describes endpoints as bodies of the SageMaker API."""

    name = "sagemaker"

    def check(self, deployment: Deployment, wanted: SageMakerWanted) -> Iterator[Finding]:
        """Yield findings for what SageMaker would refuse, kill or ignore."""
        yield from deployment.findings
        yield from check_pair(deployment)
        yield from check_ami(deployment, wanted.ami or deployment.inference_ami)

    def render(self, deployment: Deployment, wanted: SageMakerWanted) -> RenderedFiles:
        """Return the bodies in the order in which they are sent."""
        return RenderedFiles(files=(), findings=tuple(self.check(deployment, wanted)))
