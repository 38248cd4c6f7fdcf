"""Options of an endpoint of SageMaker."""

from __future__ import annotations

from typing import Any, get_args

import click

from packager.addons.deploy.commands.deploy_options import patch_option, take_deployment, take_patch
from packager.addons.deploy.sagemaker.adapters import read_adapters
from packager.addons.deploy.sagemaker.checks import used_region
from packager.addons.deploy.sagemaker.spec import Routing, SageMakerSpec, Update
from packager.addons.deploy.wiring.deploy import DeployOptions, find_deployment
from packager.cli.field_options import (
    FiniteRange,
    Option,
    RenamedOption,
    SizeRange,
    TimeRange,
    add_options,
)
from packager.cli.wiring.settings import Settings
from packager.core.deployment import Deployment
from packager.core.errors import UsageError
from packager.core.image import Platform


def take_wanted(given: dict[str, Any]) -> tuple[Deployment, SageMakerSpec, str]:
    """Return the deployment that options name, its desired state, and the region."""
    region = given.pop("region") or ""
    tags = given.pop("tag")
    wrong = next((one for one in tags if "=" not in one), None)
    if wrong is not None:
        raise UsageError(f"--tag {wrong[:60]!r} has no value", hint="write --tag NAME=VALUE")
    pools = given.pop("pool")
    settings = Settings(insecure_registries=given["insecure_registries"], ca_file=given["ca_file"])
    platform: Platform = given["platform"]
    others = tuple(
        find_deployment(
            one,
            platform,
            settings,
            DeployOptions(name=given["name"] or "", bytes_s=given["bandwidth"]),
        )
        for one in pools
    )
    deployment = take_deployment(given)
    wanted = SageMakerSpec(
        tags=dict(one.split("=", 1) for one in tags),
        pools=others,
        update=given.pop("update_policy"),
        adapters=read_adapters(given.pop("adapters")),
        patch=take_patch(given.pop("patch")),
        **given,
    )
    return deployment, wanted, region or used_region(deployment, wanted)


_WANTED: tuple[Option, ...] = (
    click.option(
        "--role-arn",
        required=True,
        metavar="ARN",
        help="IAM role that SageMaker takes to pull the image and to read the weights.",
    ),
    click.option(
        "--region", metavar="REGION", help="AWS region. Default: the image's, or boto3's."
    ),
    click.option(
        "--instances",
        type=click.IntRange(1, 1000),
        default=1,
        show_default=True,
        metavar="N",
        help="Instances at first.",
    ),
    click.option(
        "--min-instances", type=click.IntRange(0, 1000), metavar="N", help="Least instances."
    ),
    click.option(
        "--max-instances",
        type=click.IntRange(1, 1000),
        metavar="N",
        help="Most instances; more than there are make them scale.",
    ),
    click.option(
        "--target-requests",
        "target",
        type=FiniteRange(0, min_open=True, max=10000),
        metavar="N",
        help="Requests at once at which there is one more. Default: 70 % of the planned batch.",
    ),
    click.option(
        "--ami", metavar="NAME", help="InferenceAmiVersion. Default: the one of the image's CUDA."
    ),
    click.option(
        "--volume-size",
        "volume_gb",
        cls=RenamedOption,
        earlier="--volume-gb",
        type=SizeRange(10**9, 1, 512),
        metavar="SIZE",
        help="Disk of instances that have none. Default: twice the image.",
    ),
    click.option(
        "--startup-timeout",
        "health_s",
        type=TimeRange(60, 3600, whole=True),
        metavar="TIME",
        help="Time until /ping answers. Default: one and a half times the predicted time.",
    ),
    click.option(
        "--download-timeout",
        "download_s",
        type=TimeRange(60, 3600, whole=True),
        metavar="TIME",
        help="Time for mounted weights. Default: from their size.",
    ),
    click.option(
        "--routing",
        type=click.Choice(get_args(Routing)),
        default="least-outstanding",
        show_default=True,
        help="Instance that a request goes to.",
    ),
    click.option(
        "--capture", "capture_uri", default="", metavar="S3_URI", help="Keep requests here."
    ),
    click.option(
        "--capture-percent",
        type=click.IntRange(1, 100),
        default=100,
        show_default=True,
        metavar="N",
        help="Share of requests that is kept.",
    ),
    click.option("--kms-key", default="", metavar="KEY", help="KMS key of the volumes."),
    click.option(
        "--subnet", "subnets", multiple=True, metavar="ID", help="Subnet of a VPC. Repeatable."
    ),
    click.option(
        "--security-group",
        "security_groups",
        multiple=True,
        metavar="ID",
        help="Security group in the VPC. Repeatable.",
    ),
    click.option("--isolated", is_flag=True, help="No network inside the container."),
    click.option("--metrics", is_flag=True, help="Scrape the server's metrics into CloudWatch."),
    click.option(
        "--components",
        is_flag=True,
        help="Deploy as an inference component, several of which share instances.",
    ),
    click.option(
        "--copies",
        type=click.IntRange(0, 1000),
        default=1,
        show_default=True,
        metavar="N",
        help="Copies of the component.",
    ),
    click.option(
        "--adapter",
        "adapters",
        multiple=True,
        metavar="NAME=S3_URI",
        help="LoRA adapter (.tar.gz) as a component on this one. Repeatable.",
    ),
    click.option(
        "--update",
        "update_policy",
        type=click.Choice(get_args(Update)),
        default="all-at-once",
        show_default=True,
        help="How requests move to another image.",
    ),
    click.option(
        "--update-wait",
        "wait_s",
        type=TimeRange(0, 3600, whole=True),
        default=60,
        show_default=True,
        metavar="TIME",
        help="Time between the steps of an update.",
    ),
    click.option(
        "--rollback-alarm",
        "alarms",
        multiple=True,
        metavar="NAME",
        help="Alarm of CloudWatch that takes an update back. Repeatable.",
    ),
    patch_option,
    click.option("--tag", multiple=True, metavar="NAME=VALUE", help="Tag of all. Repeatable."),
    click.option(
        "--pool",
        multiple=True,
        metavar="IMAGE|RECORD",
        help="The model's image for another instance type, used when the first is sold out. "
        "Repeatable; preferred first.",
    ),
)

wanted_options = add_options(_WANTED)  # those of `SageMakerSpec`; see `take_wanted`
