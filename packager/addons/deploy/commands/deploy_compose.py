"""`packager deploy compose`."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from packager.addons.deploy.checks import refuse_secrets
from packager.addons.deploy.commands.deploy_options import (
    grace_option,
    output_option,
    patch_option,
    read_body,
    show_answer,
    show_changes,
    show_rendered,
    show_status,
    subject_options,
    take_deployment,
    take_patch,
    tell_findings,
    wait_options,
)
from packager.addons.deploy.commands.deploy_proof import Proof, ProofMeasurement, proof_options
from packager.addons.deploy.compose.deployer import ComposeDeployer
from packager.addons.deploy.compose.spec import LOOPBACK, CaptureSpec, ComposeSpec
from packager.addons.deploy.mounted_adapters import parse_mounts
from packager.addons.deploy.wiring.compose import Through, compose_projects
from packager.addons.deploy.wiring.deployments import Whereabouts, forget_deployment
from packager.addons.deploy.wiring.mounts import find_directories
from packager.cli.capture_options import (
    TrafficCapture,
    capture_options,
    owner_of,
    take_capture,
)
from packager.cli.field_options import Option, add_options
from packager.cli.options import container_environment
from packager.cli.serving.smoke import EndpointAnswer, ask_endpoint
from packager.cli.shared_options import format_option
from packager.cli.terminal import note
from packager.core.deployment import PORT, Deployment, DeployStatus
from packager.core.errors import NotFound, SmokeFailed, UsageError

_WHERE = Whereabouts(platform="compose")
_DEVICE = re.compile(r"[0-9]{1,4}|(GPU|MIG)-[A-Za-z0-9/-]{1,100}", re.ASCII)

_WANTED: tuple[Option, ...] = (
    click.option(
        "--replicas",
        type=click.IntRange(1, 64),
        default=1,
        show_default=True,
        metavar="N",
        help="Servers, each with devices of its own.",
    ),
    click.option(
        "--port",
        type=click.IntRange(1, 65535),
        default=PORT,
        show_default=True,
        metavar="N",
        help="Port of this machine.",
    ),
    click.option(
        "--host",
        default=LOOPBACK,
        show_default=True,
        metavar="ADDRESS",
        help="Address of this machine that the port is published at.",
    ),
    click.option(
        "--env",
        multiple=True,
        metavar="NAME[=VALUE]",
        help="Variable of the servers; without a value, the one that compose finds in its own "
        "environment. Repeatable.",
    ),
    click.option(
        "--env-file",
        "env_files",
        multiple=True,
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        metavar="FILE",
        help="Variables of the servers, credentials among them; the file is only named. "
        "Repeatable.",
    ),
    click.option(
        "--secret",
        "secrets",
        multiple=True,
        metavar="NAME=FILE",
        help="File that servers find as /run/secrets/NAME. Repeatable.",
    ),
    click.option(
        "--devices",
        metavar="N,N…",
        help="Devices of this machine that the servers share out, by number or UUID. Default: from "
        "0 on.",
    ),
    grace_option,
    patch_option,
    click.option(
        "--model-dir",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        metavar="DIR",
        help="Directory of the weights, for an image that has none in it.",
    ),
    click.option(
        "--draft-dir",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        metavar="DIR",
        help="Directory of the draft, for an image that has none in it.",
    ),
    click.option(
        "--adapter",
        "adapters",
        multiple=True,
        metavar="NAME=DIR",
        help="Mount this over adapter NAME of the image: TREE/adapters/NAME of a build to "
        "dir:TREE. Repeatable.",
    ),
    *capture_options,
)

_through_option = click.option(
    "--through",
    type=click.Choice(("auto", "compose", "api")),
    default="auto",
    show_default=True,
    help="Run `docker compose`, or do the same through the Docker API; auto takes what is there.",
)


_wanted_options = add_options(_WANTED)


def _take(given: dict[str, Any]) -> tuple[Deployment, ComposeSpec]:
    """Return the deployment and its desired state; raise for a credential in a value."""
    pairs = given.pop("env")
    env = container_environment(tuple(pair for pair in pairs if "=" in pair))
    passed = tuple(pair for pair in pairs if "=" not in pair)
    wrong = next((name for name in (*env, *passed) if not name.isidentifier()), None)
    if wrong is not None:
        raise UsageError(
            f"{wrong[:60]!r} cannot name a variable", hint="use letters, digits and '_'"
        )
    refuse_secrets(env)
    model, draft = given.pop("model_dir"), given.pop("draft_dir")
    captured, mounts = take_capture(given), parse_mounts(given.pop("adapters"))
    wanted = ComposeSpec(
        replicas=given.pop("replicas"),
        host=given.pop("host"),
        host_port=given.pop("port"),
        env=env,
        passed=passed,
        env_files=tuple(str(path.absolute()) for path in given.pop("env_files")),
        secrets=dict(_secret(text) for text in given.pop("secrets")),
        model_dir=str(model.absolute()) if model else "",
        devices=_devices(given.pop("devices")),
        grace_s=given.pop("grace_s"),
        patch=take_patch(given.pop("patch")),
        draft_dir=str(draft.absolute()) if draft else "",
        capture=None if captured is None else _capture(captured),
    )
    deployment = take_deployment(given)
    found = find_directories(mounts, deployment)
    return deployment, replace(wanted, adapters=tuple(found[name] for name in sorted(found)))


def _capture(found: TrafficCapture) -> CaptureSpec:
    return CaptureSpec(
        directory=str(found.directory),
        owner=owner_of(found.directory),
        share=found.share,
        redact_file=str(found.redact_file or ""),
    )


def _devices(text: str | None) -> tuple[str, ...]:
    found = tuple(one.strip() for one in (text or "").split(",")) if text else ()
    wrong = next((one for one in found if not _DEVICE.fullmatch(one)), None)
    if wrong is not None or len(set(found)) != len(found):
        raise UsageError(
            f"--devices {str(text)[:80]!r} is no list of different devices",
            hint="write --devices 0,1, or UUIDs as `nvidia-smi -L` lists them",
        )
    return found


def _secret(text: str) -> tuple[str, str]:
    name, _, path = text.partition("=")
    if not name.replace("-", "_").isidentifier() or not Path(path).is_file():
        raise UsageError(
            f"--secret {name[:60]!r} names no file", hint="write --secret NAME=FILE"
        )  # the text may be a credential: it is not repeated
    return name, str(Path(path).absolute())


@click.group()
def compose() -> None:
    """Deploy on this machine's Docker Engine, as a project of Docker Compose.

    One port, and servers behind it: an update starts the new ones beside the old
    ones, and no request is lost.

    \b
    Status: 0 done; 2 wrong arguments; 3 the image does not fit; 4 a server failed;
    66 no such project or image; 69 no Docker Engine answers.
    """


@compose.command()
@subject_options
@_wanted_options
@output_option
@format_option
def render(output: Path | None, output_format: str, **given: Any) -> None:
    """Print the compose file of IMAGE, and the files beside it.

    With --output they are written, and `docker compose up` in that directory starts them.

    \b
    packager deploy compose render docker:tiny:1 --output tiny
    """
    deployment, wanted = _take(given)
    show_rendered(ComposeDeployer().render(deployment, wanted), output, output_format)


@compose.command()
@subject_options
@_wanted_options
@format_option
def diff(output_format: str, **given: Any) -> None:
    """Show what `apply` would start or replace, and change nothing.

    \b
    packager deploy compose diff docker:tiny:2
    """
    deployment, wanted = _take(given)
    changes = compose_projects().diff(deployment, wanted)
    tell_findings(ComposeDeployer().check(deployment, wanted))
    show_changes(changes, output_format)


@compose.command()
@subject_options
@_wanted_options
@wait_options
@proof_options
@_through_option
@format_option
def apply(
    wait: bool,
    timeout_s: float,
    smoke: bool,
    measures: bool,
    through: Through,
    output_format: str,
    **given: Any,
) -> None:
    """Start IMAGE, or replace the servers of an earlier one while requests run.

    Doing it again changes nothing; after it was interrupted, it goes on.

    \b
    packager deploy compose apply docker:tiny:1 --wait --smoke
    packager deploy compose apply docker:tiny:2 --name tiny
    """
    subject = given["image"]
    deployment, wanted = _take(given)
    proof = Proof(
        deployment=deployment,
        where=_WHERE,
        subject=subject,
        smoke=smoke,
        measures=measures,
        output_format=output_format,
    )
    proof.check()
    live = compose_projects(through, timeout_s=timeout_s, say=note)
    tell_findings(live.check(deployment, wanted))
    applied = live.apply(deployment, wanted)
    if wait or proof.waits:
        _check_serving(deployment.name, live.status(deployment.name, wait_s=timeout_s))

    def ask(prompt: str, tokens: int) -> EndpointAnswer:
        return ask_endpoint(applied.address, prompt=prompt, max_tokens=tokens)

    proof.show(
        applied, ask, lambda: ProofMeasurement(name=applied.address, replicas=wanted.replicas)
    )


@compose.command()
@click.argument("name")
@wait_options
@format_option
def status(name: str, wait: bool, timeout_s: float, output_format: str) -> None:
    """Show the state of project NAME.

    With --wait it ends once every server answers, or one has failed.

    \b
    packager deploy compose status tiny --wait
    """
    found = compose_projects(say=note).status(name, wait_s=timeout_s if wait else 0.0)
    show_status(found, output_format)
    if wait:
        _check_serving(name, found)


@compose.command()
@click.argument("name")
@click.argument("body", metavar="FILE|-")
def invoke(name: str, body: str) -> None:
    """Send one request to project NAME and print its answer.

    \b
    packager deploy compose invoke tiny request.json
    """
    show_answer(compose_projects().invoke(name, read_body(body)))


@compose.command()
@click.argument("name")
@_through_option
@format_option
def delete(name: str, through: Through, output_format: str) -> None:
    """End project NAME: its servers, requests first, and its files.

    \b
    packager deploy compose delete tiny
    """
    changes = compose_projects(through, say=note).delete(name)
    forget_deployment(name, _WHERE, os.environ)
    show_changes(changes, output_format)


def _check_serving(name: str, found: DeployStatus) -> None:
    """Raise where a project does not serve after it was waited for."""
    if found.state == "absent":
        raise NotFound(f"there is no project {name!r}", hint="`packager deploy compose apply`")
    if found.state != "ready":
        raise SmokeFailed(
            f"project {name!r} does not serve: {found.reason or found.said}",
            hint="`docker logs` shows more; applying again starts it anew",
        )
