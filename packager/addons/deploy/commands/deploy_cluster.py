"""The commands that every platform on Kubernetes has."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from packager.addons.deploy.commands.deploy_cluster_options import (
    ACCESS,
    COMMON,
    namespace_option,
    open_server,
    take_name,
    take_wanted,
)
from packager.addons.deploy.commands.deploy_options import (
    check_asked,
    output_option,
    prompt_options,
    read_body,
    show_answer,
    show_changes,
    show_rendered,
    show_status,
    subject_options,
    tell_findings,
    wait_options,
)
from packager.addons.deploy.commands.deploy_proof import Proof, ProofMeasurement, proof_options
from packager.addons.deploy.kubernetes.client import ApiServer
from packager.addons.deploy.kubernetes.live import ClusterPlatform, LiveCluster, deploy_failed
from packager.addons.deploy.kubernetes.ways import INVOCATIONS
from packager.addons.deploy.servers import request_body
from packager.addons.deploy.wiring.deployments import Whereabouts, forget_deployment
from packager.cli.field_options import Option, add_options
from packager.cli.serving.smoke import EndpointAnswer, ask_through
from packager.cli.shared_options import format_option
from packager.cli.terminal import note
from packager.core.deployment import DeployStatus


def add_commands(group: click.Group, platform: ClusterPlatform, *own: tuple[Option, ...]) -> None:
    """Add render, diff, apply, status, invoke and delete to a platform's group."""
    name = str(group.name)
    wanted = add_options(COMMON, *own)
    group.add_command(_render(platform, name, wanted))
    group.add_command(_diff(platform, name, wanted))
    group.add_command(_apply(platform, name, wanted))
    group.add_command(_status(platform, name))
    if platform.scheme:
        group.add_command(_invoke(platform, name))
    group.add_command(_delete(platform, name))


def _render(platform: ClusterPlatform, name: str, wanted_options: Option) -> click.Command:
    @subject_options
    @wanted_options
    @output_option
    @format_option
    def render(output: Path | None, output_format: str, **given: Any) -> None:
        deployment, wanted = take_wanted(given)
        show_rendered(platform.deployer.render(deployment, wanted), output, output_format)

    render.__doc__ = f"""Print the manifests of IMAGE, in the order in which they are applied.

    With --output, `kubectl apply -k DIR` takes the directory. Nothing is sent.

    \b
    packager deploy {name} render r.example/team/model:1 --output manifests
    """
    return click.command()(render)


def _diff(platform: ClusterPlatform, name: str, wanted_options: Option) -> click.Command:
    @subject_options
    @wanted_options
    @add_options(ACCESS, (_force,))
    @format_option
    def diff(output_format: str, **given: Any) -> None:
        server, namespace = open_server(given)
        deployment, wanted = take_wanted(given)
        show_changes(
            LiveCluster(platform, server, namespace).diff(deployment, wanted), output_format
        )

    diff.__doc__ = f"""Show what `apply` would change, as the API server answers a dry run.

    \b
    packager deploy {name} diff r.example/team/model:2
    """
    return click.command()(diff)


def _apply(platform: ClusterPlatform, name: str, wanted_options: Option) -> click.Command:
    @subject_options
    @wanted_options
    @add_options(ACCESS, (_force,))
    @wait_options
    @(proof_options if platform.scheme else add_options(()))
    @format_option
    def apply(
        wait: bool,
        timeout_s: float,
        output_format: str,
        smoke: bool = False,
        measures: bool = False,
        **given: Any,
    ) -> None:
        subject = given["image"]
        server, namespace = open_server(given)
        deployment, wanted = take_wanted(given)
        proof = Proof(
            deployment=deployment,
            where=_where(name, server, namespace),
            subject=subject,
            smoke=smoke,
            measures=measures,
            output_format=output_format,
        )
        proof.check()
        tell_findings(platform.deployer.check(deployment, wanted))
        live = LiveCluster(platform, server, namespace, say=note)
        applied = live.apply(deployment, wanted)
        if wait or proof.waits:
            _check_serving(deployment.name, live.status(deployment.name, wait_s=timeout_s))

        def ask(prompt: str, tokens: int) -> EndpointAnswer:
            return ask_through(
                partial(live.invoke, deployment.name),
                where=applied.address,
                model=live.model(deployment.name) or deployment.served_name,
                prompt=prompt,
                max_tokens=tokens,
            )

        def measured() -> ProofMeasurement:
            route, question = live.route(deployment.name)
            return ProofMeasurement(
                name=route.shown,
                route=route,
                endpoint="invocations" if question == INVOCATIONS else "chat",
                replicas=wanted.replicas,
            )

        proof.show(applied, ask, measured)

    apply.__doc__ = f"""Apply IMAGE's manifests by the server, and delete those no longer wanted.

    The server is asked about all of them first. Doing it again changes nothing.

    \b
    packager deploy {name} apply r.example/team/model:1 --namespace models --wait
    """
    return click.command()(apply)


def _status(platform: ClusterPlatform, name: str) -> click.Command:
    @click.argument("name")
    @add_options((namespace_option,), ACCESS)
    @wait_options
    @format_option
    def status(name: str, wait: bool, timeout_s: float, output_format: str, **given: Any) -> None:
        live = _live(platform, given)
        found = live.status(take_name(name), wait_s=timeout_s if wait else 0.0)
        show_status(found, output_format)
        if wait:
            _check_serving(name, found)

    status.__doc__ = f"""Show the state of deployment NAME, and why pods wait.

    With --wait it ends once the deployment serves or has failed.

    \b
    packager deploy {name} status my-model --wait
    """
    return click.command()(status)


def _invoke(platform: ClusterPlatform, name: str) -> click.Command:
    @click.argument("name")
    @prompt_options("Name of the model in a chat.")
    @add_options((namespace_option,), ACCESS)
    def invoke(
        name: str, body: str | None, prompt: str | None, model: str, max_tokens: int, **given: Any
    ) -> None:
        check_asked(body, prompt)
        data = read_body(body) if prompt is None else request_body(prompt, model, max_tokens)
        show_answer(_live(platform, given).invoke(take_name(name), data))

    invoke.__doc__ = f"""Send one request to deployment NAME through the API server's proxy.

    \b
    packager deploy {name} invoke my-model --prompt 'Hello' --model my-model
    """
    return click.command()(invoke)


def _delete(platform: ClusterPlatform, name: str) -> click.Command:
    @click.argument("name")
    @add_options((namespace_option,), ACCESS)
    @format_option
    def delete(name: str, output_format: str, **given: Any) -> None:
        server, namespace = open_server(given)
        changes = LiveCluster(platform, server, namespace, say=note).delete(take_name(name))
        where = _where(str(platform.deployer.name), server, namespace)
        forget_deployment(name, where, os.environ)
        show_changes(changes, output_format)

    delete.__doc__ = f"""Delete everything that `apply` made for deployment NAME.

    \b
    packager deploy {name} delete my-model
    """
    return click.command()(delete)


def _where(platform: str, server: ApiServer, namespace: str) -> Whereabouts:
    parts = urlsplit(server.address)
    cluster = parts.netloc.rpartition("@")[2] + parts.path.rstrip("/")
    return Whereabouts(platform=platform, namespace=namespace, cluster=cluster)


def _live(platform: ClusterPlatform, given: dict[str, Any]) -> LiveCluster:
    server, namespace = open_server(given)
    return LiveCluster(platform, server, namespace, say=note)


def _check_serving(name: str, found: DeployStatus) -> None:
    if found.state != "ready":
        raise deploy_failed(name, found.reason or found.said or found.state)


_force = click.option(
    "--force", is_flag=True, help="Take over fields and objects that others manage."
)
