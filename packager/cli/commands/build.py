"""`packager build`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from packager.cli.commands.cache_options import cache_options, take_cache_settings
from packager.cli.options import (
    choose_target,
    chosen_target,
    make_request,
    model_argument,
    open_project,
    request_fields,
    request_options,
)
from packager.cli.plugins.tables import BASES
from packager.cli.progress import progress_options, shown_progress
from packager.cli.shared_options import (
    catalog_option,
    format_option,
    load_measured,
    measured_option,
    policy_options,
    registry_options,
)
from packager.cli.terminal import (
    note,
    note_lines,
    print_json_text,
    print_report,
    print_value,
    warn,
)
from packager.cli.wiring.builds import parse_model_reference, services_for
from packager.cli.wiring.settings import Settings, settings_for
from packager.core.command_line import flag_of
from packager.core.errors import UsageError
from packager.core.measurement import MeasuredRun
from packager.core.record import BuildRecord
from packager.core.references import HubReference, RegistryTarget, spell_hub_id
from packager.core.request import BuildRequest
from packager.core.text import json_text
from packager.core.units import decimal
from packager.images.target import parse_target
from packager.optimize.steps.services import OnMiss
from packager.pipeline import pipeline
from packager.pipeline.record import RUNNING
from packager.pipeline.records import load_record


@click.command()
@model_argument
@request_options
@request_fields("base", "outputs")
@click.option(
    "-t",
    "--tag",
    "tags",
    multiple=True,
    metavar="NAME:TAG",
    help="Write the image into Docker under this name: the same as --output docker:NAME:TAG.",
)
@registry_options
@policy_options
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
@measured_option
@catalog_option
@click.option(
    "--verify",
    is_flag=True,
    help="Hash every weight file instead of trusting cached digests.",
)
@cache_options
@click.option(
    "--no-capacity-check", is_flag=True, help="Start steps that seem too large for this machine."
)
@click.option("--restart", is_flag=True, help="Delete the partial results of interrupted steps.")
@click.option(
    "--no-compile-on-miss",
    is_flag=True,
    help="Bake compiled files only when they are cached; warn when they are not.",
)
@click.option(
    "--require-cached",
    is_flag=True,
    help="Run no step: end with status 8 when a result is not in the cache.",
)
@click.option("--dry-run", is_flag=True, help="Plan and render, but run no step and write nothing.")
@click.option(
    "--sparse-base",
    is_flag=True,
    help="Omit the base's layers from oci: layouts, which then refer to the base's registry.",
)
@click.option(
    "--sbom",
    type=click.Choice(("attached", "required", "none")),
    default="attached",
    show_default=True,
    help="Attach a list of all parts; `required` fails where a registry refuses it.",
)
@click.option(
    "--deny-licence",
    "deny_licences",
    multiple=True,
    metavar="PATTERN",
    help="Refuse models, drafts and adapters whose card states this licence, as 'CC-BY-NC-*'.",
)
@click.option(
    "--model-key",
    "model_keys",
    multiple=True,
    metavar="FILE",
    help="Build only if one of these public keys has signed the model (model.sig beside it).",
)
@click.option(
    "--model-signature",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where the model's signature is, if not beside it.",
)
@click.option(
    "--sbom-base",
    type=click.Choice(("skip", "read")),
    default="skip",
    show_default=True,
    help="Read the base's layers for its packages, once per base, for the SBOM.",
)
@click.option(
    "--sign",
    default="",
    metavar="KEY",
    help="Sign image, SBOM and provenance with this private key: a file, env://NAME or "
    "awskms://[ENDPOINT]/KEY.",
)
@click.option("--no-sbom", "sbom", flag_value="none", help="The same as --sbom none.")
@click.option("--all", "all_targets", is_flag=True, help="Build all targets of packager.toml.")
@click.option(
    "--locked",
    is_flag=True,
    help="Build targets as packager.lock pins them; end with status 5 when anything differs.",
)
@progress_options
@format_option
def build(
    output_format: str,
    request_file: Path | None,
    from_record: Path | None,
    dry_run: bool,
    progress: str,
    quiet: bool,
    tags: tuple[str, ...],
    all_targets: bool,
    locked: bool,
    **given: Any,
) -> None:
    """Plan, render and package a model into an image; print its digest.

    Layouts and registries share one read of the weights, and need none when
    their digests are known.  A name or tag appears only when everything it
    needs is there.

    \b
    packager build examples/tiny-llama --instance local --output oci:out
    packager build @small        # a target of the project file packager.toml
    """
    own, measured = _take_settings(given), load_measured(given.pop("measured_files"))
    given["outputs"] = (*given["outputs"], *(f"docker:{tag}" for tag in tags))
    record = load_record(from_record) if from_record else None
    asked = _BuildOptions(
        own=own,
        measured=measured,
        record=record,
        dry_run=dry_run,
        progress=progress,
        quiet=quiet,
        as_json=output_format == "json",
    )
    target = chosen_target()
    if locked:
        _check_locked(given, is_target=all_targets or target is not None)
    if not all_targets:
        found = _recorded_request(record, given) if record else make_request(request_file, **given)
        if locked and target is not None:
            found = _locked(target, found, own)
        if (document := _build(found, asked)) is not None:
            print_json_text(document)
        return
    if record or request_file:
        raise UsageError("--all builds targets, not a record or a request file", hint="name one")
    documents = []
    for name in open_project().targets:
        note(f"target {name}")
        choose_target(name)
        found = make_request(None, **given)
        documents.append(_build(_locked(name, found, own) if locked else found, asked))
    if asked.as_json:
        print_json_text(f"[{','.join(map(str, documents))}]")


@dataclass(frozen=True, slots=True, kw_only=True)
class _BuildOptions:
    """The options of the command line that are not fields of a request."""

    own: dict[str, Any]  # fields of `Settings`
    measured: tuple[MeasuredRun, ...]
    record: BuildRecord | None
    dry_run: bool
    progress: str
    quiet: bool
    as_json: bool


def _build(request: BuildRequest, asked: _BuildOptions) -> str | None:
    """Build a request and print the result; return its JSON document instead where asked for."""
    if not request.outputs and not asked.dry_run:
        raise UsageError(
            "no output is given",
            hint="add --output oci:DIR, docker:NAME:TAG, HOST/REPOSITORY:TAG, dir:DIR or "
            "s3://BUCKET/PREFIX",
        )
    quiet = asked.quiet or asked.dry_run
    with shown_progress(asked.progress, quiet=quiet, as_json=asked.as_json) as on_event:
        settings = replace(
            settings_for(request),
            **asked.own,
            headers_only=asked.dry_run,
            read_local=asked.own["on_miss"] != "run",  # then the cache status is reported
            repeat=asked.record,
            on_event=on_event,
        )
        services = replace(services_for(settings), measured=asked.measured)
        if asked.dry_run:
            assembled = pipeline.assemble(request, services)
        else:
            done = pipeline.build(request, services)
    if not asked.dry_run:
        if asked.as_json:
            return done.model_dump_json(indent=2, exclude_none=True)
        _print_record(done, settings, quiet=asked.quiet)
        return None
    from packager.pipeline.report import dry_run_document, dry_run_report

    if asked.as_json:
        return json_text(dry_run_document(assembled))
    print_report(dry_run_report(assembled))
    return None


def _locked(name: str, request: BuildRequest, own: dict[str, Any]) -> BuildRequest:
    from packager.cli.commands.lock import locked_request

    return locked_request(open_project(), name, request, replace(settings_for(request), **own))


def _check_locked(given: dict[str, Any], *, is_target: bool) -> None:
    """Refuse options that change what a target is; where it goes and its steps run may change."""
    if not is_target:
        raise UsageError(
            "--locked is for targets of packager.toml", hint="name one, such as @NAME, or add --all"
        )
    changed = {name for name, value in given.items() if value not in (None, ())}
    if changed := changed - {"outputs", *RUNNING}:
        raise UsageError(
            f"{flag_of(min(changed))} cannot be combined with --locked",
            hint="write it into packager.toml and run `packager lock`",
        )


def _take_settings(given: dict[str, Any]) -> dict[str, Any]:
    """Remove the options that are not fields of the request.

    Return them as fields of `wiring.Settings`.
    """
    same = (
        *("insecure_registries", "ca_file", "record_file", "catalog_file"),
        *(
            "restart",
            "sbom",
            "sbom_base",
            "deny_licences",
            "model_keys",
            "model_signature",
            "sign",
            "sparse_base",
            "verify",
        ),
    )
    return {
        **take_cache_settings(given),
        **{name: given.pop(name) for name in same},
        "check_capacity": not given.pop("no_capacity_check"),
        "on_miss": _on_miss(
            no_compile=given.pop("no_compile_on_miss"), nothing=given.pop("require_cached")
        ),
        "on_warning": warn,
    }


def _print_record(done: BuildRecord, settings: Settings, *, quiet: bool) -> None:
    if not quiet:
        from packager.pipeline.report import summary_lines

        note_lines(summary_lines(done))
        if settings.sparse_base:
            note(_without_base(done))
    for image in done.images:
        print_value(f"{image.name}@{image.digest}")
    for tree in done.trees:
        print_value(f"{tree.name}@{tree.digest}")


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


def _recorded_request(record: BuildRecord, given: dict[str, Any]) -> BuildRequest:
    """Return the recorded request; only places may override it, as they keep its digest."""
    changed = {name for name, value in given.items() if value not in (None, ())}
    changed -= {"model", "base", "outputs", *RUNNING}
    if changed:
        raise UsageError(
            f"{flag_of(min(changed))} cannot be combined with --from-record",
            hint="a record fixes everything but --model, --base, --output and where steps run: "
            "--gpus, --threads, --executor and --address",
        )
    model = given.get("model") or record.request.model
    if record.model.source == "hub":
        reference = parse_model_reference(model)
        is_streamed = isinstance(reference, HubReference) and reference.is_streamed
        model = spell_hub_id(record.model.name, record.model.revision, is_streamed=is_streamed)
    return record.request.model_copy(
        update={
            "model": model,
            "served_name": record.served_name,  # another directory may have another name
            "base": given.get("base") or _pinned_base(record),
            "outputs": given.get("outputs") or record.request.outputs,
            **{name: given[name] for name in RUNNING if given.get(name) is not None},
        }
    )


def _pinned_base(record: BuildRecord) -> str:
    target = parse_target(record.base.reference, BASES)
    if isinstance(target, RegistryTarget):
        return target.with_digest(record.base.digest).text
    return target.text
