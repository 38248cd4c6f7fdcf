"""Compose's deployer: the files of a project, and what one machine cannot do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from packager.addons.deploy.checks import check_grace, check_pair, refuse_secrets
from packager.addons.deploy.compose.documents import (
    GENERATIONS,
    document_of,
    files_beside,
    front_service,
    has_room,
    needed_of,
    pool_of,
    render_document,
    server_names,
    server_services,
    servers_file,
)
from packager.addons.deploy.compose.spec import LOOPBACK, ComposeSpec
from packager.addons.deploy.grace import check_one_number
from packager.core.deployment import Deployment, RenderedFiles
from packager.core.findings import Finding


class ComposeDeployer:
    """Describes deployments as projects of Docker Compose."""

    name = "compose"

    def check(self, deployment: Deployment, wanted: ComposeSpec) -> Iterator[Finding]:
        """Yield findings for what this machine cannot run, or what stops while it is updated."""
        yield from deployment.findings
        mounted = bool(wanted.model_dir)
        for finding in check_pair(deployment):
            if finding.code == "deploy-weights-missing":
                if not mounted:
                    hint = "name their directory with --model-dir DIR"
                    yield replace(finding, hint=hint)
            else:
                yield finding
        if mounted and deployment.weights.kind == "baked":
            what = "the image has its weights, and does not look at mounted ones"
            yield Finding("warning", "deploy-weights-unused", what, "leave --model-dir out")
        if deployment.nodes > 1:
            what = f"a replica needs {deployment.nodes} machines, and Compose runs on one"
            yield Finding("error", "deploy-nodes", what, "deploy it on Kubernetes")
        yield from _devices(deployment, wanted)
        if wanted.grace_s is not None:
            yield from check_grace(deployment, wanted.grace_s)
            yield from check_one_number(deployment, wanted.grace_s)
        if wanted.host != LOOPBACK:
            what = f"everybody who reaches {wanted.host} can ask it: servers ask for no password"
            yield Finding("warning", "deploy-open-port", what, "put a proxy with TLS in front")

    def render(self, deployment: Deployment, wanted: ComposeSpec) -> RenderedFiles:
        """Return the project's files as `apply` writes them at first."""
        refuse_secrets({**deployment.env, **wanted.env})
        first = GENERATIONS[0]
        document = document_of(
            front_service(deployment, wanted, deployment.image),
            server_services(deployment, wanted, first),
            wanted.secrets,
        )
        servers = servers_file(
            deployment.port, deployment.health_path, server_names(first, wanted.replicas)
        )
        files = (
            render_document(document),
            *files_beside(deployment.name),
            servers,
        )
        return RenderedFiles(files=files, findings=tuple(self.check(deployment, wanted)))


def _devices(deployment: Deployment, wanted: ComposeSpec) -> Iterator[Finding]:
    instance, needed = deployment.instance, needed_of(deployment, wanted)
    if instance.kind == "cpu":
        if wanted.devices:
            what = f"--devices changes nothing: {instance.name} has no devices"
            yield Finding("error", "deploy-option-alone", what, "leave --devices out")
        return
    has = len(pool_of(deployment, wanted))
    where = "--devices names" if wanted.devices else f"{instance.name} has"
    if needed > has:
        what = f"{wanted.replicas} replicas need {needed} devices, and {where} {has}"
        yield Finding("error", "deploy-device-count", what, "give fewer --replicas")
    elif not has_room(deployment, wanted):
        what = f"{where} {has} devices: an update ends the old servers "
        what += "before the new ones start, and requests wait meanwhile"
        hint = "give each generation half of the devices"
        yield Finding("note", "deploy-update-waits", what, hint)
