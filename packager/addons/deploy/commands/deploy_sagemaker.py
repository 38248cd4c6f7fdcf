"""`packager deploy sagemaker`."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import click

from packager.addons.deploy.commands.deploy_options import (
    check_asked,
    output_option,
    prompt_options,
    read_body,
    show_answer,
    show_applied,
    show_changes,
    show_rendered,
    show_status,
    subject_options,
    tell_findings,
    wait_options,
)
from packager.addons.deploy.commands.deploy_proof import Proof, ProofMeasurement, proof_options
from packager.addons.deploy.commands.deploy_sagemaker_options import take_wanted, wanted_options
from packager.addons.deploy.sagemaker.clients import Clients
from packager.addons.deploy.sagemaker.deployer import SageMakerDeployer
from packager.addons.deploy.sagemaker.live import LiveSageMaker
from packager.addons.deploy.sagemaker.refusals import endpoint_failed, still_starting
from packager.addons.deploy.servers import request_body
from packager.addons.deploy.source import dns_label
from packager.addons.deploy.wiring.deployments import Whereabouts, forget_deployment
from packager.cli.serving.smoke import EndpointAnswer, ask_through
from packager.cli.shared_options import format_option
from packager.cli.terminal import note
from packager.core.deployment import DeployStatus
from packager.core.errors import NotFound, UsageError

_WHERE = Whereabouts(platform="sagemaker")

_region_option = click.option("--region", metavar="REGION", default="", help="AWS region.")


@click.group()
def sagemaker() -> None:
    """Deploy to an endpoint of Amazon SageMaker, or of `packager serve`.

    Address, region and credentials are found as boto3 finds them: AWS_PROFILE, AWS_REGION,
    AWS_ENDPOINT_URL_SAGEMAKER. None is printed or written.

    \b
    Status: 0 done; 2 wrong arguments, or AWS refuses a request; 3 the image does not fit;
    4 it does not answer; 66 no such endpoint or image; 69 it failed, or did not settle in time;
    77 access denied.
    """


@sagemaker.command()
@subject_options
@wanted_options
@click.option(
    "--as",
    "form",
    type=click.Choice(("api", "cloudformation")),
    default="api",
    show_default=True,
    help="Requests of the API, one file each, or one template.",
)
@output_option
@format_option
def render(form: Any, output: Path | None, output_format: str, **given: Any) -> None:
    """Print the requests of IMAGE's endpoint, in the order in which they are sent.

    Each file is what `aws sagemaker … --cli-input-json file://FILE` takes. Nothing is sent.

    \b
    packager deploy sagemaker render r.example/team/model:1 --role-arn arn:aws:iam::…:role/serve
    """
    deployment, wanted, _ = take_wanted(given)
    show_rendered(SageMakerDeployer(form).render(deployment, wanted), output, output_format)


@sagemaker.command()
@subject_options
@wanted_options
@format_option
def diff(output_format: str, **given: Any) -> None:
    """Show what `apply` would create or update, and change nothing.

    \b
    packager deploy sagemaker diff r.example/team/model:2 --role-arn arn:aws:iam::…:role/serve
    """
    deployment, wanted, region = take_wanted(given)
    changes = LiveSageMaker(Clients(region)).diff(deployment, wanted)
    tell_findings(SageMakerDeployer().check(deployment, wanted))
    show_changes(changes, output_format)


@sagemaker.command()
@subject_options
@wanted_options
@wait_options
@proof_options
@format_option
def apply(
    wait: bool, timeout_s: float, smoke: bool, measures: bool, output_format: str, **given: Any
) -> None:
    """Create IMAGE's endpoint, or update what differs of it.

    Doing it again changes nothing; after it was interrupted, it goes on.

    \b
    packager deploy sagemaker apply r.example/team/model:1 --role-arn … --smoke --bench
    """
    subject = given["image"]
    deployment, wanted, region = take_wanted(given)
    proof = Proof(
        deployment=deployment,
        where=_WHERE,
        subject=subject,
        smoke=smoke,
        measures=measures,
        output_format=output_format,
    )
    proof.check()
    if wanted.copies == 0 and proof.waits:
        raise UsageError(
            "--smoke and --bench ask the endpoint, and --copies 0 leaves nobody to answer",
            hint="give --copies 1; it goes back to 0 by itself where --min-instances is 0",
        )
    live = LiveSageMaker(Clients(region), say=note)
    tell_findings(live.check(deployment, wanted))
    applied = live.apply(deployment, wanted)
    name = deployment.name
    if wait or proof.waits:
        _check_serving(name, live.status(name, wait_s=timeout_s))

    def ask(prompt: str, tokens: int) -> EndpointAnswer:
        return ask_through(
            partial(live.invoke, name),
            where=applied.address,
            model=deployment.served_name,
            prompt=prompt,
            max_tokens=tokens,
        )

    def measured() -> ProofMeasurement:
        route = live.route(name)
        copies = wanted.instances * (wanted.copies if wanted.components else 1)
        return ProofMeasurement(
            name=route.shown,
            route=route,
            endpoint="invocations",
            replicas=copies,
            tells_metrics=False,
        )

    proof.show(applied, ask, measured)


@sagemaker.command()
@click.argument("name")
@wait_options
@_region_option
@format_option
def status(name: str, wait: bool, timeout_s: float, region: str, output_format: str) -> None:
    """Show the state of endpoint NAME.

    With --wait it ends once the endpoint serves or has failed.

    \b
    packager deploy sagemaker status my-model --wait
    """
    found = LiveSageMaker(Clients(region), say=note).status(name, wait_s=timeout_s if wait else 0.0)
    show_status(found, output_format)
    if wait:
        _check_serving(name, found)


@sagemaker.command()
@click.argument("name")
@prompt_options("Model in a chat. Default: the endpoint's.")
@_region_option
def invoke(
    name: str, body: str | None, prompt: str | None, model: str, max_tokens: int, region: str
) -> None:
    """Send one request to endpoint NAME and print its answer.

    \b
    packager deploy sagemaker invoke my-model --prompt 'Hello'
    """
    check_asked(body, prompt)
    live = LiveSageMaker(Clients(region))
    if prompt is None:
        data = read_body(body)
    else:
        data = request_body(prompt, model or live.served_name(name), max_tokens)
    show_answer(live.invoke(name, data))


@sagemaker.command()
@click.argument("name")
@_region_option
@format_option
def rollback(name: str, region: str, output_format: str) -> None:
    """Move endpoint NAME back to the configuration that it had before.

    \b
    packager deploy sagemaker rollback my-model
    """
    show_applied(LiveSageMaker(Clients(region), say=note).roll_back(name), output_format)


@sagemaker.command()
@click.argument("name")
@_region_option
@format_option
def delete(name: str, region: str, output_format: str) -> None:
    """Delete endpoint NAME, with every model and configuration that `apply` made for it.

    \b
    packager deploy sagemaker delete my-model
    """
    changes = LiveSageMaker(Clients(region), say=note).delete(name)
    forget_deployment(dns_label(name), _WHERE, os.environ)
    show_changes(changes, output_format)


def _check_serving(name: str, found: DeployStatus) -> None:
    """Raise where an endpoint does not serve after it was waited for."""
    if found.state == "absent":
        raise NotFound(f"there is no endpoint {name!r}", hint="apply it first")
    if found.state not in ("ready", "failed"):
        raise still_starting(name, found.said)
    if found.state == "failed":
        raise endpoint_failed(name, found.reason or f"it is {found.said}")
