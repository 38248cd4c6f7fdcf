"""`packager logs`."""

from __future__ import annotations

import json

import click

from packager.cli.run.containers import find_engine, find_run, log_lines
from packager.cli.shared_options import format_option
from packager.cli.terminal import print_json_text, print_line


@click.command()
@click.argument("name")
@click.option("--follow", "-f", is_flag=True, help="Print new lines until the run ends.")
@click.option(
    "--tail", type=click.IntRange(0), metavar="N", help="Begin with the last N lines; all of them."
)
@format_option
def logs(name: str, follow: bool, tail: int | None, output_format: str) -> None:
    """Print the log of a run's server.

    NAME is one of `packager ps`. With --format json each line is an object with
    its time.

    \b
    packager logs tiny-llama --tail 20 --follow
    """
    engine = find_engine()
    for line in log_lines(engine, find_run(engine, name), follow=follow, tail=tail):
        time, _, text = line.partition(" ")
        if output_format == "json":
            print_json_text(json.dumps({"time": time, "text": text}, ensure_ascii=False))
        else:
            print_line(text)
