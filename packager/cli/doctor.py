"""`packager doctor`."""

from __future__ import annotations

import os
from dataclasses import asdict

import click

from packager.cli.options import format_option
from packager.jobs.doctor import examine
from packager.reports.text import json_text
from packager.wiring import state_dir


@click.command()
@format_option
def doctor(output_format: str) -> None:
    """Say what this machine can do: engine, disk, logins, GPU, tools, each with its fix."""
    checks = examine(os.environ, state_dir(os.environ))
    if output_format == "json":
        click.echo(json_text([asdict(check) for check in checks]))
        return
    for check in checks:
        mark = "ok     " if check.status == "ok" else "missing"
        click.echo(f"{mark}  {check.name}: {check.found}")
        if check.fix:
            click.echo(f"         needed for {check.needed_for}")
            click.echo(f"         fix: {check.fix}")
