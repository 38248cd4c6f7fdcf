"""`packager ps`."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from packager.cli.run.containers import find_engine, list_runs
from packager.cli.run.report import run_document, runs_report
from packager.cli.run.serving import answers
from packager.cli.shared_options import format_option
from packager.cli.terminal import note, print_result


@click.command()
@format_option
def ps(output_format: str) -> None:
    """List the models that `packager run` started on this machine.

    A run that ended by itself stays listed, with the status it ended with,
    until `packager stop` removes it.

    \b
    packager ps
    """
    runs = [(run, answers(run.url)) for run in list_runs(find_engine())]
    documents = [run_document(run, answers=ready) for run, ready in runs]
    if runs or output_format == "json":
        print_result(output_format, documents, runs_report(runs, datetime.now(UTC)))
    else:
        note("nothing runs: `packager run MODEL` starts a model")
