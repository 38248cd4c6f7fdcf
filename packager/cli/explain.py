"""`packager explain`."""

from __future__ import annotations

from dataclasses import asdict

import click

from packager.catalog.findings import Explanation, explanations, find_explanation
from packager.cli.options import format_option
from packager.reports.text import json_text, table_lines, wrapped


@click.command()
@click.argument("code", required=False)
@format_option
def explain(code: str | None, output_format: str) -> None:
    """Say what a finding means, why it matters and what to do; without CODE, list them.

    \b
    packager explain does-not-fit
    """
    if code is None:
        found = list(explanations().values())
        if output_format == "json":
            click.echo(json_text([asdict(explanation) for explanation in found]))
        else:
            rows = [(explanation.code, explanation.title) for explanation in found]
            click.echo("\n".join(table_lines(("code", "what happened"), rows)))
        return
    explanation = find_explanation(code)
    text = json_text(asdict(explanation)) if output_format == "json" else _text(explanation)
    click.echo(text)


def _text(explanation: Explanation) -> str:
    parts = [
        ("means", explanation.means),
        ("matters", explanation.why),
        ("do", explanation.do),
        ("source", explanation.source),
        ("see", explanation.link),
    ]
    lines = [f"{explanation.code}: {explanation.title}", ""]
    for label, text in parts:
        if text:
            lines += wrapped(label, text)
    return "\n".join(lines)
