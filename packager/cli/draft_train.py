"""`packager draft train`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import click

from packager import wiring
from packager.cli.cache_options import cache_options, step_options, take_step_options
from packager.cli.options import FiniteRange, format_option, gpus_option, threads_option
from packager.cli.progress import progress_options, shown_progress
from packager.cli.terminal import note, print_json, print_lines, warn
from packager.core.devices import GpuWish
from packager.core.samples import DEFAULT
from packager.core.training import (
    ANSWER_TOKENS,
    BATCH_TOKENS,
    EPOCHS,
    MAX_TOKENS,
    Answers,
    HeadTraining,
    Method,
    TrainingTexts,
)
from packager.errors import UsageError
from packager.jobs.train_draft import train_head
from packager.reports.training import training_document, training_lines

_MOST = 2**31 - 1  # what trainers take for a number, and seeds
POSITIVE, COUNT = click.IntRange(1, _MOST), click.IntRange(0, _MOST)
TRAINERS = ("speculators", "specforge")


@click.command()
@click.option("--model", required=True, metavar="MODEL", help="That the head proposes tokens for.")
@click.option(
    "--method", type=click.Choice(get_args(Method)), required=True, help="Which kind of head."
)
@click.option(
    "--data",
    default=DEFAULT,
    show_default=True,
    metavar="DATA",
    help="Texts like those that will be served: a file, a directory, hf://datasets/….",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Where the head goes; an earlier head there is replaced when the new one is whole.",
)
@click.option(
    "--from",
    "continue_from",
    metavar="REF",
    help="Train this head on, instead of a new one: a directory, org/name, hf://… or s3://….",
)
@click.option(
    "--answers",
    type=click.Choice(get_args(Answers)),
    default="model",
    show_default=True,
    help="Learn from the model's own answers to the data's prompts, or from those in the data.",
)
@click.option(
    "--answer-tokens", type=POSITIVE, default=ANSWER_TOKENS, show_default=True, metavar="N"
)
@click.option(
    "--temperature",
    type=FiniteRange(0),
    default=0.0,
    show_default=True,
    metavar="T",
    help="Of the model's answers; 0 takes the likeliest token.",
)
@click.option(
    "--samples", type=POSITIVE, metavar="N", help="Take so many of the texts; all if none."
)
@click.option(
    "--held-out",
    metavar="DATA",
    help="Texts to measure the head with; if none, some of --data are kept aside.",
)
@click.option(
    "--broken",
    type=click.Choice(("skip", "refuse")),
    default="skip",
    show_default=True,
    help="What to do when rows of the data are no samples.",
)
@click.option(
    "--speculative-tokens",
    type=POSITIVE,
    metavar="N",
    help="Tokens that it learns to propose at a time, 3 if none; as many Medusa heads.",
)
@click.option("--layers", type=POSITIVE, metavar="N", help="Of the head, or of each Medusa head.")
@click.option(
    "--aux-layers",
    metavar="N,N,N",
    help="Layers of the model that an EAGLE-3 head reads; 2,n/2,n-3 if none.",
)
@click.option(
    "--draft-vocab-size",
    type=POSITIVE,
    metavar="N",
    help="Have an EAGLE-3 head propose from the N likeliest tokens only.",
)
@click.option("--epochs", type=POSITIVE, default=EPOCHS, show_default=True, metavar="N")
@click.option("--max-steps", type=POSITIVE, metavar="N", help="End after so many steps.")
@click.option("--learning-rate", type=FiniteRange(0, min_open=True), metavar="X")
@click.option(
    "--batch-tokens",
    type=POSITIVE,
    default=BATCH_TOKENS,
    show_default=True,
    metavar="N",
    help="Positions that one step learns from.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(8, _MOST),
    default=MAX_TOKENS,
    show_default=True,
    metavar="N",
    help="Cut each text to so many.",
)
@click.option("--seed", type=COUNT, default=0, show_default=True, metavar="N")
@click.option(
    "--trainer",
    type=click.Choice(TRAINERS),
    default=TRAINERS[0],
    show_default=True,
    help="Of EAGLE-3 heads. specforge is slow without GPUs; heads of both serve everywhere.",
)
@gpus_option
@threads_option
@click.option("--restart", is_flag=True, help="Forget what an interrupted training left.")
@cache_options
@step_options
@progress_options
@format_option
def train(
    model: str,
    method: Method,
    data: str,
    output: Path,
    continue_from: str | None,
    answers: Answers,
    answer_tokens: int,
    temperature: float,
    samples: int | None,
    held_out: str | None,
    broken: Any,
    speculative_tokens: int | None,
    layers: int | None,
    aux_layers: str | None,
    draft_vocab_size: int | None,
    epochs: int,
    max_steps: int | None,
    learning_rate: float | None,
    batch_tokens: int,
    max_tokens: int,
    seed: int,
    trainer: str,
    gpus: GpuWish,
    threads: int | None,
    restart: bool,
    progress: str,
    quiet: bool,
    output_format: str,
    **given: Any,
) -> None:
    """Train an EAGLE-3 head or Medusa heads for a model.

    The model answers the data's prompts, the head learns to foresee the answers, and texts
    kept aside say how many of its proposals the model would accept.  An interrupted training
    goes on where it was when the same command is run again.

    \b
    packager draft train --model ./model --data chats.jsonl --method eagle3 --output ./head
    packager build --model ./model --draft eagle3:./head --instance ml.g5.xlarge --output …
    """
    asked = HeadTraining(
        method=method,
        trainer=trainer,
        speculative_tokens=speculative_tokens or 0,
        layers=layers or 0,
        aux_layers=_layers(aux_layers),
        draft_vocab_size=draft_vocab_size or 0,
        epochs=epochs,
        max_steps=max_steps or 0,
        learning_rate=learning_rate or 0.0,
        batch_tokens=batch_tokens,
        max_tokens=max_tokens,
        seed=seed,
        answers=answers,
        answer_tokens=answer_tokens,
        temperature=temperature,
    )
    doers = wiring.head_tools_for(output)
    texts = wiring.training_texts(data, count=samples, held_out=held_out, seed=seed, broken=broken)
    as_json = output_format == "json"
    with shown_progress(progress, quiet=quiet, as_json=as_json) as on_event:
        settings = wiring.Settings(
            **take_step_options(given),
            restart=restart,
            on_event=on_event,
            on_warning=warn,
        )
        done = train_head(
            model,
            texts,
            asked,
            wiring.services_for(settings),
            doers,
            continue_from=continue_from,
            gpus=gpus,
            threads=threads,
        )
    if not quiet:
        _warn_of_broken(texts)
        for finding in done.findings:
            note(f"{finding.severity}: {finding.message}")
    if as_json:
        print_json(training_document(done, texts, model, output))
        return
    print_lines(training_lines(done, texts, model, output))


def _layers(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    parts = text.split(",")
    if not all(part.isascii() and part.isdecimal() and len(part) < 6 for part in parts):
        raise UsageError(
            f"--aux-layers {text[:60]!r} is not a list of layers", hint="write 2,16,29"
        )
    return tuple(map(int, parts))


def _warn_of_broken(texts: TrainingTexts) -> None:
    for found in {texts.train.source: texts.train, texts.held_out.source: texts.held_out}.values():
        if found.complaint:
            warn(found.complaint)
