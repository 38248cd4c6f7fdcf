"""`--capture`: keep requests and answers of a server, as texts to train and measure with."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from packager.cli.field_options import FiniteRange, Option
from packager.core.capture.settings import SHARE
from packager.core.errors import UsageError
from packager.core.files.atomic import explain_disk_errors
from packager.core.references import parse_bucket_place


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficCapture:
    """What the options ask for."""

    directory: Path  # absolute, and there
    share: float
    redact_file: Path | None  # absolute


capture_options: tuple[Option, ...] = (
    click.option(
        "--capture",
        metavar="DIR",
        help="Capture requests and answers into files below DIR, as SageMaker's Data Capture does, "
        "without e-mail addresses, keys, card and phone numbers. Default: nothing.",
    ),
    click.option(
        "--capture-share",
        type=FiniteRange(0, 1),
        metavar="SHARE",
        help=f"Share of the conversations that is captured, each as a whole. Default: {SHARE}.",
    ),
    click.option(
        "--capture-redact",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        metavar="FILE",
        help="Program that gets each row as a line and writes it redacted, or an empty line; run "
        "in the container.",
    ),
)


def take_capture(given: dict[str, Any]) -> TrafficCapture | None:
    """Remove what `capture_options` gave, and return it; raise `UsageError` for half of it."""
    place = given.pop("capture")
    share, redact_file = given.pop("capture_share"), given.pop("capture_redact")
    if place is None:
        if share is not None or redact_file is not None:
            raise UsageError(
                "--capture-share and --capture-redact change a capture, and there is none",
                hint="name the directory with --capture DIR",
            )
        return None
    if parse_bucket_place(place) is not None:
        raise UsageError(
            f"--capture {place!r}: a container has no credentials to write to a bucket",
            hint="name a directory, and copy complete files (*.jsonl) with `aws s3 sync`",
        )
    if redact_file is not None and not os.access(redact_file, os.X_OK):
        raise UsageError(
            f"--capture-redact {str(redact_file)!r} is not executable",
            hint=f"chmod +x {redact_file}",
        )
    directory = Path(place).absolute()
    with explain_disk_errors(directory):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return TrafficCapture(
        directory=directory,
        share=SHARE if share is None else share,
        redact_file=redact_file.absolute() if redact_file else None,
    )


def owner_of(directory: Path) -> str:
    """Return UID:GID of a directory."""
    found = directory.stat()
    return f"{found.st_uid}:{found.st_gid}"
