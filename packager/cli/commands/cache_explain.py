"""`packager cache explain`."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import click

from packager.cli.commands.cache_options import cache_options, take_cache_options
from packager.cli.commands.cache_place import opened_place
from packager.cli.options import request_fields, request_options
from packager.cli.progress import progress_options, shown_progress
from packager.cli.shared_options import format_option
from packager.cli.terminal import print_json, print_lines, warn
from packager.core.errors import NotFound, UsageError
from packager.core.events import EventSink


@click.command()
@click.argument("key", required=False)
@click.option("--last", is_flag=True, help="Look-ups of the last build.")
@click.option(
    "--limit",
    type=click.IntRange(1, 20),
    metavar="N",
    default=3,
    show_default=True,
    help="Number of nearest entries to show.",
)
@request_options
@request_fields("base")
@cache_options
@progress_options
@format_option
def explain(
    key: str | None,
    last: bool,
    limit: int,
    output_format: str,
    progress: str,
    quiet: bool,
    **given: Any,
) -> None:
    """Explain why a look-up missed: the nearest entries, and each field that differs.

    For the look-ups of the last build (--last), for those of a build with these
    options, or for an existing entry (KEY).  A key contains every file's digest:
    a local model that was never hashed is hashed first.

    \b
    packager cache explain --last
    packager cache explain --model MODEL --instance ml.g5.xlarge --quantize awq
    """
    from packager.optimize.cache.report import explanation_lines, neighbour_lines

    asked = {name: value for name, value in given.items() if value not in (None, (), False)}
    asked_for = {"model", "request_file"} & asked.keys()
    if sum((key is not None, last, bool(asked_for))) != 1:
        raise UsageError(
            "no look-up selected to explain", hint="give one of KEY, --last, and --model …"
        )
    if key is not None:
        lines, documents = _neighbours(key, limit, given)
        if output_format == "text":
            lines += [line for one in documents for line in neighbour_lines(one, time.time())]
            lines += [] if documents else ["  no other entry of its kind is in the cache"]
    else:
        with shown_progress(progress, quiet=quiet, as_json=output_format == "json") as on_event:
            documents = _last() if last else _of_request(limit, given, on_event)
        lines = [line for one in documents for line in explanation_lines(one, time.time())]
    if output_format == "json":
        print_json(documents)
        return
    print_lines(lines)


def _neighbours(
    key: str, limit: int, given: dict[str, Any]
) -> tuple[list[str], list[dict[str, Any]]]:
    from packager.optimize.cache.lookups import neighbour_document

    with opened_place(given) as (place, _):
        address = place.find(key)
        nearest = place.nearest(address, limit)
    documents = [neighbour_document(one) for one in nearest]
    return [f"{address.kind}: {address.key[:12]} is in the cache"], documents


def _last() -> list[dict[str, Any]]:
    from packager.cli.wiring.caches import last_lookups
    from packager.cli.wiring.settings import Settings

    found = [dict(one) for one in last_lookups(Settings())]
    if not found:
        raise NotFound(
            "no build has asked the cache yet",
            hint="build something that is quantized or compiled, or give --model …",
        )
    return found


def _of_request(limit: int, given: dict[str, Any], on_event: EventSink) -> list[dict[str, Any]]:
    from artifact_cache.key import plain
    from packager.cli.options import make_request
    from packager.cli.wiring.builds import services_for
    from packager.cli.wiring.caches import artifact_cache_for
    from packager.cli.wiring.settings import settings_for
    from packager.optimize.cache.lookups import explanation_document
    from packager.pipeline import pipeline

    chosen = {
        "cache_dir": given.pop("cache_dir", None),
        "use_cache": not given.pop("no_cache", False),
        "cache": take_cache_options(given),
    }
    request = make_request(given.pop("request_file", None), **given)
    settings = replace(
        settings_for(request),
        **chosen,
        headers_only=True,
        on_miss="refuse",  # a build that streams looks a tool's result up, too
        read_local=True,  # a key has digests: weights without one are hashed once
        on_event=on_event,
        on_warning=warn,
    )
    services = services_for(settings)
    planned = pipeline.plan(request, services)
    looked_up = [*zip(planned.recipe.steps, planned.forecasts, strict=False)]
    if planned.layers and not any(
        one.step == "quantize" and one.state == "hit" for _, one in looked_up
    ):
        looked_up.append((planned.layers, services.check_cache(planned.layers)))
    if not looked_up:
        raise UsageError(
            "a build of this would ask the cache for nothing: no step is planned",
            hint="add what shall be done, such as --quantize awq",
        )
    opened = artifact_cache_for(settings)
    documents = []
    for step, forecast in looked_up:
        if step.key is None or opened is None:
            raise UsageError(
                f"step {step.name!r} cannot be looked up: {forecast.reason}",
                hint="build once, or name a model that is on this machine: then it is read here",
            )
        found = explanation_document(opened.explain(step.key, limit))
        asked = {"step": step.name, "labels": dict(step.labels), "document": plain(step.key)}
        documents.append({**asked, **found})
    return documents
