"""`packager plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from packager import pipeline, wiring
from packager.cli.options import format_option, make_request, request_options
from packager.reports.plan import plan_document, plan_text
from packager.reports.text import json_text


@click.command()
@request_options
@format_option
def plan(output_format: str, request_file: Path | None, **given: Any) -> None:
    """Decide how a model runs on an instance, without building anything.

    Prints tensor parallelism, memory per device, the shape and every finding.
    Ends with status 3 when no plan works.

    \b
    packager plan --model examples/tiny-llama --instance ml.g5.xlarge
    """
    request = make_request(request_file, **given)
    planned = pipeline.plan(request, wiring.tools_for(wiring.Settings()))
    document = plan_document(planned.plan)
    click.echo(json_text(document) if output_format == "json" else plan_text(planned.plan))
