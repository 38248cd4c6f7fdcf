"""`packager sbom`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from packager.cli.shared_options import format_option_of, image_options
from packager.cli.terminal import print_report, print_text
from packager.cli.wiring.images import image_services_for
from packager.cli.wiring.settings import Settings, parse_output
from packager.core.image import Platform
from packager.core.references import ImageTarget
from packager.images.sbom.reading import find_sbom, parse_sbom, sbom_beside, sbom_report
from packager.images.sbom.spdx import spdx_document
from packager.images.target import DIRECTORY, directory_of


@click.command()
@click.argument("image")
@image_options
@format_option_of(
    "json",
    "spdx",
    help="`json` is the document itself, CycloneDX 1.6; `spdx` the same as SPDX 2.3.",
)
def sbom(
    image: str,
    platform: Platform,
    insecure_registries: tuple[str, ...],
    ca_file: Path | None,
    output_format: str,
) -> None:
    """Show the parts of IMAGE: model, draft, data, engine, base, configuration.

    IMAGE is HOST/REPOSITORY:TAG, oci:DIR[:TAG] or dir:DIR.  A build attaches
    the list to the image, and changes no digest by it; beside dir:DIR it is
    DIR.sbom.cdx.json.  What is not known is named as incomplete.  An engine's
    image (docker:NAME) has none.

    \b
    packager sbom oci:out
    packager sbom REGISTRY/models/tiny:1 --format spdx > tiny.spdx.json
    """
    settings = Settings(insecure_registries=insecure_registries, ca_file=ca_file)
    document = _document(parse_output(image), platform, settings)
    parsed = parse_sbom(document, image)
    if output_format == "text":
        print_report(sbom_report(parsed, image))
    else:
        found = spdx_document(document, parsed) if output_format == "spdx" else document
        print_text(found.decode())


def read_sbom(target: ImageTarget, platform: Platform, settings: Settings) -> Mapping[str, Any]:
    """Return the SBOM of an image or a tree, parsed; raise `NotFound` without one."""
    return parse_sbom(_document(target, platform, settings), target.text)


def _document(target: ImageTarget, platform: Platform, settings: Settings) -> bytes:
    if target.scheme == DIRECTORY:
        return sbom_beside(directory_of(target))
    return find_sbom(image_services_for(settings).open(target, platform))
