"""`packager cache ls`, `show`, `stats`, `failures` and `clear-negative`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

from packager.cli.commands.cache_options import cache_place_options
from packager.cli.commands.cache_place import opened_place
from packager.cli.shared_options import format_option, format_option_of
from packager.cli.terminal import print_json, print_lines, print_result, print_text
from packager.core.errors import NotFound, UsageError


@click.command("ls")
@click.option("--kind", metavar="KIND", help="List only this kind, such as quantized-checkpoint.")
@click.option(
    "--sort",
    type=click.Choice(("built", "used", "size", "model")),
    default="built",
    show_default=True,
    help="Sort order: the newest, the last used or the largest first.",
)
@cache_place_options
@format_option
def ls(kind: str | None, sort: str, output_format: str, **given: Any) -> None:
    """List the entries on this machine, and of shared stores that --cache-shared names.

    \b
    packager cache ls --sort size
    """
    from packager.optimize.cache.report import list_report

    orders: dict[str, Callable[[Any], Any]] = {
        "built": lambda one: -one.built_at,
        "used": lambda one: -one.used_at,
        "size": lambda one: -one.bytes,
        "model": lambda one: (one.model, -one.built_at),
    }
    asks_others = bool(given["cache_shared"])
    with opened_place(given) as (place, _):
        listed = place.listed_with_shared if asks_others else place.listed
        found = sorted(listed(kind), key=orders[sort])
    print_result(output_format, [asdict(one) for one in found], list_report(found, time.time()))


@click.command()
@click.argument("key")
@cache_place_options
@format_option
def show(key: str, output_format: str, **given: Any) -> None:
    """Show an entry in full, or the log of a failed build.

    \b
    packager cache show 012e063ff48a
    """
    from packager.optimize.cache.report import entry_document, failure_report, show_report

    with opened_place(given) as (place, _):
        try:
            shown = place.show(place.find(key))
        except NotFound:
            failure = place.find_failure(key)
            if failure is None:
                raise
            print_result(output_format, asdict(failure), failure_report(failure, time.time()))
            return
    print_result(output_format, entry_document(shown), show_report(shown, time.time()))


@click.command()
@format_option_of("json", "prometheus")
@cache_place_options
def stats(output_format: str, **given: Any) -> None:
    """Show the cache's contents, its hits and misses, and the time it saved.

    \b
    packager cache stats
    """
    from artifact_cache.stats import prometheus
    from packager.optimize.cache.report import statistics_document, statistics_report

    with opened_place(given) as (place, _):
        found = place.statistics()
    if output_format == "prometheus":
        print_text(prometheus(found.totals))
    else:
        print_result(output_format, statistics_document(found), statistics_report(found))


@click.command()
@cache_place_options
@format_option
def failures(output_format: str, **given: Any) -> None:
    """List builds that failed, newest first; `show KEY` has their logs.

    \b
    packager cache failures
    """
    from packager.optimize.cache.report import failures_report

    with opened_place(given) as (place, _):
        found = sorted(place.failures.list(), key=lambda one: -one.failed_at)
    print_result(output_format, [asdict(one) for one in found], failures_report(found, time.time()))


@click.command("clear-negative")
@click.argument("keys", metavar="KEY...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All failures.")
@cache_place_options
@format_option
def clear_negative(
    keys: tuple[str, ...], everything: bool, output_format: str, **given: Any
) -> None:
    """Clear recorded build failures, so that what a tool rejected is tried again.

    \b
    packager cache clear-negative --all
    """
    if bool(keys) == everything:
        raise UsageError("no failures selected to clear", hint="give keys, or --all")
    with opened_place(given) as (place, _):
        gone = place.clear_failures(keys)
    if output_format == "json":
        print_json([f"{one.kind}/{one.key}" for one in gone])
    else:
        print_lines([f"{one.kind}/{one.key[:12]}" for one in gone] or ["nothing had failed"])
