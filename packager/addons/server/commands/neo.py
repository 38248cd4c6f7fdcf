"""`packager neo`."""

from __future__ import annotations

import os
from dataclasses import replace

import click

from packager.addons.server.commands.neo_files import move_result, read_properties, reported_errors
from packager.addons.server.sagemaker.neo import (
    ERROR_FILE,
    NeoContext,
    input_configuration,
    output_properties,
    parse_planned,
    read_context,
    read_wish,
    request_of,
)
from packager.catalog.instances import find_instance
from packager.cli.progress import progress_options, shown_progress
from packager.cli.terminal import note, print_value, warn
from packager.cli.wiring.builds import services_for
from packager.cli.wiring.settings import Settings, settings_for
from packager.cli.wiring.steps import gpus_here
from packager.core.request import parse_request
from packager.pipeline import pipeline

INSTANCE = "PACKAGER_NEO_INSTANCE"
_TP = "option.tensor_parallel_degree"


@click.command()
@click.option(
    "--instance",
    metavar="TYPE",
    help=f"Instance type that the model is for; {INSTANCE} by default, else this machine's GPUs.",
)
@progress_options
def neo(instance: str | None, progress: str, quiet: bool) -> None:
    """Do the work of AWS's optimization container, as its variables say.

    SM_NEO_INPUT_MODEL_DIR has the model, with serving.properties; SM_NEO_COMPILED_MODEL_DIR gets
    the result, with its own.  OPTION_* variables say what is asked for: quantization by awq or
    fp8, sharding, compilation.  A failure is written to SM_NEO_COMPILATION_ERROR_FILE.

    \b
    SM_NEO_EXECUTION_CONTEXT=1 SM_NEO_INPUT_MODEL_DIR=in SM_NEO_COMPILED_MODEL_DIR=out \\
        SM_NEO_COMPILATION_ERROR_FILE=errors.json packager neo --instance ml.g5.xlarge
    """
    environment = dict(os.environ)
    with reported_errors(environment.get(ERROR_FILE, "")):
        context = _checked(read_context(environment))
        wish = read_wish(read_properties(context.source), environment)
        chosen = instance or environment.get(INSTANCE) or _this_machine()
        fields = request_of(wish, context, chosen, _devices(chosen))
        with move_result(context.output) as tree, shown_progress(progress, quiet=quiet) as on_event:
            request = parse_request({**fields, "outputs": [f"dir:{tree}"]})
            settings = replace(
                settings_for(request),
                cache_dir=context.cache,
                on_event=on_event,
                on_warning=warn,
            )
            record = pipeline.build(request, services_for(settings))
            planned = parse_planned((tree / "serving.properties").read_text(encoding="latin-1"))
            given_tp = _TP in wish.properties
            text = output_properties(wish, planned, given_tp=given_tp)
            (tree / "serving.properties").write_text(text, encoding="latin-1")
    if not quiet:
        for step in record.steps:
            note(f"{step.name}: {step.tool}, {'from the cache' if step.reused else 'run'}")
    print_value(str(context.output))


def _checked(context: NeoContext) -> NeoContext:
    """Refuse missing directories, before any other check."""
    if not context.source.is_dir():
        raise input_configuration(f"SM_NEO_INPUT_MODEL_DIR {str(context.source)!r} is no directory")
    if context.output.exists() and not context.output.is_dir():
        raise input_configuration(
            f"SM_NEO_COMPILED_MODEL_DIR {str(context.output)!r} is no directory"
        )
    if context.hub_cache is not None:
        if not context.hub_cache.is_dir():
            raise input_configuration(
                f"SM_NEO_HF_CACHE_DIR {str(context.hub_cache)!r} is no directory"
            )
        os.environ["HF_HOME"] = str(context.hub_cache)
    if context.cache is not None and not context.cache.is_dir():
        raise input_configuration(f"SM_NEO_CACHE_DIR {str(context.cache)!r} is no directory")
    return replace(context, source=context.source.absolute())


def _this_machine() -> str:
    if not _gpus():
        raise input_configuration(
            "no instance is named, and this machine has no GPU to go by",
            hint=f"set {INSTANCE} to the instance type that the model is for, such as ml.g5.xlarge",
        )
    return "local"


def _devices(instance: str) -> int:
    return _gpus() if instance == "local" else find_instance(instance).devices


def _gpus() -> int:
    return gpus_here(Settings()).count
