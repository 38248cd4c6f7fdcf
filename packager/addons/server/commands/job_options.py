"""Options of commands that make jobs of documents of the SageMaker API."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from packager.addons.server.sagemaker.gates import ALL, GATES, USUAL, gate_text, parse_gates
from packager.addons.server.sagemaker.jumpstart import jumpstart_of
from packager.addons.server.sagemaker.settings import ACCOUNT, JobSettings
from packager.cli.commands.train_options import train_option, training_words
from packager.cli.field_options import add_options
from packager.cli.options import request_fields
from packager.cli.shared_options import Command
from packager.cli.wiring.settings import parse_output
from packager.cli.wiring.steps import check_jobs_executor
from packager.core.documents import shorten
from packager.core.errors import NotFound, UsageError
from packager.core.references import LayoutTarget
from packager.models.mapped import parse_mapped, standing_file

_REGION = re.compile(r"[a-z]{2,8}(?:-[a-z]{2,16}){1,3}-[0-9]{1,2}")
_ACCOUNT = re.compile(r"[0-9]{12}")
_NAME = "job-name"  # placeholder for a job's name while an address is checked


def job_options(command: Command) -> Command:
    """Add the options of `JobSettings`; pass their values to `job_settings`."""
    made: Command = add_options(_OPTIONS)(command)
    return made


def job_settings(given: dict[str, Any]) -> JobSettings:
    """Remove the options of `job_options` from a command's; raises `UsageError`."""
    images = given.pop("images") or ""
    region, account = given.pop("region"), given.pop("account")
    if images:
        parse_output(images)
        target = parse_output(f"{images}:{_NAME}")
        if isinstance(target, LayoutTarget):  # jobs run in directories of their own
            images = LayoutTarget.at(target.directory).text
    if not _REGION.fullmatch(region):
        raise UsageError(f"invalid region {shorten(region, 40)}", hint="such as us-east-1")
    if not _ACCOUNT.fullmatch(account):
        raise UsageError(f"invalid account {shorten(account, 40)}", hint="give 12 digits")
    executor: Any = given.pop("executor") or "local"
    address = given.pop("address")
    check_jobs_executor(executor, address or "", os.environ)
    return JobSettings(
        region=region,
        account=account,
        instance=given.pop("instance"),
        images=images,
        base=given.pop("base"),
        executor=executor,
        address=address,
        datasets=_datasets(given.pop("datasets", ())),
        training=training_words(given.pop("train_options")),
        measures=not given.pop("no_measure"),
        measured_data=_data_place(given.pop("measure_data"), "--measure-data"),
        gate=given.pop("gate"),
        jumpstart=jumpstart_of(parse_mapped(given.pop("jumpstart"), standing_file(os.environ))),
    )


def _checked_gates(_: click.Context, __: click.Parameter, text: str) -> str:
    return gate_text(parse_gates(text)) if text else ""


gate_option = click.option(
    "--gate",
    is_flag=False,
    flag_value=USUAL,
    default="",
    callback=_checked_gates,
    metavar="[FIGURE[=LOSS],...]",
    help=f"Fail a job whose result lost more of a figure than its interval leaves open: "
    f"{', '.join(GATES)}, or {ALL}; {USUAL} without any.",
)

dataset_option = click.option(
    "--dataset",
    "datasets",
    multiple=True,
    metavar="NAME=DATA",
    help="What is read where a workload names the public data set NAME, such as "
    "sharegpt=FILE. Repeatable.",
)


def _datasets(given: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return the names of public data sets with their addresses; raises `UsageError`."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, place = text.partition("=")
        if not (name and equals and place) or name in found:
            raise UsageError(
                f"--dataset {shorten(text, 80)} is not NAME=DATA, or a name twice",
                hint="write --dataset sharegpt=sharegpt.jsonl",
            )
        found[name] = _data_place(place, "--dataset")
    return tuple(found.items())


def _data_place(place: str, option: str) -> str:
    """Return where data are, a path absolute: jobs run elsewhere; raises `NotFound`."""
    if not place or "://" in place or place.startswith("manifest:"):
        return place
    path = Path(place).absolute()
    if not path.exists():
        raise NotFound(
            f"there are no data at {shorten(place, 200)}", hint=f"name a file in {option}"
        )
    return str(path)


_OPTIONS: tuple[Callable[[Command], Command], ...] = (
    click.option(
        "--instance",
        metavar="TYPE",
        help="Build for this in place of what a job names, such as `local`.",
    ),
    click.option(
        "--images",
        metavar="PLACE",
        help="Where images go, tagged with the job's name: docker:NAME or HOST/REPOSITORY.",
    ),
    request_fields("base"),
    request_fields("executor"),
    request_fields("address"),
    train_option,
    click.option(
        "--no-measure",
        is_flag=True,
        help="Do not put the model under load, before and after, at the end of a job.",
    ),
    click.option(
        "--measure-data",
        default="",
        metavar="DATA",
        help="Prompts of that load: a file, a directory, s3://…, hf://datasets/…; made ones by "
        "default.",
    ),
    click.option(
        "--jumpstart",
        multiple=True,
        metavar="ID=PLACE|FILE",
        help="Where a model of JumpStart is: s3://BUCKET/PREFIX or a directory; or a file of such. "
        "Repeatable.",
    ),
    gate_option,
    click.option(
        "--region",
        default="us-east-1",
        show_default=True,
        help="Region in ARNs, and of prices.",
    ),
    click.option(
        "--account", default=ACCOUNT, show_default=True, metavar="DIGITS", help="Account in ARNs."
    ),
)
