"""`packager check`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from packager.catalog.findings import explanations
from packager.catalog.instances import find_instance
from packager.check.reading import read_document
from packager.check.report import check_document, check_lines, summary_lines
from packager.check.sarif import sarif_document
from packager.check.targets import parse_target
from packager.check.text import MAX_BYTES, NotReadable
from packager.check.values import KINDS, Document, Kind
from packager.check.verdicts import judge
from packager.cli.shared_options import format_option_of
from packager.cli.terminal import note_lines, print_json, print_lines
from packager.engines.rules import Facts, device_facts, model_facts
from packager.errors import PlanRejected
from packager.files.user_files import read_user_file
from packager.version import __version__

STDIN = "-"


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
@format_option_of("json", "sarif")
def check(
    files: tuple[str, ...],
    kind: Kind | None,
    targets: tuple[str, ...],
    model: str | None,
    instance: str | None,
    strict: bool,
    output_format: str,
) -> int:
    """Find what an engine refuses, drops or reads otherwise in FILE.

    A FILE is a serving.properties, an env file, a manifest of Kubernetes or KServe, a compose
    file, a Dockerfile, a script with `vllm serve` and the like, an engine's --config file, or -
    for stdin. Ends with status 3 where an error is found, 0 otherwise.

    \b
    packager check serving.properties --for lmi:28
    packager check deployment.yaml --format sarif > check.sarif
    """
    asked = tuple(parse_target(text) for text in targets)
    facts = _facts(model, instance)
    documents = [_read(file, kind) for file in dict.fromkeys(files)]
    on_sagemaker = bool(instance) and _is_hosted(instance)
    report = judge(documents, asked=asked, facts=facts, on_sagemaker=on_sagemaker)
    if output_format == "sarif":
        print_json(sarif_document(report, explanations(), __version__))
    elif output_format == "json":
        print_json(check_document(report))
    else:
        print_lines(check_lines(report))
        note_lines(summary_lines(report))
    is_bad = report.count("error") or (strict and report.count("warning"))
    return PlanRejected.exit_code if is_bad else 0


def _read(file: str, kind: Kind | None) -> Document:
    if file != STDIN:
        hint = "name a file that configures a server, or - for stdin"
        data = read_user_file(Path(file), what="the configuration", hint=hint, max_bytes=MAX_BYTES)
        return read_document(file, data, kind)
    data = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise NotReadable(STDIN, f"it has more than {MAX_BYTES} bytes")
    return read_document(STDIN, data, kind)


def _facts(model: str | None, instance: str | None) -> Facts:
    """Return what rules may ask of the model and the machine, as far as they are named."""
    found: Facts = {}
    if model is not None:
        from packager.architectures.profile import make_profile
        from packager.wiring import Settings, find_model, parse_model_reference

        profile, findings = make_profile(
            find_model(parse_model_reference(model), Settings(headers_only=True))
        )
        errors = tuple(finding for finding in findings if finding.severity == "error")
        if errors:
            raise PlanRejected(errors)
        found = {**found, **model_facts(profile)}
    if instance is not None:
        found = {**found, **device_facts(find_instance(instance))}
    return found


def _is_hosted(instance: str | None) -> bool:
    return instance is not None and find_instance(instance).name.startswith("ml.")
