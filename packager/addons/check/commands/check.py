"""`packager check`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from packager.addons.check.fixing import fix as fix_file
from packager.addons.check.reading import is_other, read_document
from packager.addons.check.report import check_document, check_lines, summary_lines
from packager.addons.check.sarif import sarif_document
from packager.addons.check.targets import parse_target
from packager.addons.check.text import MAX_BYTES, NotReadable
from packager.addons.check.values import KINDS, CheckReport, ConfigDocument, Kind, Remark
from packager.addons.check.verdicts import AskPlanner, judge
from packager.catalog.findings import explanations
from packager.catalog.instances import find_instance
from packager.cli.shared_options import format_option_of
from packager.cli.terminal import note_lines, print_json, print_lines
from packager.core.errors import PlanRejected, UsageError
from packager.core.files.atomic import write_atomically
from packager.core.files.user_files import read_user_file
from packager.core.findings import errors_in
from packager.core.text import escape
from packager.core.units import counted
from packager.core.version import __version__
from packager.engines.lengths import CONFIG
from packager.engines.rules import Facts, device_facts, model_facts

STDIN = "-"
NOT_ASKED = "options are checked; what the model and its memory need is not covered"


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=str)
@click.option(
    "--as",
    "kind",
    type=click.Choice(KINDS),
    help="Kind of the files; detected by names and content by default.",
)
@click.option(
    "--for",
    "targets",
    multiple=True,
    metavar="FAMILY[:VERSION]",
    help="The engine to check for, such as vllm:0.27.1 or lmi:28; wins over an image's tag. "
    "Repeatable.",
)
@click.option("--model", metavar="MODEL", help="The model that is served, for rules about it.")
@click.option("--instance", metavar="TYPE", help="Instance type, for rules about devices.")
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@click.option(
    "--skip-others",
    is_flag=True,
    help="Pass over files that are no configuration of an engine, and list them: for hooks that "
    "are given every file.",
)
@click.option("--fix", is_flag=True, help="Mend what is certain, into --output or --in-place.")
@click.option(
    "--output", type=click.Path(path_type=Path), metavar="FILE", help="File for what is mended."
)
@click.option("--in-place", is_flag=True, help="Mend the files themselves.")
@format_option_of("json", "sarif")
def check(
    files: tuple[str, ...],
    kind: Kind | None,
    targets: tuple[str, ...],
    model: str | None,
    instance: str | None,
    strict: bool,
    skip_others: bool,
    fix: bool,
    output: Path | None,
    in_place: bool,
    output_format: str,
) -> int:
    """Find what an engine refuses, drops or reads otherwise in FILE.

    A FILE is a serving.properties, an env file, a manifest of Kubernetes or KServe, a compose
    file, a Dockerfile, a script or unit with `vllm serve` and the like, a chart's values, a job of
    Nomad or ECS, an engine's --config file, or - for stdin. Ends with status 3 where an error is
    found, 2 where a file starts no engine that is known, 0 otherwise.

    \b
    packager check serving.properties --for lmi:28
    packager check deployment.yaml --format sarif > check.sarif
    packager check serve.sh --for vllm --fix --in-place
    """
    asked = tuple(parse_target(text) for text in targets)
    facts, planner = _facts(model, instance)
    on_sagemaker = bool(instance) and _is_hosted(instance)
    look = partial(judge, asked=asked, facts=facts, on_sagemaker=on_sagemaker, planner=planner)
    _check_fix(files, fix=fix, output=output, in_place=in_place)
    read, too_large = _read(files, skip_others=skip_others)
    if fix:
        _mend(read, lambda file, data: look([read_document(file, data, kind)]), output)
    documents, skipped = _documents(read, kind, skip_others=skip_others)
    skipped += too_large
    report = look(documents)
    if skip_others and (others := [one for one in report.unread if is_other(read[one])]):
        skipped += others
        report = look([one for one in documents if one.file not in others])
    if output_format == "sarif":
        print_json(sarif_document(report, explanations(), __version__))
    elif output_format == "json":
        print_json(check_document(report) | {"skipped": skipped})
    else:
        print_lines(check_lines(report))
        note_lines([*(f"skipped {escape(file)}" for file in skipped), *summary_lines(report)])
    is_bad = report.count("error") or (strict and report.count("warning"))
    if report.unread:
        return UsageError.exit_code
    return PlanRejected.exit_code if is_bad else 0


def _read(files: tuple[str, ...], *, skip_others: bool) -> tuple[dict[str, bytes], list[str]]:
    """Return the files' bytes, and which are too large to configure anything."""
    read: dict[str, bytes] = {}
    too_large: list[str] = []
    for file in dict.fromkeys(files):
        try:
            read[file] = _bytes_of(file)
        except UsageError:
            if not skip_others or file == STDIN:
                raise
            too_large.append(file)
    return read, too_large


def _documents(
    read: Mapping[str, bytes], kind: Kind | None, *, skip_others: bool
) -> tuple[list[ConfigDocument], list[str]]:
    """Return the content of each file, and the files without a server."""
    documents: list[ConfigDocument] = []
    skipped: list[str] = []
    for file, data in read.items():
        try:
            documents.append(read_document(file, data, kind))
        except NotReadable:
            if not skip_others or not is_other(data, file):
                raise
            skipped.append(file)
    return documents, skipped


def _check_fix(files: tuple[str, ...], *, fix: bool, output: Path | None, in_place: bool) -> None:
    if fix != (output is not None or in_place) or (output is not None and in_place):
        hint = "give --fix with --output FILE, or with --in-place to change the files themselves"
        raise UsageError("--fix wants one place to write to, and nothing else writes", hint=hint)
    if output is not None and len(files) > 1:
        raise UsageError("--output takes one file", hint="mend them one by one, or --in-place")
    if in_place and STDIN in files:
        raise UsageError("stdin cannot be mended in place", hint="write to --output FILE")


def _mend(
    read: dict[str, bytes], look: Callable[[str, bytes], CheckReport], output: Path | None
) -> None:
    """Write each file as far as it can be mended, and put what was written into `read`."""
    for file, data in read.items():
        try:
            fixed = fix_file(file, data, partial(look, file))
        except UnicodeDecodeError:
            raise NotReadable(file, "it is not text in UTF-8, and cannot be mended") from None
        place = output or Path(file)
        if output is not None or fixed.edits:
            kept = place.stat().st_mode & 0o7777 if place.exists() else None
            write_atomically(place, fixed.data, mode=kept)
        note_lines([f"wrote {escape(str(place))} with {counted(fixed.edits, 'change')}"])
        read[file] = fixed.data


def _bytes_of(file: str) -> bytes:
    if file != STDIN:
        hint = "name a file that configures a server, or - for stdin"
        return read_user_file(Path(file), what="the configuration", hint=hint, max_bytes=MAX_BYTES)
    data = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise NotReadable(STDIN, f"it has more than {MAX_BYTES} bytes")
    return data


def _facts(model: str | None, instance: str | None) -> tuple[Facts, AskPlanner | None]:
    """Return what rules may ask of the model and the machine, as far as they are named."""
    found: Facts = {}
    named = find_instance(instance) if instance is not None else None
    if named is not None:
        found = {**found, **device_facts(named)}
    if model is None:
        return found, None
    from packager.addons.check.planned import CheckedMachine, plan_remarks
    from packager.cli.plugins.tables import FAMILIES
    from packager.cli.wiring.builds import find_model, parse_model_reference
    from packager.cli.wiring.settings import Settings
    from packager.models.architectures.profile import make_profile

    files = find_model(parse_model_reference(model), Settings(headers_only=True))
    profile, findings = make_profile(files)
    if errors := errors_in(findings):  # of another kind: its options can be checked all the same
        note = replace(errors[0], severity="note", hint=NOT_ASKED)
        return found, lambda server, _target: iter((Remark(server.place, note),))
    found = {**found, **model_facts(profile), CONFIG: json.dumps(dict(files.config))}
    if named is None:
        return found, None
    machine = CheckedMachine(
        model=files, instance=named, family=lambda family: FAMILIES.find(family).make()
    )
    return found, partial(plan_remarks, machine=machine)


def _is_hosted(instance: str | None) -> bool:
    return instance is not None and find_instance(instance).name.startswith("ml.")
