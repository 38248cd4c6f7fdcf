"""`packager doctor`."""

from __future__ import annotations

import os
from dataclasses import asdict

import click

from packager.cli.doctor.doctor import examine
from packager.cli.shared_options import format_option
from packager.cli.terminal import print_json, print_line
from packager.cli.wiring.settings import Settings, state_dir
from packager.cli.wiring.steps import gpus_here
from packager.cli.wiring.techniques import environments_for


@click.command()
@format_option
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
    if output_format == "json":
        print_json([asdict(check) for check in checks])
        return
    for check in checks:
        mark = "ok     " if check.status == "ok" else "missing"
        print_line(f"{mark}  {check.name}: {check.found}")
        if check.fix:
            print_line(f"         needed for {check.needed_for}")
            print_line(f"         fix: {check.fix}")
