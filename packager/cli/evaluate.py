"""`packager evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from packager import wiring
from packager.adapters.files import explain_disk_errors, write_atomically
from packager.cli.cache_options import cache_options, step_options, take_step_options
from packager.cli.options import format_option, gpus_option, threads_option
from packager.cli.progress import progress_options, shown_progress
from packager.cli.terminal import note, print_json, print_lines, warn
from packager.core.devices import GpuWish
from packager.core.quality import (
    ANSWER_TOKENS,
    EVALUATION_SAMPLES,
    EVALUATION_TOKENS,
    NOISE_TEXTS,
    PROMPTS,
    Evaluation,
)
from packager.core.samples import DEFAULT
from packager.core.text import json_text
from packager.jobs.evaluate import Evaluated
from packager.jobs.evaluate import evaluate as run_evaluation
from packager.reports.quality import quality_lines
from packager.reports.steps import duration

POSITIVE, COUNT = click.IntRange(1), click.IntRange(0)


@click.command()
@click.option("--base", required=True, metavar="MODEL", help="The checkpoint that is the measure.")
@click.option(
    "--candidate", required=True, metavar="MODEL", help="The one that was made of it, quantized."
)
@click.option(
    "--data",
    default=DEFAULT,
    show_default=True,
    metavar="DATA",
    help="Texts to tell both: a file, a directory, hf://datasets/….",
)
@click.option(
    "--samples", type=POSITIVE, default=EVALUATION_SAMPLES, show_default=True, metavar="N"
)
@click.option(
    "--max-tokens",
    type=click.IntRange(2),
    default=EVALUATION_TOKENS,
    show_default=True,
    metavar="N",
    help="Cut each to so many.",
)
@click.option(
    "--seed", type=COUNT, default=0, metavar="N", help="Decides which of the texts are taken."
)
@click.option(
    "--noise-texts",
    type=COUNT,
    default=NOISE_TEXTS,
    show_default=True,
    metavar="N",
    help="Compare the base with itself on so many.",
)
@click.option(
    "--prompts",
    type=COUNT,
    default=PROMPTS,
    show_default=True,
    metavar="N",
    help="Have both answer so many of the prompts.",
)
@click.option(
    "--answer-tokens", type=POSITIVE, default=ANSWER_TOKENS, show_default=True, metavar="N"
)
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
    data: str,
    samples: int,
    max_tokens: int,
    seed: int,
    noise_texts: int,
    prompts: int,
    answer_tokens: int,
    output: Path | None,
    gpus: GpuWish,
    threads: int | None,
    progress: str,
    quiet: bool,
    output_format: str,
    **given: Any,
) -> None:
    """Compare a quantized checkpoint with its base: perplexity, KL divergence, flips.

    Both are told the same texts, and answer the same prompts.  The noise is
    the base against itself: what is below it is no change.

    \b
    packager evaluate --base ./model --candidate ./model-awq --data texts.jsonl
    """
    asked = Evaluation(
        max_tokens=max_tokens,
        seed=seed,
        noise_texts=noise_texts,
        prompts=prompts,
        answer_tokens=answer_tokens,
    )
    texts = wiring.evaluation_texts(data, samples, seed)
    as_json = output_format == "json"
    with shown_progress(progress, quiet=quiet, as_json=as_json) as on_event:
        settings = wiring.Settings(
            **take_step_options(given),
            on_event=on_event,
            on_warning=warn,
        )
        tools = wiring.services_for(settings)
        done = run_evaluation(base, candidate, texts, asked, tools, gpus=gpus, threads=threads)
    if texts.complaint and not quiet:
        warn(texts.complaint)
    document = _document(done, base, candidate, data)
    if output is not None:
        with explain_disk_errors(output):
            write_atomically(output, (json_text(document) + "\n").encode())
    if as_json:
        print_json(document)
        return
    print_lines(quality_lines(done.report))
    if not quiet:
        note(_origin(done))


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
