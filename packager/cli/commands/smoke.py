"""`packager smoke`."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache, partial
from pathlib import Path

import click

from packager.cli.field_options import TimeRange
from packager.cli.options import container_environment, env_option
from packager.cli.run.images import started_image
from packager.cli.serving.pooling_reference import read_reference
from packager.cli.serving.smoke import PROMPT
from packager.cli.serving.smoke import smoke as run_smoke
from packager.cli.shared_options import format_option
from packager.cli.terminal import note, print_json, print_line, print_lines
from packager.core.events import ignore
from packager.core.pictures import parse_images
from packager.core.text import quoted_lines
from packager.images.docker_engine import connect_engine


@click.command()
@click.argument("image")
@click.option(
    "--prompt",
    default=PROMPT,
    show_default=True,
    metavar="TEXT",
    help="Question that the image answers.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(1),
    default=48,
    show_default=True,
    metavar="N",
    help="Tokens of an answer at most.",
)
@click.option(
    "--timeout",
    "deadline_s",
    type=TimeRange(1),
    default=300.0,
    show_default=True,
    metavar="TIME",
    help="Time until /ping must answer.",
)
@click.option(
    "--adapter",
    "adapters",
    multiple=True,
    metavar="NAME",
    help="Adapter that must answer, too; those that the server lists must without it. Repeatable.",
)
@click.option(
    "--images",
    default="",
    metavar="NxWxH",
    help="Also ask about pictures made here: how many, width and height, such as 1x224x224.",
)
@click.option(
    "--reference",
    "reference_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="JSON of the model's own vectors or scores, which the answers must be but for their "
    "element type.",
)
@env_option
@format_option
def smoke(
    image: str,
    prompt: str,
    max_tokens: int,
    deadline_s: float,
    adapters: tuple[str, ...],
    images: str,
    reference_file: Path | None,
    env: tuple[str, ...],
    output_format: str,
) -> None:
    """Start IMAGE in the Docker Engine, ask it something, stop it.

    Waits for /ping, asks for one token after a short prompt, then asks
    /v1/chat/completions and /invocations, and prints the tokens and times of both.
    Servers of vectors or scores are asked for these, on both of their paths.
    LoRA adapters must answer otherwise than the base, on each path.
    Ends with status 4, and the container's log, on failure.

    \b
    packager smoke tiny-llama:1
    """
    environment = container_environment(env)
    if images:
        parse_images(images)
    reference = read_reference(reference_file) if reference_file else None
    connect = cache(partial(connect_engine, without="or ask `packager doctor`"))
    image = started_image(image, "smoke", connect)
    result = run_smoke(
        connect(),
        image,
        prompt=prompt,
        max_tokens=max_tokens,
        deadline_s=deadline_s,
        on_progress=_say if output_format == "text" else ignore,
        env=environment,
        adapters=adapters,
        images=images,
        reference=reference,
    )
    if output_format == "json":
        print_json(asdict(result))
        return
    print_line(f"{image} serves {result.model!r}, ready after {result.seconds_to_ping:.1f} s")
    for answer in result.answers:
        rate = answer.tokens / answer.seconds if answer.seconds else 0.0
        print_line()
        print_line(
            f"{answer.endpoint}: {answer.tokens} tokens in {answer.seconds:.2f} s ({rate:.0f}/s)"
        )
        print_lines(quoted_lines(answer.text.strip(), "  "))
    for proof in result.adapters:
        by = "" if proof.model == proof.name else f" as {proof.model!r}"
        print_line(
            f"{proof.path}: adapter {proof.name!r} answers{by}, {proof.difference:.2f} nats off"
        )


def _say(line: str) -> None:
    note(line)
