"""SageMaker's deployer: requests of its API, or a template of CloudFormation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Literal

from packager.addons.deploy.checks import refuse_secrets
from packager.addons.deploy.sagemaker.bodies import requests_of
from packager.addons.deploy.sagemaker.checks import check_endpoint, check_requests
from packager.addons.deploy.sagemaker.cloudformation import template_of
from packager.addons.deploy.sagemaker.requests import Request
from packager.addons.deploy.sagemaker.spec import SageMakerSpec
from packager.core.deployment import DeployFile, Deployment, RenderedFiles
from packager.core.findings import Finding

Form = Literal["api", "cloudformation"]


class SageMakerDeployer:
    """Describes endpoints as bodies of the SageMaker API, or as a template that makes them."""

    name = "sagemaker"

    def __init__(self, form: Form = "api") -> None:
        self._form = form

    def check(self, deployment: Deployment, wanted: SageMakerSpec) -> Iterator[Finding]:
        """Yield findings for what SageMaker would refuse, kill or ignore."""
        requests = requests_of(deployment, wanted)
        found = (*check_endpoint(deployment, wanted), *check_requests(requests))
        yield from dict.fromkeys(found)  # pools share most of them

    def render(self, deployment: Deployment, wanted: SageMakerSpec) -> RenderedFiles:
        """Return the bodies in the order in which they are sent, or the template.

        Raises `UsageError` for a credential in the environment.
        """
        for one in (deployment, *wanted.pools):
            refuse_secrets(one.env)
        refuse_secrets(wanted.tags)
        requests = requests_of(deployment, wanted)
        findings = (*self.check(deployment, wanted), *self._to_fill_in(requests))
        if self._form == "cloudformation":
            files: Sequence[DeployFile] = (
                DeployFile("template.json", _text(template_of(requests))),
            )
        else:
            files = [
                DeployFile(f"{number:02}-{_dashed(one.operation)}.json", _text(one.body))
                for number, one in enumerate(requests, 1)
            ]
        return RenderedFiles(files=tuple(files), findings=findings)

    def _to_fill_in(self, requests: Sequence[Request]) -> Iterator[Finding]:
        """Yield the fields that the user must fill in before sending the files."""
        if self._form == "api" and any(one.resource == "MetricAlarm" for one in requests):
            what = "AWS makes the ARN of the step policy when it is put: the alarm's file lacks it"
            hint = "put PolicyARN of put-scaling-policy's answer into AlarmActions; `apply` does it"
            yield Finding("note", "deploy-alarm-arn", what, hint)


def _text(document: object) -> str:
    return json.dumps(document, indent=2) + "\n"


def _dashed(operation: str) -> str:
    """Return an operation as the AWS command line spells it: `create-endpoint-config`."""
    return "".join(f"-{one.lower()}" if one.isupper() else one for one in operation).lstrip("-")
