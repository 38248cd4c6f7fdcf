"""`packager doctor`."""

from __future__ import annotations

import os
from dataclasses import asdict

import click

from packager.cli.doctor.doctor import doctor_report, examine
from packager.cli.shared_options import format_option_of
from packager.cli.terminal import print_result
from packager.cli.wiring.settings import Settings, state_dir
from packager.cli.wiring.steps import gpus_here
from packager.cli.wiring.techniques import environments_for


@click.command()
@format_option_of("json", "html")
def doctor(output_format: str) -> None:
    """Check this machine: engine, disk, logins, GPU, tools, each with its fix.

    \b
    packager doctor
    """
    settings = Settings()
    checks = examine(
        os.environ,
        state_dir(os.environ),
        gpus=gpus_here(settings),
        installed=environments_for(settings).installed(),
    )
    print_result(output_format, [asdict(check) for check in checks], doctor_report(checks))
