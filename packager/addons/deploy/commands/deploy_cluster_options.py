"""Options of deployments on a cluster of Kubernetes."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import Any, get_args

import click

from packager.addons.deploy.commands.deploy_options import (
    grace_option,
    patch_option,
    take_deployment,
    take_patch,
)
from packager.addons.deploy.kubernetes.client import ApiServer
from packager.addons.deploy.kubernetes.kubeconfig import find_access
from packager.addons.deploy.kubernetes.spec import (
    KubernetesSpec,
    Scaler,
    SecretKey,
    Storage,
    parse_version,
)
from packager.addons.deploy.mounted_adapters import parse_mounts
from packager.addons.deploy.wiring.mounts import find_mounts
from packager.cli.field_options import FiniteRange, Option, RenamedOption, SizeRange, TimeRange
from packager.cli.options import container_environment, env_option
from packager.core.capture.settings import SHARE
from packager.core.deployment import Deployment
from packager.core.errors import UsageError

namespace_option = click.option(
    "--namespace", metavar="NAME", help="Namespace. Default: the context's, or `default`."
)

ACCESS: tuple[Option, ...] = (
    click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Default: KUBECONFIG, ~/.kube/config, or the pod's service account.",
    ),
    click.option("--context", default="", metavar="NAME", help="Default: the current context."),
)

COMMON: tuple[Option, ...] = (
    namespace_option,
    click.option(
        "--kubernetes-version",
        "version",
        default="1.34",
        show_default=True,
        metavar="VERSION",
        help="Oldest version among API server and nodes, 1.31 to 1.37.",
    ),
    click.option(
        "--replicas",
        metavar="N",
        type=click.IntRange(1, 1000),
        default=1,
        show_default=True,
        help="At least.",
    ),
    env_option,
    click.option(
        "--env-from-secret",
        "secrets",
        multiple=True,
        metavar="NAME=SECRET/KEY",
        help="Variable of the server that a Secret of the cluster holds.",
    ),
    click.option(
        "--node-selector",
        multiple=True,
        metavar="KEY=VALUE",
        help="Label that nodes must have, beside that of the instance type.",
    ),
    click.option(
        "--pull-secret", default="", metavar="NAME", help="Secret with the registry's credentials."
    ),
    click.option(
        "--service-account", default="", metavar="NAME", help="Service account of the pods."
    ),
    click.option(
        "--claim",
        default="",
        metavar="NAME",
        help="PersistentVolumeClaim with the tree of the weights, for an image that has none.",
    ),
    patch_option,
    click.option(
        "--startup-budget",
        "budget_s",
        type=TimeRange(60, 86400, whole=True),
        metavar="TIME",
        help="Until a silent server is started anew. Default: predicted, with a quarter more.",
    ),
)

PODS: tuple[Option, ...] = (
    grace_option,
    click.option(
        "--shm-size",
        "shm_gib",
        cls=RenamedOption,
        earlier="--shm-gib",
        type=SizeRange(1 << 30, 1, 1024),
        metavar="SIZE",
        help="Size of /dev/shm. Default: 1 for each device.",
    ),
    click.option(
        "--weights-image",
        default="",
        metavar="IMAGE",
        help="View with the weights, mounted as an image volume (Kubernetes 1.33).",
    ),
    click.option(
        "--adapter",
        "adapters",
        multiple=True,
        metavar="NAME=IMAGE",
        help="Mount this over adapter NAME of the image: what `packager push --adapter-only` "
        "wrote, as an image volume (Kubernetes 1.33), or claim:CLAIM/PATH. Repeatable.",
    ),
    click.option(
        "--writable-root", is_flag=True, help="Leave the root file system of the server writable."
    ),
)

MOST = click.option(
    "--max-replicas",
    type=click.IntRange(0, 1000),
    default=0,
    metavar="N",
    help="At most, for an autoscaler.",
)

SCALING: tuple[Option, ...] = (
    MOST,
    click.option(
        "--scaler",
        type=click.Choice(get_args(Scaler)),
        default="none",
        show_default=True,
        help="What starts replicas when requests wait: HorizontalPodAutoscaler or KEDA.",
    ),
    click.option(
        "--queue-target",
        metavar="N",
        type=click.IntRange(1),
        default=5,
        show_default=True,
        help="Waiting requests of one replica, above which another is started.",
    ),
    click.option("--prometheus", default="", metavar="URL", help="Prometheus that KEDA asks."),
    click.option("--monitor", is_flag=True, help="Add a ServiceMonitor."),
    click.option("--prepull", is_flag=True, help="Add a DaemonSet that pulls the image ahead."),
    click.option(
        "--surge/--no-surge",
        default=True,
        show_default=True,
        help="Start the new pod of an update before the old one ends; needs a free node.",
    ),
)

CAPTURE: tuple[Option, ...] = (
    click.option(
        "--capture",
        default="",
        metavar="CLAIM",
        help="PersistentVolumeClaim to which a vLLM server writes requests and answers, as with "
        "`deploy compose --capture`. Default: nothing.",
    ),
    click.option(
        "--capture-share",
        type=FiniteRange(0, 1),
        default=SHARE,
        show_default=True,
        metavar="SHARE",
        help="Share of the conversations that is captured, each as a whole.",
    ),
)

KSERVE: tuple[Option, ...] = (
    MOST,
    click.option(
        "--storage",
        type=click.Choice(get_args(Storage)),
        default="container",
        show_default=True,
        help="Serve the image itself, or its weights as native OCI storage or modelcar.",
    ),
    click.option("--llm", is_flag=True, help="Make an LLMInferenceService."),
)

HYPERPOD: tuple[Option, ...] = (
    click.option("--region", default="", metavar="REGION", help="Region of the weights' bucket."),
)


def take_wanted(given: dict[str, Any]) -> tuple[Deployment, KubernetesSpec]:
    """Return the deployment that options name, and its desired state."""
    asked = dict(given)
    env = container_environment(asked.pop("env"))
    secrets = dict(_secret(one) for one in asked.pop("secrets"))
    labels = dict(_label(one) for one in asked.pop("node_selector"))
    version = parse_version(asked.pop("version"))
    shm_gib = asked.pop("shm_gib", None)
    patch = take_patch(asked.pop("patch"))
    asked["namespace"] = asked.pop("namespace") or "default"
    mounts = parse_mounts(asked.pop("adapters", ()))
    reach = {name: asked[name] for name in ("insecure_registries", "ca_file", "platform")}
    mine = {name: asked.pop(name) for name in KubernetesSpec.__slots__ if name in asked}
    deployment = take_deployment(asked)
    wanted = KubernetesSpec(
        **mine,
        patch=patch,
        version=version,
        env=env,
        secrets=secrets,
        node_selector=labels,
        shm_bytes=shm_gib << 30 if shm_gib else None,
        adapters=find_mounts(mounts, deployment, **reach),
    )
    return deployment, wanted


def open_server(given: dict[str, Any]) -> tuple[ApiServer, str]:
    """Remove what `ACCESS` gave; return the API server, and the namespace that is meant."""
    find = partial(
        find_access, os.environ, kubeconfig=given.pop("kubeconfig"), context=given.pop("context")
    )
    access = find()
    given["namespace"] = given["namespace"] or access.namespace or "default"
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", given["namespace"]):
        raise UsageError(
            f"{given['namespace'][:60]!r} is not the name of a namespace",
            hint="use lower case letters, digits and hyphens",
        )
    return ApiServer(access, renew=find), given["namespace"]


def take_name(name: str) -> str:
    """Return a deployment's name; raise `UsageError` where it can be none."""
    if not re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", name):
        raise UsageError(
            f"{name[:60]!r} is not the name of a deployment",
            hint="use lower case letters, digits and hyphens, a letter first",
        )
    return name


def _secret(text: str) -> tuple[str, SecretKey]:
    name, equals, rest = text.partition("=")
    secret, slash, key = rest.partition("/")
    if not (name and equals and secret and slash and key):
        raise UsageError(
            f"--env-from-secret of {name[:60]!r} names no key of a Secret",  # never the value
            hint="write NAME=SECRET/KEY, such as HF_TOKEN=hub/token",
        )
    return name, SecretKey(secret, key)


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise UsageError(f"--node-selector {text[:80]!r} is no label", hint="write KEY=VALUE")
    return key, value
