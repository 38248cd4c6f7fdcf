"""`packager doctor`."""

from __future__ import annotations

import os
from dataclasses import asdict

import click

from packager.cli.doctor.doctor import doctor_report, examine, named_checks
from packager.cli.shared_options import format_option_of
from packager.cli.terminal import print_result
from packager.cli.wiring.settings import Settings, state_dir
from packager.cli.wiring.steps import gpus_here
from packager.cli.wiring.techniques import environments_for
from packager.core.errors import Unavailable


@click.command()
@click.argument("names", nargs=-1, metavar="[CHECK]...")
@format_option_of("json", "html")
def doctor(names: tuple[str, ...], output_format: str) -> None:
    """Check this machine: engine, disk, logins, GPU, tools, each with its fix.

    CHECK is what has to be there, such as docker-engine: only that is shown, and
    the command ends with status 69 where it is missing.

    \b
    packager doctor
    packager doctor docker-engine disk
    """
    settings = Settings()
    checks = examine(
        os.environ,
        state_dir(os.environ),
        gpus=gpus_here(settings),
        installed=environments_for(settings).installed(),
    )
    shown = named_checks(checks, names) if names else checks
    print_result(output_format, [asdict(check) for check in shown], doctor_report(shown))
    missing = [check for check in shown if check.status == "missing"]
    if names and missing:
        raise Unavailable(
            f"missing here: {', '.join(check.name for check in missing)}", hint=missing[0].fix
        )
