"""`packager migrate`."""

from __future__ import annotations

import re
from pathlib import Path

import click

from packager.catalog.containers import find_container
from packager.cli.shared_options import format_option
from packager.cli.terminal import note_lines, print_json, print_line
from packager.core.documents import shorten
from packager.core.errors import UsageError
from packager.core.files.user_files import read_user_file
from packager.core.findings import finding_document
from packager.core.reports.text import finding_lines
from packager.engines.lmi.legacy import migrate as migrate_settings
from packager.engines.schema import find_schema

MAX_FILE_BYTES = 1024 * 1024
LONGEST_NAME = 200
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")  # all but tabs


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--to", "version", metavar="VERSION", help="Release of LMI; the newest if none.")
@format_option
def migrate(file: Path, version: str | None, output_format: str) -> None:
    """Convert an old LMI configuration into today's keys.

    FILE is a serving.properties, or lines of NAME=VALUE with a container's
    environment.  The new serving.properties goes to stdout, what became of
    every key to stderr.

    \b
    packager migrate serving.properties --to 28
    """
    container = find_container("lmi", "nvidia", version)
    if not container.release.isdecimal():
        raise UsageError(
            f"configurations are turned into those of LMI with vLLM, not of {container.version!r}",
            hint="name a release such as --to 28",
        )
    schema = find_schema("vllm", container.engine_version)
    settings, found = migrate_settings(_read(file), schema, int(container.release))
    if output_format == "json":
        findings = [finding_document(finding) for finding in found]
        print_json({"settings": settings, "findings": findings})
        return
    note_lines(finding_lines(found))
    for key, value in settings.items():
        print_line(f"{key}={value}")


def _read(file: Path) -> dict[str, str]:
    data = read_user_file(
        file,
        what="the configuration",
        hint="name a serving.properties or a file of NAME=VALUE lines",
        max_bytes=MAX_FILE_BYTES,
    )
    found = {}
    for number, line in enumerate(_decoded(data).split("\n"), start=1):
        text = line.strip().removeprefix("export ")
        if not text or text.startswith(("#", "!")):
            continue
        key, equals, value = text.partition("=")
        if not equals or len(key) > LONGEST_NAME:
            raise UsageError(
                f"line {number} of {str(file)!r} is not a setting: {shorten(text, 60)}",
                hint="write every setting as NAME=VALUE",
            )
        if CONTROL.search(text):
            raise UsageError(
                f"line {number} of {str(file)!r} has a control character: {shorten(text, 60)}",
                hint="write every setting as NAME=VALUE, in plain text",
            )
        found[key.strip()] = value.strip()
    return found


def _decoded(data: bytes) -> str:
    """Decode as UTF-8, else as Java's tools do; lines end as on any system."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return text.replace("\r\n", "\n")
