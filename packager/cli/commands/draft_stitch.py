"""`packager draft stitch`."""

from __future__ import annotations

from pathlib import Path

import click

from packager.cli.shared_options import format_option
from packager.cli.terminal import print_result, warn
from packager.cli.wiring.builds import services_for
from packager.cli.wiring.settings import Settings
from packager.core.errors import PlanRejected
from packager.core.findings import errors_in
from packager.core.reports.report import Lines, one_section
from packager.core.units import decimal


@click.command()
@click.option("--model", required=True, metavar="MODEL", help="Model that the head belongs to.")
@click.option("--head", required=True, metavar="REF", help="Head of `draft train --method mtp`.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Output directory of the new checkpoint; it must not exist.",
)
@format_option
def stitch(model: str, head: str, output: Path, output_format: str) -> None:
    """Write a model with its fine-tuned MTP head as a new checkpoint.

    The head's tensors come in a shard of their own; every other tensor keeps its bytes.

    \b
    packager draft train --model ./model --method mtp --data chats.jsonl --output ./head
    packager draft stitch --model ./model --head ./head --output ./tuned
    packager build --model ./tuned --draft mtp --instance ml.p5.48xlarge --output …
    """
    from packager.optimize.drafts.stitch import check_mtp_head, stitched_files
    from packager.optimize.drafts.train.head_files import check_new_place, write_head

    check_new_place(output)
    services = services_for(Settings(on_warning=warn))
    found = services.find_model(services.parse_model_reference(model))
    given = services.find_draft(services.parse_model_reference(head))
    if errors_in(findings := tuple(check_mtp_head(given, found))):
        raise PlanRejected(findings)
    files = stitched_files(found, given, services.read_header)
    write_head(files, output)
    size = sum(file.size for file in files)
    document = {"model": model, "head": head, "output": str(output), "files": len(files),
                "tensors": len(given.tensors), "bytes": size}  # fmt: skip
    said = f"{output}: {len(files)} files, {decimal(size)}; {len(given.tensors)} tensors are new"
    print_result(output_format, document, one_section(f"MTP head of {model}", Lines((said,))))
