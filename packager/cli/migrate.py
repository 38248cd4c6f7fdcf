"""`packager migrate`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from packager.catalog.containers import find_container
from packager.cli.options import format_option
from packager.cli.terminal import note_lines, print_json, print_line
from packager.errors import NotFound, UsageError
from packager.families.lmi_legacy import migrate as migrate_settings
from packager.families.schema import find_schema
from packager.reports.text import finding_lines


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--to", "version", metavar="VERSION", help="Release of LMI; the newest if none.")
@format_option
def migrate(file: Path, version: str | None, output_format: str) -> None:
    """Turn an old LMI configuration into today's keys.

    FILE is a serving.properties, or lines of NAME=VALUE with a container's
    environment.  The new serving.properties goes to stdout, what became of
    every key to stderr.
    """
    container = find_container("lmi", "nvidia", version)
    if not container.release.isdecimal():
        raise UsageError(
            f"configurations are turned into those of LMI with vLLM, not of {container.version!r}",
            hint="name a release such as --to 28",
        )
    schema = find_schema("vllm", container.engine_version)
    done = migrate_settings(_read(file), schema, int(container.release))
    if output_format == "json":
        findings = [asdict(finding) for finding in done.findings]
        print_json({"settings": dict(done.settings), "findings": findings})
        return
    note_lines(finding_lines(done.findings))
    for key, value in done.settings.items():
        print_line(f"{key}={value}")


def _read(file: Path) -> dict[str, str]:
    try:
        lines = file.read_text(encoding="latin-1").splitlines()
    except OSError as error:
        raise NotFound(
            f"cannot read {str(file)!r}: {error.strerror}",
            hint="name a serving.properties or a file of NAME=VALUE lines",
        ) from error
    found = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip().removeprefix("export ")
        if not text or text.startswith(("#", "!")):
            continue
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(
                f"line {number} of {str(file)!r} is no setting: {text[:60]!r}",
                hint="write every setting as NAME=VALUE",
            )
        found[key.strip()] = value.strip()
    return found
