"""`packager build`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from packager import plugins, wiring
from packager.adapters.records import load_record
from packager.build import pipeline
from packager.build.record import RUNNING
from packager.build.services import OnMiss
from packager.cli.cache_options import cache_options, take_cache_options
from packager.cli.options import (
    catalog_option,
    format_option,
    make_request,
    registry_options,
    request_options,
)
from packager.cli.progress import progress_options, shown_progress
from packager.cli.terminal import (
    note,
    note_lines,
    print_json,
    print_json_text,
    print_line,
    print_text,
    warn,
)
from packager.core.record import BuildRecord
from packager.core.request import BuildRequest
from packager.core.units import decimal
from packager.errors import UsageError
from packager.reports.build import dry_run_document, dry_run_text, summary_lines


@click.command()
@request_options
@click.option(
    "--base",
    metavar="IMAGE",
    help="Base image: registry reference, oci:DIR, docker:NAME, embedded:NAME or scratch.",
)
@click.option(
    "--output",
    "outputs",
    multiple=True,
    metavar="OUT",
    help="oci:DIR[:TAG], docker:NAME:TAG or REGISTRY/REPOSITORY:TAG. Repeatable.",
)
@registry_options
@click.option(
    "--record",
    "record_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write the build record here.",
)
@click.option(
    "--from-record",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Repeat a recorded build; fail with status 5 when the digest differs.",
)
@catalog_option
@click.option(
    "--verify",
    is_flag=True,
    help="Read all weights: rely on no digest noted here or in an earlier image.",
)
@cache_options
@click.option(
    "--no-capacity-check", is_flag=True, help="Start steps that seem too large for this machine."
)
@click.option("--restart", is_flag=True, help="Forget what interrupted steps left.")
@click.option(
    "--no-compile-on-miss",
    is_flag=True,
    help="Bake compiled files only when they are in the cache; say so when they are not.",
)
@click.option(
    "--require-cached",
    is_flag=True,
    help="Run no step: end with status 8 when a result is not in the cache.",
)
@click.option("--dry-run", is_flag=True, help="Do everything but run steps and write.")
@click.option(
    "--sparse-base",
    is_flag=True,
    help="Leave the base's layers out of oci: layouts, which then say where these are.",
)
@progress_options
@format_option
def build(
    output_format: str,
    request_file: Path | None,
    outputs: tuple[str, ...],
    insecure_registries: tuple[str, ...],
    ca_file: Path | None,
    record_file: Path | None,
    from_record: Path | None,
    catalog_file: Path | None,
    verify: bool,
    cache_dir: Path | None,
    no_cache: bool,
    no_capacity_check: bool,
    restart: bool,
    no_compile_on_miss: bool,
    require_cached: bool,
    dry_run: bool,
    sparse_base: bool,
    progress: str,
    quiet: bool,
    **given: Any,
) -> None:
    """Plan, render and package a model into an image; print its digest.

    Layouts and registries share one read of the weights, and need none when
    their digests are known.  A name or tag appears only when everything it
    needs is there.

    \b
    packager build --model examples/tiny-llama --instance local --output oci:out
    """
    cache = take_cache_options(given)
    record = load_record(from_record) if from_record else None
    if record:
        request = _recorded_request(record, outputs, given)
    else:
        request = make_request(request_file, outputs=outputs, **given)
    if not request.outputs and not dry_run:
        raise UsageError(
            "no output is given",
            hint="add --output oci:DIR, --output docker:NAME:TAG or --output HOST/REPOSITORY:TAG",
        )
    as_json = output_format == "json"
    with shown_progress(progress, quiet=quiet or dry_run, as_json=as_json) as on_event:
        settings = wiring.Settings(
            outputs=request.outputs,
            insecure_registries=insecure_registries,
            ca_file=ca_file,
            record_file=record_file,
            catalog_file=catalog_file,
            dry_run=dry_run,
            cache_dir=cache_dir,
            use_cache=not no_cache,
            cache=cache,
            executor=request.executor or "local",
            address=request.address or "",
            check_capacity=not no_capacity_check,
            restart=restart,
            on_miss=_on_miss(no_compile=no_compile_on_miss, nothing=require_cached),
            sparse_base=sparse_base,
            compression=request.compression or "none",
            verify=verify,
            repeat=record,
            on_event=on_event,
            on_warning=warn,
        )
        if dry_run:
            assembled = pipeline.assemble(request, wiring.services_for(settings))
        else:
            done = pipeline.build(request, wiring.services_for(settings))
    if dry_run:
        if output_format == "json":
            print_json(dry_run_document(assembled))
        else:
            print_text(dry_run_text(assembled))
        return
    if output_format == "json":
        print_json_text(done.model_dump_json(indent=2, exclude_none=True))
        return
    if not quiet:
        note_lines(summary_lines(done))
        if sparse_base:
            note(_without_base(done))
    for image in done.images:
        print_line(f"{image.name}@{image.digest}")


def _on_miss(*, no_compile: bool, nothing: bool) -> OnMiss:
    if nothing:
        return "refuse"
    return "skip-compile" if no_compile else "run"


def _without_base(record: BuildRecord) -> str:
    base = [layer for layer in record.layers if layer.role == "base"]
    size = decimal(sum(layer.size for layer in base))
    return (
        f"layouts lack the base's {len(base)} layers ({size}); "
        f"who reads them needs {record.base.reference} {record.base.digest}"
    )


def _recorded_request(
    record: BuildRecord, outputs: tuple[str, ...], given: dict[str, Any]
) -> BuildRequest:
    """The recorded request. Only places may be given anew: they do not change the digest."""
    changed = {name for name, value in given.items() if value not in (None, ())}
    changed -= {"model", "base", *RUNNING}
    if changed:
        raise UsageError(
            f"--{sorted(changed)[0].replace('_', '-')} cannot be combined with --from-record",
            hint="a record fixes everything but --model, --base, --output and where steps run: "
            "--gpus, --threads, --executor and --address",
        )
    model = given.get("model") or record.request.model
    if record.model.source == "hub":
        scheme = "hf://" if model.startswith("hf://") else ""
        model = f"{scheme}{record.model.name}@{record.model.revision}"
    return record.request.model_copy(
        update={
            "model": model,
            "base": given.get("base") or _pinned_base(record),
            "outputs": outputs or record.request.outputs,
            **{name: given[name] for name in RUNNING if given.get(name) is not None},
        }
    )


def _pinned_base(record: BuildRecord) -> str:
    reference = record.base.reference
    if plugins.scheme_of(reference, plugins.BASES) != "registry":
        return reference
    return f"{reference.partition('@')[0]}@{record.base.digest}"
