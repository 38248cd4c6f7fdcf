"""Options and printing that the commands of every platform share."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from packager.addons.deploy.checks import refuse_odd_image
from packager.addons.deploy.patches import MAX_BYTES, NO_PATCH, Patch, parse_patch
from packager.addons.deploy.wiring.deploy import DeployOptions, find_deployment
from packager.cli.field_options import Option, TimeRange, add_options
from packager.cli.shared_options import Command, image_options, policy_options, take_rate
from packager.cli.terminal import note, print_json, print_line, print_text, print_value
from packager.cli.wiring.settings import Settings
from packager.core.deployment import Applied, Change, Deployment, DeployStatus, RenderedFiles
from packager.core.errors import PlanRejected, UsageError
from packager.core.files.atomic import explain_disk_errors, write_atomically
from packager.core.files.user_files import read_user_file
from packager.core.findings import Finding, errors_in, finding_document

SMOKE_TOKENS = 16  # of an answer that shows that a deployment works
MAX_BODY_BYTES = 6 * 1024 * 1024  # of a request that SageMaker takes; others take more


def take_deployment(given: dict[str, Any]) -> Deployment:
    """Remove what `subject_options` gave, and return the deployment that it names."""
    settings = Settings(
        insecure_registries=given.pop("insecure_registries"), ca_file=given.pop("ca_file")
    )
    refuse_odd_image("--image", given["pulled"] or "")
    asked = DeployOptions(
        instance=given.pop("instance") or "",
        name=given.pop("name") or "",
        pulled=given.pop("pulled") or "",
        model_data=given.pop("model_data") or "",
        bytes_s=given.pop("bandwidth"),
    )
    return find_deployment(given.pop("image"), given.pop("platform"), settings, asked)


_SUBJECT: tuple[Option, ...] = (
    click.argument("image", metavar="IMAGE|RECORD"),
    click.option(
        "--instance",
        metavar="TYPE",
        help="Instance type to deploy on. Default: the one that the image was built for.",
    ),
    click.option("--name", metavar="NAME", help="Name of the deployment. Default: the model's."),
    click.option(
        "--image",
        "pulled",
        metavar="IMAGE",
        help="Address that nodes pull from, where it is another than was named.",
    ),
    click.option(
        "--model-data",
        metavar="S3_URI",
        help="Tree of the weights, for an image that has none in it.",
    ),
    click.option(
        "--bandwidth",
        metavar="RATE",
        callback=take_rate,
        help="How fast a node pulls and unpacks, as 300MB or 10Gbit a second; for predicted times.",
    ),
    image_options,
    policy_options,
)
# The argument IMAGE and the options that say what is deployed; see `take_deployment`.
subject_options = add_options(_SUBJECT)


def wait_options(command: Command) -> Command:
    """Add --wait and --timeout."""
    wait = click.option("--wait", is_flag=True, help="Wait until it serves, or has failed.")
    seconds = click.option(
        "--timeout",
        "timeout_s",
        type=TimeRange(1, 86400),
        default=3600.0,
        show_default=True,
        metavar="TIME",
        help="Longest wait.",
    )
    return wait(seconds(command))


grace_option = click.option(
    "--grace",
    "grace_s",
    type=TimeRange(1, 86400, whole=True),
    metavar="TIME",
    help="Between the wish that a server ends and its kill; the engine is told its share. Default: "
    "the image's, in a pod with 5 s more.",
)

patch_option = click.option(
    "--patch",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Change what is rendered, where no option does: fields to merge, or a list of operations "
    "of a JSON patch (YAML or JSON).",
)


def take_patch(place: Path | None) -> Patch:
    """Return the changes of a file; none without a file."""
    if place is None:
        return NO_PATCH
    data = read_user_file(
        place, what="the patch", hint="name a file of YAML or JSON", max_bytes=MAX_BYTES
    )
    return parse_patch(data, str(place))


output_option = click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the files into DIR, too; it is created.",
)


def show_rendered(rendered: RenderedFiles, output: Path | None, output_format: str) -> None:
    """Write the files, print them and their findings; raise `PlanRejected` for errors."""
    tell_findings(rendered.findings)
    if output is not None:
        for file in rendered.files:
            place = output / file.path
            with explain_disk_errors(place):
                place.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(place, file.text.encode())
    if output_format == "json":
        print_json(
            {
                "files": [{"path": one.path, "text": one.text} for one in rendered.files],
                "findings": [finding_document(one) for one in rendered.findings],
            }
        )
    elif output is not None:
        for file in rendered.files:
            print_value(str(output / file.path))
    else:
        print_text("".join(_titled(one.path, one.text) for one in rendered.files).rstrip("\n"))


def tell_findings(findings: Iterable[Finding]) -> None:
    """Print warnings and notes to stderr; raise `PlanRejected` where there is an error."""
    found = tuple(findings)
    if errors_in(found):
        raise PlanRejected(found)
    for finding in found:
        note(f"{finding.severity}: {finding.message}")
        if finding.hint:
            note(f"hint: {finding.hint}")


def show_changes(changes: Iterable[Change], output_format: str) -> None:
    """Print changes, a line each, with the fields that differ below."""
    found = tuple(changes)
    if output_format == "json":
        print_json({"changes": [change_document(one) for one in found]})
        return
    for change in found:
        print_line(f"{change.kind:<8} {change.resource} {change.name}")
        for path, now, wanted in change.differences:
            print_line(f"         {path}: {now!r} -> {wanted!r}")


def show_applied(applied: Applied, output_format: str) -> None:
    """Print the result, and the address of the server."""
    if output_format == "json":
        print_json(applied_document(applied))
        return
    show_changes(applied.changes, "text")
    if applied.address:
        print_line(f"address  {applied.address}")


def applied_document(applied: Applied) -> dict[str, Any]:
    """Return what was done, for JSON."""
    changes = [change_document(one) for one in applied.changes]
    return {"changes": changes, "address": applied.address or None}


def show_status(status: DeployStatus, output_format: str) -> None:
    """Print the state of a deployment."""
    if output_format == "json":
        print_json(
            {
                "state": status.state,
                "said": status.said,
                "image": status.image or None,
                "ready": status.ready,
                "wanted": status.wanted,
                "reason": status.reason or None,
                "address": status.address or None,
                "details": dict(status.details),
            }
        )
        return
    rows: Mapping[str, Any] = {
        "state": status.state
        + (f" ({status.said})" if status.said not in ("", status.state) else ""),
        "replicas": None if status.ready is None else f"{status.ready} of {status.wanted}",
        "image": status.image,
        "address": status.address,
        "reason": status.reason,
    }
    for name, value in rows.items():
        if value:
            print_line(f"{name:<10}{value}")


def read_body(place: str | None) -> bytes:
    """Return a request's body: a file's, or of stdin for `-`; raise where it is too long."""
    if place in (None, "-"):
        data = sys.stdin.buffer.read(MAX_BODY_BYTES + 1)
        if len(data) > MAX_BODY_BYTES:
            raise UsageError(
                f"the request is larger than {MAX_BODY_BYTES} bytes", hint="send a shorter one"
            )
        return data
    return read_user_file(
        Path(str(place)),
        what="the request",
        hint="write the JSON that the server takes into a file",
        max_bytes=MAX_BODY_BYTES,
    )


def prompt_options(model: str) -> Option:
    """Return a decorator for what one request asks; `model` says whose name a chat has."""
    return add_options(
        (
            click.argument("body", required=False, metavar="[FILE|-]"),
            click.option(
                "--prompt", metavar="TEXT", help="Ask this, as a chat, instead of a file."
            ),
            click.option("--model", default="", metavar="NAME", help=model),
            click.option(
                "--max-tokens",
                metavar="N",
                type=click.IntRange(1),
                default=64,
                show_default=True,
                help="Of an answer.",
            ),
        )
    )


def check_asked(body: str | None, prompt: str | None) -> None:
    """Raise `UsageError` unless there is one of a file and a prompt."""
    if (body is None) == (prompt is None):
        raise UsageError("nothing is asked, or two things", hint="give FILE, or --prompt TEXT")


def show_answer(data: bytes) -> None:
    """Print a server's answer, JSON as it is, with what a terminal would obey escaped."""
    print_text(data.decode("utf-8", errors="replace"))


def change_document(change: Change) -> dict[str, Any]:
    """Return a change for JSON."""
    return {
        "kind": change.kind,
        "resource": change.resource,
        "name": change.name,
        "differences": [
            {"path": path, "now": now, "wanted": wanted} for path, now, wanted in change.differences
        ],
    }


def _titled(path: str, text: str) -> str:
    """Return a file with its name above it, as a comment where its format has some."""
    if path.endswith((".yaml", ".yml")):
        return f"---\n# {path}\n{text.removeprefix('---').lstrip()}"
    return f"# {path}\n{text.rstrip()}\n"
