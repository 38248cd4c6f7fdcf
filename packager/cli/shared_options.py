"""Options that several commands share and that need little to be there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from packager.core.errors import UsageError
from packager.core.image import Platform
from packager.core.platforms import host_platform
from packager.core.units import parse_rate

if TYPE_CHECKING:
    from packager.core.measurement import MeasuredRun

Command = TypeVar("Command", bound=Callable[..., Any])

catalog_option = click.option(
    "--catalog",
    "catalog_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Your own catalog rows, in TOML; they win over shipped ones.",
)


measured_option = click.option(
    "--measured",
    "measured_files",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE|TEXT",
    help="Results of a benchmark of the model, or one point such as 'TPOT 17.9 ms at 16, 8xB200': "
    "predictions are corrected by them (repeatable).",
)


def load_measured(files: tuple[Path, ...]) -> tuple[MeasuredRun, ...]:
    """Read the files and texts of `measured_option`; raise `UsageError` for an invalid one."""
    if not files:
        return ()
    from packager.estimate.performance.measurements import load_measurements

    return tuple(map(load_measurements, files))


def _platform(context: click.Context, parameter: click.Parameter, text: str) -> Platform:  # noqa: ARG001
    return parse_platform(text)


def parse_platform(text: str) -> Platform:
    """Return the platform of a text such as `linux/arm64`; raise `UsageError` for another."""
    system, slash, architecture = text.partition("/")
    if not (system and slash and architecture) or "/" in architecture:
        raise UsageError(f"--platform {text!r} is not OS/ARCHITECTURE", hint="such as linux/arm64")
    return Platform(system, architecture)


def take_rate(
    context: click.Context,  # noqa: ARG001
    parameter: click.Parameter,  # noqa: ARG001
    text: str | None,
) -> float | None:
    """Return an option's value in bytes per second; raise `UsageError` for an invalid rate."""
    try:
        return None if text is None else parse_rate(text)
    except ValueError as error:
        what, _, how = str(error).partition("; ")
        raise UsageError(what, hint=how) from error


def registry_options(command: Command) -> Command:
    """Add the options of commands that connect to registries."""
    insecure = click.option(
        "--insecure-registry",
        "insecure_registries",
        multiple=True,
        metavar="HOST[:PORT]",
        help="Use plain HTTP for this registry. Not needed for localhost.",
    )
    authority = click.option(
        "--ca-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Trust registries with certificates of this authority, too; loopback then needs TLS.",
    )
    return insecure(authority(command))


def _keep_policy(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Keep what one of both options says; either of them has the command hold a policy."""
    from packager.cli.wiring.settings import CHOSEN_POLICY, PolicyChoice

    said = context.meta.setdefault("packager.policy", {})
    said[parameter.name] = value
    file, skipped = said.get("policy_file"), bool(said.get("no_policy"))
    if file and skipped:
        raise UsageError("--policy and --no-policy exclude each other", hint="leave one out")
    token = CHOSEN_POLICY.set(PolicyChoice(is_enforced=True, file=file, is_skipped=skipped))
    context.call_on_close(lambda: CHOSEN_POLICY.reset(token))


def policy_options(command: Command) -> Command:
    """Add the options of commands that hold images and models to a policy."""
    file = click.option(
        "--policy",
        "policy_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        expose_value=False,
        callback=_keep_policy,
        help="Use only what this policy lets pass; by default your own, where there is one.",
    )
    none = click.option(
        "--no-policy",
        is_flag=True,
        expose_value=False,
        callback=_keep_policy,
        help="Skip the policy this once, which is recorded.",
    )
    return file(none(command))


def image_options(command: Command) -> Command:
    """Add the options of commands that open images."""
    platform = click.option(
        "--platform",
        default=str(host_platform()),
        show_default=True,
        callback=_platform,
        metavar="OS/ARCH",
        help="Platform of the image, where a name has several.",
    )
    return platform(registry_options(command))


def format_option_of(
    *formats: str, help: str = "Output format on stdout."
) -> Callable[[Command], Command]:
    """Return a decorator that adds --format to a command."""
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(("text", *formats)),
        default="text",
        show_default=True,
        help=help,
    )


format_option = format_option_of("json")
