"""`packager attach`."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import click

from packager.cli.shared_options import format_option, image_options
from packager.cli.terminal import note, print_json, print_value, warn
from packager.cli.wiring.images import image_services_for
from packager.cli.wiring.settings import Settings, parse_output, stated_time
from packager.cli.wiring.signing import signer_for
from packager.core.documents import NotStrict, parse_object
from packager.core.errors import UsageError
from packager.core.files.user_files import read_user_file
from packager.core.image import Platform
from packager.images.attached import MAX_BYTES, attach_document
from packager.images.signatures.forms import PREDICATE, attest_image
from packager.images.signatures.reports import REPORTS, report_statement
from packager.images.signatures.statements import MEDIA_IN_TOTO

_CREATED = "org.opencontainers.image.created"
_TOOL = "dev.packager.report-tool"


@click.command()
@click.argument("image")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--type",
    "kind",
    required=True,
    metavar="TYPE",
    help=f"What FILE is: {', '.join(REPORTS)}, or the URI of a predicate.",
)
@click.option("--tool", default="", metavar="NAME", help="What made it, with version.")
@click.option(
    "--date",
    metavar="TIME",
    help="When it was made, such as 2026-11-30T12:00:00Z; SOURCE_DATE_EPOCH or the file's time by "
    "default.",
)
@click.option(
    "--sign",
    "key",
    metavar="KEY",
    help="Sign it with this private key: a file, env://NAME or awskms://….",
)
@image_options
@format_option
def attach(
    image: str,
    file: Path,
    kind: str,
    tool: str,
    date: str | None,
    key: str | None,
    platform: Platform,
    insecure_registries: tuple[str, ...],
    ca_file: Path | None,
    output_format: str,
) -> None:
    """Attach a report about IMAGE, such as a scanner's or VEX, to it; print its digest.

    FILE is JSON. It becomes a statement of in-toto about the image's digest: its
    author's word of its day, which nothing here compares with advisories. With
    --sign it is signed in both forms of cosign; `packager verify --type` asks for it.

    \b
    packager attach REGISTRY/models/tiny:1 tiny.vex.json --type vex --sign image-key.pem
    packager attach oci:out report.json --type vuln --tool 'trivy 0.58'
    """
    if kind not in REPORTS and "://" not in kind:
        raise UsageError(
            f"{kind!r} is no type", hint=f"known are {', '.join(REPORTS)}; or give a URI"
        )
    target, day = parse_output(image), _date(date, file)
    data = read_user_file(file, what="the report", hint="name a JSON file", max_bytes=MAX_BYTES)
    try:
        report = parse_object(data, max_bytes=MAX_BYTES)
    except NotStrict as error:
        raise UsageError(
            f"{str(file)!r} cannot be used: {error}", hint="it must be JSON"
        ) from error
    settings = Settings(
        outputs=(target,),
        insecure_registries=insecure_registries,
        ca_file=ca_file,
        on_warning=warn,
    )
    signer = signer_for(key, os.environ) if key else None
    services = image_services_for(settings)
    found = services.open(target, platform).image
    made = report_statement(kind, report, found.digest, tool=tool, date=day)
    if signer is not None:
        signed = attest_image(signer, found.sealed.manifest_descriptor, [made])
        services.sign_index(lambda _place: signed, found.sealed)
    else:
        notes = {PREDICATE: REPORTS.get(kind, kind), _CREATED: day}
        notes |= {_TOOL: tool} if tool else {}
        subject = found.sealed.manifest_descriptor
        services.attach(found.sealed, [attach_document(subject, made, MEDIA_IN_TOTO, notes)])
    if output_format == "json":
        print_json({"digest": found.digest, "type": REPORTS.get(kind, kind), "date": day})
        return
    note(f"attached{', signed' if signer else ''}: {REPORTS.get(kind, kind)} of {day}")
    print_value(f"{image.partition('@')[0]}@{found.digest}")


def _date(text: str | None, file: Path) -> str:
    """Return when a report was made; raise `UsageError` for no time."""
    if text is not None:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError as error:
            raise UsageError(
                f"--date {text!r} is no time", hint="such as 2026-11-30T12:00:00Z"
            ) from error
    else:
        written = file.stat().st_mtime if file.exists() else 0
        moment = stated_time(os.environ) or datetime.fromtimestamp(int(written), UTC)
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
