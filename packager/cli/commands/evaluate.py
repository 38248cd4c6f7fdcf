"""`packager evaluate`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from packager.cli.commands.cache_options import cache_options, step_options, take_step_options
from packager.cli.field_options import options_from, take_fields
from packager.cli.options import gpus_option, threads_option
from packager.cli.progress import progress_options, shown_progress
from packager.cli.shared_options import format_option
from packager.cli.terminal import note, print_result, warn
from packager.cli.wiring.builds import services_for
from packager.cli.wiring.settings import Settings
from packager.cli.wiring.texts import evaluation_texts
from packager.core.errors import UsageError
from packager.core.files.atomic import explain_disk_errors, write_atomically
from packager.core.quality import EVALUATION_SAMPLES, Evaluation
from packager.core.reports.report import Lines, one_section
from packager.core.samples import DEFAULT
from packager.core.tasks import TaskOptions
from packager.core.text import json_text
from packager.optimize.evaluate.report import quality_lines
from packager.optimize.evaluate.run import Evaluated
from packager.optimize.evaluate.run import evaluate as run_evaluation
from packager.optimize.steps.report import duration


@click.command()
@click.option("--base", required=True, metavar="MODEL", help="Reference checkpoint.")
@click.option(
    "--candidate", required=True, metavar="MODEL", help="Quantized checkpoint to compare."
)
@click.option(
    "--data",
    default=DEFAULT,
    show_default=True,
    metavar="DATA",
    help="Texts to compare both on: a file, a directory, s3://…, hf://datasets/….",
)
@click.option(
    "--samples",
    type=click.IntRange(1),
    metavar="N",
    help=f"Number of texts to use, {EVALUATION_SAMPLES} by default, or of questions.",
)
@options_from(Evaluation)
@options_from(TaskOptions)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write the figures here, as JSON.",
)
@gpus_option
@threads_option
@cache_options
@step_options
@progress_options
@format_option
def evaluate(
    base: str,
    candidate: str,
    output: Path | None,
    progress: str,
    quiet: bool,
    output_format: str,
    **given: Any,
) -> None:
    """Compare a quantized checkpoint with its base: perplexity, KL divergence, flips.

    Both get the same texts and the same prompts.  The noise is
    the base against itself: a smaller difference is not a change.

    \b
    packager evaluate --base ./model --candidate ./model-awq --data texts.jsonl
    packager evaluate --base m:1 --candidate m:2 --tasks gsm8k.jsonl --min-recovery 0.97
    """
    asked, tasks = take_fields(Evaluation, given), take_fields(TaskOptions, given)
    data, count = given.pop("data"), given.pop("samples")
    as_json = output_format == "json"
    if tasks.tasks:
        _ask_tasks(base, candidate, tasks, count, output, given, quiet=quiet, as_json=as_json)
        return
    for flag in ("min_recovery", "adapter", "base_adapter"):
        if getattr(tasks, flag):
            words = f"--{flag.replace('_', '-')} is of --tasks alone"
            raise UsageError(words, hint="name questions with --tasks")
    texts = evaluation_texts(data, count or EVALUATION_SAMPLES, asked.seed)
    with shown_progress(progress, quiet=quiet, as_json=as_json) as on_event:
        settings = Settings(**take_step_options(given), on_event=on_event, on_warning=warn)
        services = services_for(settings)
        done = run_evaluation(
            base, candidate, texts, asked, services, services.read_quality, **given
        )
    if texts.complaint and not quiet:
        warn(texts.complaint)
    document = _document(done, base, candidate, data)
    if output is not None:
        with explain_disk_errors(output):
            write_atomically(output, (json_text(document) + "\n").encode())
    lines = Lines(tuple(quality_lines(done.report)), "")
    print_result(output_format, document, one_section("Quality", lines))
    if not quiet and not as_json:
        note(_origin(done))


def _ask_tasks(
    base: str,
    candidate: str,
    tasks: TaskOptions,
    count: int | None,
    output: Path | None,
    given: Mapping[str, Any],
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    from packager.cli.commands.evaluate_tasks import compare_servers, demand_recovery

    def say(line: str) -> None:
        if not (quiet or as_json):
            note(line)

    document, report = compare_servers(
        base, candidate, tasks, count=count, gpus=bool(given.get("gpus")), output=output,
        on_progress=say,
    )  # fmt: skip
    print_result("json" if as_json else "text", document, report)
    demand_recovery(document)


def _document(done: Evaluated, base: str, candidate: str, data: str) -> dict[str, Any]:
    return {
        "base": base,
        "candidate": candidate,
        "data": data,
        **done.report.model_dump(),
        "measurable": done.report.is_measurable,
        "versions": dict(done.outcome.result.versions),
        "key": done.outcome.key,
        "reused": done.outcome.reused,
    }


def _origin(done: Evaluated) -> str:
    if done.outcome.reused:
        return f"taken from the cache ({done.outcome.key[:12]})"
    return f"measured in {duration(done.outcome.result.seconds)}"
