"""`packager base slim`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from packager.addons.nodes.slim.make import STAGES, SlimMade, look, make_slim
from packager.addons.nodes.slim.record import SlimBase, slim_document, slim_lines
from packager.addons.nodes.slim.rules import choose_rules
from packager.addons.nodes.wiring.slim import Proving, shipped_model, slim_services_for
from packager.cli.choices import NameChoice
from packager.cli.plugins.tables import FAMILIES
from packager.cli.progress import progress_options, shown_progress
from packager.cli.shared_options import catalog_option, format_option, image_options
from packager.cli.terminal import note, note_lines, print_json, print_lines, print_value, warn
from packager.cli.wiring.settings import Settings, parse_output
from packager.core.errors import UsageError
from packager.core.events import StagesEvent, ignore
from packager.core.image import Platform


@click.command("slim")
@click.argument("image")
@click.argument("outputs", metavar="[DESTINATION]...", nargs=-1)
@click.option(
    "--instance",
    "instances",
    multiple=True,
    metavar="TYPE",
    help="A machine that will serve: kernels of others go. Repeatable.",
)
@click.option(
    "--with-rule", "with_rules", multiple=True, metavar="RULE", help="Use this rule, too."
)
@click.option(
    "--without-rule", "without_rules", multiple=True, metavar="RULE", help="Leave this rule out."
)
@click.option(
    "--keep",
    multiple=True,
    metavar="GLOB",
    help="Keep these files, whatever rules say: paths without the first '/', ** for directories.",
)
@click.option("--dry-run", is_flag=True, help="Say what would go, and write nothing.")
@click.option(
    "--prove/--no-prove",
    "prove",
    default=True,
    show_default=True,
    help="Start a model on both bases in the Docker Engine; write nothing unless answers agree.",
)
@click.option("--prove-with", metavar="MODEL", help="Model of the proof: small, and at hand.")
@click.option(
    "--family",
    type=NameChoice(lambda: FAMILIES),
    help="Of the proof: the family of serving containers.",
)
@click.option(
    "--container-version", metavar="VERSION", help="Of the proof: the version of the container."
)
@catalog_option
@image_options
@progress_options
@format_option
def base_slim(
    image: str,
    outputs: tuple[str, ...],
    instances: tuple[str, ...],
    with_rules: tuple[str, ...],
    without_rules: tuple[str, ...],
    keep: tuple[str, ...],
    dry_run: bool,
    prove: bool,
    prove_with: str | None,
    family: str | None,
    container_version: str | None,
    catalog_file: Path | None,
    platform: Platform,
    progress: str,
    quiet: bool,
    output_format: str,
    **given: Any,
) -> None:
    """Make a base without the files that its server does not need; print its digest.

    IMAGE is HOST/REPOSITORY:TAG, oci:DIR[:TAG], docker:NAME or embedded:NAME.
    Documentation, translations, tests, static libraries and kernels of other devices go; what
    went, by which rule and why is in the record that is attached.  Layers that lose nothing
    keep their digest.  The slim base is written only when a model on it gives the answers that
    it gives on the original; it ends with status 4 where it does not.

    \b
    packager base slim embedded:vllm-cpu oci:slim --instance local
    packager base slim embedded:vllm-cpu --dry-run
    """
    if not outputs and not dry_run:
        raise UsageError("no destination is given", hint="name one, or look with --dry-run")
    proving = None
    if prove and not dry_run:
        proving = Proving(
            model=_model_of_proof(prove_with),
            original=image,
            family=family,
            container_version=container_version,
        )
    with shown_progress(progress, quiet=quiet, as_json=output_format == "json") as on_event:
        on_event(StagesEvent(stages=STAGES[:1] if dry_run else STAGES))
        settings = Settings(
            outputs=() if dry_run else tuple(map(parse_output, outputs)),
            catalog_file=catalog_file,
            on_event=on_event,
            on_warning=warn,
            **given,
        )
        tools = slim_services_for(settings, proving, say=ignore if quiet else note)
        hosts = tuple(map(tools.find_instance, instances))
        chosen = choose_rules(hosts, with_rules=with_rules, without_rules=without_rules, keep=keep)
        tools.preflight(hosts, platform)
        base = tools.find_base(image, platform)
        if dry_run:
            _show(look(base, chosen, tools.list_layers, on_event), output_format)
            return
        made = make_slim(
            base,
            chosen,
            list_layers=tools.list_layers,
            chunks=tools.chunks,
            work=tools.work,
            prove=tools.prove,
            write=tools.write,
            attach=tools.attach,
            on_event=on_event,
        )
    _print(made, output_format, quiet=quiet)


def _print(made: SlimMade, output_format: str, *, quiet: bool) -> None:
    if output_format == "json":
        print_json(made.document)
        return
    if not quiet:
        note_lines(slim_lines(made.slim, made.proof))
    for ref in made.refs:
        print_value(f"{ref.name}@{ref.digest}")


def _model_of_proof(asked: str | None) -> str:
    model = asked or shipped_model()
    if model is None:
        raise UsageError(
            "no model is given to prove the slim base with",
            hint="name a small one with --prove-with, or use --no-prove",
        )
    return model


def _show(slim: SlimBase, output_format: str) -> None:
    if output_format == "json":
        print_json(slim_document(slim))
    else:
        print_lines(slim_lines(slim))
