"""`packager cache ls`, `show`, `stats`, `failures` and `clear-negative`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

from packager.cli.cache_options import cache_place_options
from packager.cli.cache_place import opened_place
from packager.cli.options import format_option, format_option_of
from packager.cli.terminal import print_json, print_lines, print_text
from packager.errors import NotFound, UsageError


@click.command("ls")
@click.option("--kind", metavar="KIND", help="Only these, such as quantized-checkpoint.")
@click.option(
    "--sort",
    type=click.Choice(("built", "used", "size", "model")),
    default="built",
    show_default=True,
    help="What comes first: the newest, the last used, the largest.",
)
@cache_place_options
@format_option
def ls(kind: str | None, sort: str, output_format: str, **given: Any) -> None:
    """List the entries on this machine."""
    from packager.reports.cache import list_text

    orders: dict[str, Callable[[Any], Any]] = {
        "built": lambda one: -one.built_at,
        "used": lambda one: -one.used_at,
        "size": lambda one: -one.bytes,
        "model": lambda one: (one.model, -one.built_at),
    }
    with opened_place(given) as (place, _):
        found = sorted(place.listed(kind), key=orders[sort])
    if output_format == "json":
        print_json([asdict(one) for one in found])
    else:
        print_text(list_text(found, time.time()))


@click.command()
@click.argument("key")
@cache_place_options
@format_option
def show(key: str, output_format: str, **given: Any) -> None:
    """Say all there is to say of an entry; of a failed build, its log."""
    from packager.reports.cache import entry_document, failure_text, show_text

    with opened_place(given) as (place, _):
        try:
            shown = place.show(place.find(key))
        except NotFound:
            failure = place.find_failure(key)
            if failure is None:
                raise
            if output_format == "json":
                print_json(asdict(failure))
            else:
                print_text(failure_text(failure, time.time()))
            return
    if output_format == "json":
        print_json(entry_document(shown))
    else:
        print_text(show_text(shown, time.time()))


@click.command()
@format_option_of("json", "prometheus")
@cache_place_options
def stats(output_format: str, **given: Any) -> None:
    """Say what the cache holds, what it did, and the time it saved."""
    from artifact_cache.stats import prometheus
    from packager.reports.cache import statistics_document, statistics_text

    with opened_place(given) as (place, _):
        found = place.statistics()
    if output_format == "prometheus":
        print_text(prometheus(found.totals))
    elif output_format == "json":
        print_json(statistics_document(found))
    else:
        print_text(statistics_text(found))


@click.command()
@cache_place_options
@format_option
def failures(output_format: str, **given: Any) -> None:
    """List builds that failed, newest first; `show KEY` has their logs."""
    from packager.reports.cache import failures_text

    with opened_place(given) as (place, _):
        found = sorted(place.failures.list(), key=lambda one: -one.failed_at)
    if output_format == "json":
        print_json([asdict(one) for one in found])
    else:
        print_text(failures_text(found, time.time()))


@click.command("clear-negative")
@click.argument("keys", metavar="KEY...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every one.")
@cache_place_options
@format_option
def clear_negative(
    keys: tuple[str, ...], everything: bool, output_format: str, **given: Any
) -> None:
    """Forget that builds failed, so that what a tool rejected is tried again."""
    if bool(keys) == everything:
        raise UsageError("it is not said what to forget", hint="give keys, or --all")
    with opened_place(given) as (place, _):
        gone = place.clear_failures(keys)
    if output_format == "json":
        print_json([f"{one.kind}/{one.key}" for one in gone])
    else:
        print_lines([f"{one.kind}/{one.key[:12]}" for one in gone] or ["nothing had failed"])
