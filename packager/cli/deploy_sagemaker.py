"""`packager deploy sagemaker`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from packager.cli.deploy_options import (
    output_option,
    show_rendered,
    subject_options,
    take_deployment,
)
from packager.cli.options import format_option
from packager.deploy.sagemaker.deployer import SageMakerDeployer
from packager.deploy.sagemaker.wanted import SageMakerWanted


@click.group()
def sagemaker() -> None:
    """Deploy to an endpoint of Amazon SageMaker."""


@sagemaker.command()
@subject_options
@output_option
@format_option
def render(output: Path | None, output_format: str, **given: Any) -> None:
    """Print the requests of IMAGE's endpoint, in the order in which they are sent.

    \b
    packager deploy sagemaker render r.example/team/model:1
    """
    deployment = take_deployment(given)
    show_rendered(SageMakerDeployer().render(deployment, SageMakerWanted()), output, output_format)
