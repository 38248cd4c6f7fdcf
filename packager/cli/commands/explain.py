"""`packager explain`."""

from __future__ import annotations

from dataclasses import asdict

import click

from packager.catalog.findings import FindingExplanation, explanations, find_explanation
from packager.cli.shared_options import format_option
from packager.cli.terminal import print_result
from packager.core.reports.report import Lines, Pair, Pairs, Report, one_section, plain_table


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
        rows = ((explanation.code, explanation.title) for explanation in found)
        report = one_section("Findings", plain_table(("code", "what happened"), rows))
        print_result(output_format, list(map(asdict, found)), report)
        return
    explanation = find_explanation(code)
    print_result(output_format, asdict(explanation), _report(explanation))


def _report(explanation: FindingExplanation) -> Report:
    parts = (
        Pair("means", explanation.means),
        Pair("matters", explanation.why),
        Pair("do", explanation.do),
        Pair("source", explanation.source),
        Pair("see", explanation.link),
    )
    title = f"{explanation.code}: {explanation.title}"
    return one_section(title, Lines((title, "")), Pairs(parts))
