"""`packager draft train`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from packager.cli.commands.cache_options import cache_options, step_options, take_step_options
from packager.cli.commands.train_options import samples_option
from packager.cli.field_options import options_from, take_fields
from packager.cli.options import gpus_option, threads_option
from packager.cli.progress import progress_options, shown_progress
from packager.cli.shared_options import format_option
from packager.cli.terminal import note, print_result, warn
from packager.cli.wiring.builds import services_for
from packager.cli.wiring.heads import head_services_for
from packager.cli.wiring.settings import Settings
from packager.cli.wiring.texts import training_texts
from packager.core.samples import DEFAULT
from packager.core.training import HeadTraining, TrainingTexts
from packager.optimize.drafts.train.report import training_document, training_report
from packager.optimize.drafts.train.run import train_head


@click.command()
@click.option("--model", required=True, metavar="MODEL", help="Target model of the head.")
@options_from(HeadTraining)
@click.option(
    "--data",
    default=DEFAULT,
    show_default=True,
    metavar="DATA",
    help="Texts like those that will be served: a file, a directory, s3://…, hf://datasets/….",
)
@samples_option
@click.option(
    "--held-out",
    metavar="DATA",
    help="Held-out texts to measure the head with; by default some of --data.",
)
@click.option(
    "--broken",
    type=click.Choice(("skip", "refuse")),
    default="skip",
    show_default=True,
    help="What to do when rows of the data cannot be parsed.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Output directory of the head; replaces an earlier head there when complete.",
)
@click.option(
    "--from",
    "continue_from",
    metavar="REF",
    help="Train this head on, instead of a new one: a directory, org/name, hf://… or s3://….",
)
@gpus_option
@threads_option
@click.option(
    "--restart", is_flag=True, help="Delete the partial results of an interrupted training."
)
@cache_options
@step_options
@progress_options
@format_option
def train(
    model: str, output: Path, progress: str, quiet: bool, output_format: str, **given: Any
) -> None:
    """Train an EAGLE-3 head, Medusa heads, or the MTP head that the model has.

    The model answers the data's prompts, the head learns to predict the answers, and texts
    kept aside say how many of its proposals the model would accept.  An interrupted training
    goes on where it was when the same command is run again.

    \b
    packager draft train --model ./model --data chats.jsonl --method eagle3 --output ./head
    packager build --model ./model --draft eagle3:./head --instance ml.g5.xlarge --output …
    """
    asked = take_fields(HeadTraining, given)
    heads = head_services_for(output)
    texts = training_texts(
        given.pop("data"),
        count=given.pop("samples"),
        held_out=given.pop("held_out"),
        seed=asked.seed,
        broken=given.pop("broken"),
    )
    as_json = output_format == "json"
    with shown_progress(progress, quiet=quiet, as_json=as_json) as on_event:
        settings = Settings(
            **take_step_options(given),
            restart=given.pop("restart"),
            on_event=on_event,
            on_warning=warn,
        )
        done = train_head(model, texts, asked, services_for(settings), heads, **given)
    if not quiet:
        _warn_of_broken(texts)
        for finding in done.findings:
            note(f"{finding.severity}: {finding.message}")
    results = (done, texts, model, output)
    print_result(output_format, training_document(*results), training_report(*results))


def _warn_of_broken(texts: TrainingTexts) -> None:
    for found in {texts.train.source: texts.train, texts.held_out.source: texts.held_out}.values():
        if found.complaint:
            warn(found.complaint)
