"""`packager explain`."""

from __future__ import annotations

from dataclasses import asdict

import click

from packager.catalog.findings import FindingExplanation, explanations, find_explanation
from packager.cli.shared_options import format_option
from packager.cli.terminal import print_json, print_lines
from packager.core.reports.text import table_lines, wrapped


@click.command()
@click.argument("code", required=False)
@format_option
def explain(code: str | None, output_format: str) -> None:
    """Explain a finding: its meaning, why it matters and what to do; without CODE, list all.

    \b
    packager explain does-not-fit
    """
    if code is None:
        found = list(explanations().values())
        if output_format == "json":
            print_json([asdict(explanation) for explanation in found])
        else:
            rows = [(explanation.code, explanation.title) for explanation in found]
            print_lines(table_lines(("code", "what happened"), rows))
        return
    explanation = find_explanation(code)
    if output_format == "json":
        print_json(asdict(explanation))
    else:
        print_lines(_lines(explanation))


def _lines(explanation: FindingExplanation) -> list[str]:
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
    return lines
