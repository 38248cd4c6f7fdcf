"""`packager cache verify`, `gc`, `pin`, `unpin` and `pins`."""

from __future__ import annotations

import time
from typing import Any

import click

from packager.cli.commands.cache_options import cache_place_options
from packager.cli.commands.cache_place import opened_place
from packager.cli.field_options import RenamedOption, TimeRange
from packager.cli.progress import progress_options, shown_progress
from packager.cli.shared_options import format_option
from packager.cli.terminal import print_json, print_line, print_lines, print_result
from packager.core.errors import OutputFailed, Unavailable, UsageError
from packager.core.events import StepEvent, working
from packager.core.units import parse_size


def _size(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:  # noqa: ARG001
    try:
        return None if text is None else int(str(parse_size(text)))
    except ValueError as error:
        what, _, how = str(error).partition("; ")
        raise UsageError(what, hint=how) from error


@click.command()
@click.option("--no-repair", is_flag=True, help="Only report: quarantine and restore nothing.")
@cache_place_options
@progress_options
@format_option
def verify(no_repair: bool, progress: str, quiet: bool, output_format: str, **given: Any) -> int:
    """Read every byte on this machine and compare it; set aside what is broken.

    Ends with status 65 when something was broken, also when it was dealt with, and with 74
    when something could not be read: that is left where it is.

    \b
    packager cache verify
    """
    from artifact_cache.fsck import check
    from packager.cli.wiring.caches import trust_for
    from packager.optimize.cache.errors import CacheRefused
    from packager.optimize.cache.report import checked_document, checked_report

    started = time.monotonic()
    with (
        shown_progress(progress, quiet=quiet, as_json=output_format == "json") as on_event,
        opened_place(given, on_event) as (place, settings),
        working(on_event, "verify", str(place.root)),
    ):
        trust = trust_for(settings)
        found = check(
            place.store,
            trust=trust,
            repair=not no_repair,
            on_bytes=lambda done, size: on_event(
                StepEvent(
                    step="verify", detail=str(place.root), state="running", done=done, size=size
                )
            ),
        )
    seconds = time.monotonic() - started
    print_result(output_format, checked_document(found), checked_report(found, seconds))
    if found.unread:
        return OutputFailed.exit_code
    return CacheRefused.exit_code if found.problems else 0


@click.command()
@click.option(
    "--max-size", metavar="SIZE", callback=_size, help="Maximum size of the cache, such as 200GB."
)
@click.option(
    "--max-age",
    type=TimeRange(0),
    metavar="TIME",
    help="Maximum time since the last use, such as 30d.",
)
@click.option(
    "--min-age",
    "grace",
    cls=RenamedOption,
    earlier="--grace",
    type=TimeRange(0),
    metavar="TIME",
    default="1h",
    show_default=True,
    help="Keep entries younger than this.",
)
@click.option("--dry-run", is_flag=True, help="Only list what would be deleted.")
@cache_place_options
@progress_options
@format_option
def gc(
    max_size: int | None,
    max_age: float | None,
    grace: float,
    dry_run: bool,
    progress: str,
    quiet: bool,
    output_format: str,
    **given: Any,
) -> int:
    """Remove what is unused for too long, then the least recently used until the rest fits.

    Without --max-size and --max-age only what killed processes left goes, and
    blobs that belong to no entry.  What is pinned stays.  Safe beside builds.

    \b
    packager cache gc --max-size 50GB --dry-run
    """
    from artifact_cache.gc import GcPolicy, collect
    from packager.optimize.cache.report import collected_document, collected_report

    with (
        shown_progress(progress, quiet=quiet, as_json=output_format == "json") as on_event,
        opened_place(given, on_event) as (place, _),
        working(on_event, "gc", str(place.root)),
    ):
        policy = GcPolicy(max_bytes=max_size, max_age_s=max_age, grace_s=grace)
        found = collect(place.store, policy, dry_run=dry_run)
    print_result(output_format, collected_document(found), collected_report(found, time.time()))
    return Unavailable.exit_code if found.problem else 0


@click.command()
@click.argument("keys", metavar="KEY...", nargs=-1)
@click.option("--name", metavar="NAME", help="Name of the pin; derived from the key by default.")
@click.option("--model", metavar="MODEL", help="Pin every entry of this model, also future ones.")
@cache_place_options
@format_option
def pin(
    keys: tuple[str, ...], name: str | None, model: str | None, output_format: str, **given: Any
) -> None:
    """Pin entries, so that they are not collected; print the pin's name.

    \b
    packager cache pin 731d075e7ccf --name release-4
    packager cache pin --model meta-llama/Llama-3.1-8B --name llama
    """
    if not keys and not model:
        raise UsageError("nothing is named to be pinned", hint="give keys, or --model MODEL")
    if model and not model.isprintable():
        raise UsageError(f"no model is called {model[:60]!r}", hint="name it in plain text")
    with opened_place(given) as (place, _):
        found = [place.find(key) for key in keys]
        if name is None:
            if not found:
                raise UsageError("the pin needs a name", hint="add --name NAME")
            name = f"{found[0].kind}-{found[0].key[:12]}"
        made = place.pin(name, [one.key for one in found], {"model": model} if model else {})
    if output_format == "json":
        print_json({"name": name, **made.model_dump(mode="json", by_alias=True)})
    else:
        print_line(name)


@click.command()
@click.argument("name", metavar="NAME|KEY")
@cache_place_options
def unpin(name: str, **given: Any) -> None:
    """Remove a pin, or a key from the pins that hold it; print their names.

    \b
    packager cache unpin release-1
    """
    with opened_place(given) as (place, _):
        gone = place.unpin(name)
    print_lines(gone)


@click.command()
@cache_place_options
@format_option
def pins(output_format: str, **given: Any) -> None:
    """List the pins and what they hold.

    \b
    packager cache pins
    """
    with opened_place(given) as (place, _):
        found = place.pins.all()
    if output_format == "json":
        documents = {
            name: one.model_dump(mode="json", by_alias=True) for name, one in found.items()
        }
        print_json(documents)
        return
    for name, one in found.items():
        holds = [key[:12] for key in one.keys]
        holds += [f"{label}={value}" for label, value in one.labels.items()]
        holds += [f"{pointer}={value}" for pointer, value in one.where.items()]
        print_line(f"{name}  {', '.join(holds)}")
