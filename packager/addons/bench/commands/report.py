"""`packager report`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import click

from packager.addons.bench.decision import Goal
from packager.addons.bench.history import history_sections
from packager.addons.bench.merge import merge
from packager.addons.bench.reading import HISTORY_SUFFIX, read_benchmark, read_history
from packager.addons.bench.report import bench_report
from packager.cli.terminal import print_result
from packager.core.command_line import command_text
from packager.core.errors import UsageError
from packager.core.files.atomic import explain_disk_errors, write_atomically
from packager.core.reports.page import report_html
from packager.core.reports.text import report_text
from packager.core.text import escape_text, json_text


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--goal",
    type=click.Choice(("cost", "throughput", "latency")),
    help="What the best variant is best for; cost where every load has a price, else throughput.",
)
@click.option(
    "--mixed",
    is_flag=True,
    help="Show benchmarks of different requests side by side; nothing is compared.",
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(("text", "json", "html")),
    default="text",
    show_default=True,
    help="How to print the report.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the report to FILE, too: a page, JSON or text by its ending .html, .json or .txt.",
)
def report(
    files: tuple[str, ...],
    goal: str | None,
    mixed: bool,
    output_format: str,
    output: Path | None,
) -> None:
    """Show and compare benchmarks of FILEs.

    FILE is the report of a benchmark (bench.json, startup.json), a directory that holds one,
    AIPerf's profile_export_aiperf.json, what `vllm bench serve` or a job saved, or a build
    record; s3://BUCKET/KEY reads it from a bucket.  FILE.jsonl is a history of `bench --history`.
    The variants of all files stand side by side; the first one is what the others are compared
    with.  Benchmarks of different requests are refused.

    \b
    packager report before.json after.json --format html > page.html
    """
    histories = {file: read_history(file) for file in files if file.endswith(HISTORY_SUFFIX)}
    read = {file: histories.get(file) or [read_benchmark(file)] for file in files}
    found = merge([one for file in files for one in read[file]], mixed=mixed)
    chosen = cast("Goal | None", goal)
    form = form_of(output) if output else ""
    options = [*(("--goal", goal) if goal else ()), *(("--mixed",) if mixed else ())]

    document = found.model_dump(mode="json", exclude_none=True)
    made = bench_report(
        found,
        chosen,
        sources=tuple(Path(one).name if one in histories else read[one][0].name for one in files),
        command=command_text(("packager", "report", *files, *options, "--format", "html")),
    )
    runs = tuple(one for several in histories.values() for one in several)
    made = replace(made, sections=(*history_sections(runs), *made.sections))

    def written(form: str) -> str:
        if form == "json":
            return json_text(document)
        return report_text(made) if form == "text" else report_html(made)

    if output:
        with explain_disk_errors(output):
            write_atomically(output, (escape_text(written(form).rstrip("\n")) + "\n").encode())
    print_result(output_format, document, made)


def form_of(output: Path) -> str:
    """Return the form of a report by the ending of its file; raise `UsageError` for another."""
    forms = {".html": "html", ".json": "json", ".txt": "text"}
    found = forms.get(output.suffix.lower())
    if found is None:
        raise UsageError(
            f"--output {str(output)!r} ends like no form of a report",
            hint="name a file that ends with .html, .json or .txt",
        )
    return found
