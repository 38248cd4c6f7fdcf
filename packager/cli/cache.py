"""`packager cache`."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packager.cli.options import (
    cache_options,
    cache_place_options,
    format_option,
    registry_options,
    request_options,
    take_cache_options,
)
from packager.cli.progress import progress_options, shown_progress
from packager.core.events import EventSink, StepEvent, ignore
from packager.core.units import parse_size
from packager.errors import NotFound, Unavailable, UsageError
from packager.reports.text import json_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from artifact_cache.entry import Entry
    from artifact_cache.stores.archive import Imported
    from packager import wiring
    from packager.jobs.cache import CachePlace
    from packager.ports import ImageSink

_OF_TREES = {
    "instance": "instance",
    "logical_core_size": "logical-core-size",
    "model": "model",
    "modules": "module",
    "logs": "log",
    "all_modules": "all-modules",
    "config": "config",
    "stated": "state",
    "document": "as",
}
_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(s|min|h|d|w)")
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def _size(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:  # noqa: ARG001
    try:
        return None if text is None else int(str(parse_size(text)))
    except ValueError as error:
        raise UsageError(str(error)) from error


def _span(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:  # noqa: ARG001
    if text is None:
        return None
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{text!r} is not a span of time", hint="write it as 30d, 12h or 90min")
    return float(found[1]) * _SECONDS[found[2]]


@click.group()
def cache() -> None:
    """Look into the artifact cache, tidy it, hand entries on, and ask why something missed.

    Keys may be shortened as far as they stay unique.

    \b
    Status: 0 done; 2 wrong arguments; 65 something in the cache, an archive or a
    tree is damaged or refused; 66 no such entry; 69 busy, try again; 74 the cache
    cannot be written; 77 nobody trusted vouches for an entry.
    """


@contextmanager
def _place(
    given: dict[str, Any], on_event: EventSink = ignore
) -> Iterator[tuple[CachePlace, wiring.Settings]]:
    from packager import wiring
    from packager.adapters.cache_errors import explained_cache_errors
    from packager.jobs.cache import CachePlace

    settings = wiring.Settings(
        cache_dir=given.pop("cache_dir", None),
        cache=take_cache_options(given),
        insecure_registries=given.pop("insecure_registries", ()),
        ca_file=given.pop("ca_file", None),
        on_event=on_event,
        on_warning=_warn,
    )
    opened = wiring.artifact_cache_for(settings)
    assert opened is not None  # `use_cache` is true
    with explained_cache_errors():
        yield (
            CachePlace(wiring.artifacts_dir(settings), opened, wiring.signer_for(settings)),
            settings,
        )


def _warn(text: str) -> None:
    click.echo(f"warning: {text}", err=True)


@contextmanager
def _working(on_event: EventSink, step: str, detail: str) -> Iterator[None]:
    on_event(StepEvent(step=step, detail=detail, state="started"))
    yield
    on_event(StepEvent(step=step, detail=detail, state="finished"))


@cache.command("ls")
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
    with _place(given) as (place, _):
        found = sorted(place.listed(kind), key=orders[sort])
    if output_format == "json":
        click.echo(json_text([asdict(one) for one in found]))
    else:
        click.echo(list_text(found, time.time()))


@cache.command()
@click.argument("key")
@cache_place_options
@format_option
def show(key: str, output_format: str, **given: Any) -> None:
    """Say all there is to say of an entry; of a failed build, its log."""
    from packager.reports.cache import entry_document, failure_text, show_text

    with _place(given) as (place, _):
        try:
            shown = place.show(place.find(key))
        except NotFound:
            failure = place.find_failure(key)
            if failure is None:
                raise
            document = asdict(failure)
            text = failure_text(failure, time.time())
            click.echo(json_text(document) if output_format == "json" else text)
            return
    if output_format == "json":
        click.echo(json_text(entry_document(shown)))
    else:
        click.echo(show_text(shown, time.time()))


@cache.command()
@click.option(
    "--format",
    "output_format",
    type=click.Choice(("text", "json", "prometheus")),
    default="text",
    show_default=True,
    help="How the result is printed on stdout.",
)
@cache_place_options
def stats(output_format: str, **given: Any) -> None:
    """Say what the cache holds, what it did, and the time it saved."""
    from artifact_cache.stats import prometheus
    from packager.reports.cache import statistics_document, statistics_text

    with _place(given) as (place, _):
        found = place.statistics()
    if output_format == "prometheus":
        click.echo(prometheus(found.totals), nl=False)
    elif output_format == "json":
        click.echo(json_text(statistics_document(found)))
    else:
        click.echo(statistics_text(found))


@cache.command()
@click.option("--no-repair", is_flag=True, help="Only look: set nothing aside, bring nothing back.")
@cache_place_options
@progress_options
@format_option
def verify(no_repair: bool, progress: str, quiet: bool, output_format: str, **given: Any) -> int:
    """Read every byte on this machine and compare it; set aside what is broken.

    Ends with status 65 when something was broken, also when it was dealt with.
    """
    from artifact_cache.fsck import check
    from packager import wiring
    from packager.adapters.cache_errors import CacheRefused
    from packager.reports.cache import checked_document, checked_text

    started = time.monotonic()
    with (
        shown_progress(progress, quiet=quiet, as_json=output_format == "json") as on_event,
        _place(given, on_event) as (place, settings),
        _working(on_event, "verify", str(place.root)),
    ):
        trust = wiring.trust_for(settings)
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
    if output_format == "json":
        click.echo(json_text(checked_document(found)))
    else:
        click.echo(checked_text(found, seconds))
    return CacheRefused.exit_code if found.problems else 0


@cache.command()
@click.option("--max-size", metavar="SIZE", callback=_size, help="Keep no more than, say, 200GB.")
@click.option(
    "--max-age", metavar="SPAN", callback=_span, help="Keep nothing unused for, say, 30d."
)
@click.option(
    "--grace",
    metavar="SPAN",
    callback=_span,
    default="1h",
    show_default=True,
    help="Leave what is younger alone.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
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
    """
    from artifact_cache.gc import GcPolicy, collect
    from packager.reports.cache import collected_document, collected_text

    with (
        shown_progress(progress, quiet=quiet, as_json=output_format == "json") as on_event,
        _place(given, on_event) as (place, _),
        _working(on_event, "gc", str(place.root)),
    ):
        policy = GcPolicy(max_bytes=max_size, max_age_s=max_age, grace_s=grace)
        found = collect(place.store, policy, dry_run=dry_run)
    if output_format == "json":
        click.echo(json_text(collected_document(found)))
    else:
        click.echo(collected_text(found, time.time()))
    return Unavailable.exit_code if found.problem else 0


@cache.command()
@click.argument("keys", metavar="KEY...", nargs=-1)
@click.option("--name", metavar="NAME", help="The pin's name; made of the key if none.")
@click.option("--model", metavar="MODEL", help="Hold every entry of this model, also later ones.")
@cache_place_options
@format_option
def pin(
    keys: tuple[str, ...], name: str | None, model: str | None, output_format: str, **given: Any
) -> None:
    """Keep entries from being collected; print the pin's name.

    \b
    packager cache pin 731d075e7ccf --name release-4
    packager cache pin --model meta-llama/Llama-3.1-8B --name llama
    """
    if not keys and not model:
        raise UsageError("nothing is named to be pinned", hint="give keys, or --model MODEL")
    with _place(given) as (place, _):
        found = [place.find(key) for key in keys]
        if name is None:
            if not found:
                raise UsageError("the pin has no name", hint="add --name NAME")
            name = f"{found[0].kind}-{found[0].key[:12]}"
        made = place.pin(name, [one.key for one in found], {"model": model} if model else {})
    if output_format == "json":
        click.echo(json_text({"name": name, **made.model_dump(mode="json", by_alias=True)}))
    else:
        click.echo(name)


@cache.command()
@click.argument("name", metavar="NAME|KEY")
@cache_place_options
def unpin(name: str, **given: Any) -> None:
    """Let go of a pin, or of a key in whatever pins hold it; print their names."""
    with _place(given) as (place, _):
        gone = place.unpin(name)
    click.echo("\n".join(gone))


@cache.command()
@cache_place_options
@format_option
def pins(output_format: str, **given: Any) -> None:
    """List the pins and what they hold."""
    with _place(given) as (place, _):
        found = place.pins.all()
    if output_format == "json":
        documents = {
            name: one.model_dump(mode="json", by_alias=True) for name, one in found.items()
        }
        click.echo(json_text(documents))
        return
    for name, one in found.items():
        holds = [key[:12] for key in one.keys]
        holds += [f"{label}={value}" for label, value in one.labels.items()]
        holds += [f"{pointer}={value}" for pointer, value in one.where.items()]
        click.echo(f"{name}  {', '.join(holds)}")


@cache.command("export")
@click.argument("keys", metavar="KEY...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every entry on this machine.")
@click.option(
    "--to",
    "target",
    metavar="TARGET",
    required=True,
    help="FILE.tar, oci:DIR, or REGISTRY/REPOSITORY.",
)
@cache_place_options
@registry_options
@progress_options
@format_option
def export(
    keys: tuple[str, ...],
    everything: bool,
    target: str,
    progress: str,
    quiet: bool,
    output_format: str,
    **given: Any,
) -> None:
    """Write entries to an archive, an OCI layout or a registry; print where they are.

    Every file is compared on its way out, and signatures stay.

    \b
    packager cache export 731d075e7ccf --to entries.tar
    packager cache export --all --to REGISTRY/models/cache
    """
    if bool(keys) == everything:
        raise UsageError("it is not said what to export", hint="give keys, or --all")
    with (
        shown_progress(progress, quiet=quiet, as_json=output_format == "json") as on_event,
        _place(given, on_event) as (place, settings),
        _working(on_event, "export", target),
    ):
        found = [place.find(key) for key in keys]
        found += [place.find(f"{one.kind}/{one.key}") for one in place.listed() if everything]
        if target.endswith(".tar"):
            size = place.export_to_archive(found, Path(target))
            written = [{"name": target, "entries": len(found), "bytes": size}]
        else:
            refs = place.export_to_images(found, _sink_of(target, len(found), settings))
            written = [{"name": ref.name, "digest": ref.digest} for ref in refs]
    if output_format == "json":
        click.echo(json_text(written))
        return
    for one in written:
        click.echo(f"{one['name']}@{one['digest']}" if "digest" in one else str(one["name"]))


def _sink_of(target: str, count: int, settings: wiring.Settings) -> Callable[[Entry], ImageSink]:
    from packager import plugins, wiring
    from packager.adapters.cache_oci import tag_of

    scheme = plugins.scheme_of(target, plugins.SINKS)
    if scheme == "docker":
        raise UsageError(
            f"{target!r} is an engine, and an entry is no image",
            hint="give FILE.tar, oci:DIR or REGISTRY/REPOSITORY",
        )
    tagged = ":" in target.removeprefix("oci:").rpartition("/")[2]
    if tagged and count > 1:
        raise UsageError(
            f"{target!r} names one tag for {count} entries",
            hint="leave the tag out: each gets one of its kind and key",
        )
    return lambda entry: wiring.entry_sink(
        target if tagged else f"{target}:{tag_of(entry)}", settings
    )


@cache.command("import")
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@click.option(
    "--from",
    "layout",
    type=click.Choice(("optimum-neuron", "neo")),
    help="SOURCE is a directory that these tools keep compiled graphs in.",
)
@click.option("--instance", metavar="TYPE", help="What the graphs were compiled for: ml.inf2.…")
@click.option(
    "--logical-core-size",
    type=click.IntRange(1, 8),
    metavar="N",
    help="Physical NeuronCores that act as one, where neither flags nor files say it.",
)
@click.option("--model", metavar="NAME", help="Only what the registry has of this model.")
@click.option(
    "--module", "modules", multiple=True, metavar="MODULE_…", help="Only these graphs. Repeatable."
)
@click.option(
    "--log",
    "logs",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Only graphs that this log of a compilation names. Repeatable.",
)
@click.option("--all-modules", is_flag=True, help="Give every model all graphs that may be its.")
@click.option(
    "--config", type=click.Path(path_type=Path), metavar="FILE", help="The model's config.json."
)
@click.option(
    "--state",
    "stated",
    multiple=True,
    metavar="/POINTER=JSON",
    help="What the tree does not say of the key, such as /shape/max_batch=8. Repeatable.",
)
@click.option(
    "--as",
    "document",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The key document that shall find it; what the tree says must agree.",
)
@cache_place_options
@registry_options
@progress_options
@format_option
def import_(
    sources: tuple[str, ...],
    layout: str | None,
    progress: str,
    quiet: bool,
    output_format: str,
    **given: Any,
) -> None:
    """Take entries from archives, OCI layouts, registries, or other tools' caches.

    SOURCE is FILE.tar, - for one on stdin, oci:DIR[:TAG] or REGISTRY/REPOSITORY:TAG;
    with --from, a directory.  Everything is compared before anything is kept,
    and the trust policy decides what is taken.

    \b
    packager cache import entries.tar
    packager cache import --from optimum-neuron /var/tmp/neuron-compile-cache
    """
    said = {name: given.pop(name) for name in _OF_TREES}
    if layout is None and any(said.values()):
        wrong = next(name for name in _OF_TREES if said[name])
        raise UsageError(
            f"--{_OF_TREES[wrong]} is for other tools' caches",
            hint="add --from optimum-neuron or --from neo",
        )
    published: list[Entry] = []
    known: list[Entry] = []
    with (
        shown_progress(progress, quiet=quiet, as_json=output_format == "json") as on_event,
        _place(given, on_event) as (place, settings),
    ):
        for source in sources:
            with _working(on_event, "import", source):
                if layout is not None:
                    from packager.jobs.foreign_caches import Stated, import_tree

                    done = import_tree(layout, Path(source), place, Stated(**said))
                    for text in done.notes:
                        _warn(text)
                    taken = done.imported
                else:
                    taken = _import(source, place, settings)
                published += taken.published
                known += taken.known
    if output_format == "json":
        click.echo(
            json_text(
                {
                    "published": [f"{one.kind}/{one.key}" for one in published],
                    "known": [f"{one.kind}/{one.key}" for one in known],
                }
            )
        )
        return
    for one in published:
        click.echo(f"{one.kind}/{one.key}")
    if not quiet:
        from packager.reports.cache import entries

        already = f", {len(known)} here already" if known else ""
        click.echo(f"{entries(len(published))} imported{already}", err=True)


def _import(source: str, place: CachePlace, settings: wiring.Settings) -> Imported:
    from packager import wiring

    if source == "-":
        return place.import_from_archive(sys.stdin.buffer)
    if source.endswith(".tar") and not source.startswith("oci:"):
        try:
            with Path(source).open("rb") as reader:
                return place.import_from_archive(reader)
        except FileNotFoundError as error:
            raise NotFound(
                f"there is no archive {source!r}", hint="`packager cache export` writes one"
            ) from error
    return wiring.import_entries(source, place.cache.store, place.scratch, settings)


@cache.command()
@click.argument("key", required=False)
@click.option("--last", is_flag=True, help="What the last build asked the cache.")
@click.option(
    "--limit", type=click.IntRange(1, 20), default=3, show_default=True, help="Neighbours shown."
)
@request_options
@click.option("--base", metavar="IMAGE", help="Base image, which keys of compiled files name.")
@cache_options
@format_option
def explain(key: str | None, last: bool, limit: int, output_format: str, **given: Any) -> None:
    """Say why a look-up missed: the nearest entries, and each field that differs.

    Of what was asked by the last build (--last), of what a build with these
    options would ask, or of an entry that is there (KEY).

    \b
    packager cache explain --last
    packager cache explain --model MODEL --instance ml.g5.xlarge --quantize awq
    """
    from packager.reports.cache import explanation_lines, neighbour_lines

    asked = {name: value for name, value in given.items() if value not in (None, (), False)}
    asked_for = {"model", "request_file"} & asked.keys()
    if sum((key is not None, last, bool(asked_for))) != 1:
        raise UsageError(
            "it is not said what to explain", hint="give one of KEY, --last, and --model …"
        )
    if key is not None:
        lines, documents = _neighbours(key, limit, given)
        if output_format == "text":
            lines += [line for one in documents for line in neighbour_lines(one, time.time())]
            lines += [] if documents else ["  no other entry of its kind is in the cache"]
    else:
        documents = _last() if last else _of_request(limit, given)
        lines = [line for one in documents for line in explanation_lines(one, time.time())]
    if output_format == "json":
        click.echo(json_text(documents))
        return
    from packager.reports.text import plain

    click.echo(plain("\n".join(lines)))


def _neighbours(
    key: str, limit: int, given: dict[str, Any]
) -> tuple[list[str], list[dict[str, Any]]]:
    from packager.adapters.lookups import neighbour_document

    with _place(given) as (place, _):
        address = place.find(key)
        nearest = place.nearest(address, limit)
    documents = [neighbour_document(one) for one in nearest]
    return [f"{address.kind}: {address.key[:12]} is in the cache"], documents


def _last() -> list[dict[str, Any]]:
    from packager import wiring

    found = [dict(one) for one in wiring.last_lookups(wiring.Settings())]
    if not found:
        raise NotFound(
            "no build has asked the cache yet",
            hint="build something that is quantized or compiled, or give --model …",
        )
    return found


def _of_request(limit: int, given: dict[str, Any]) -> list[dict[str, Any]]:
    from artifact_cache.key import plain
    from packager import pipeline, wiring
    from packager.adapters.lookups import explanation_document
    from packager.cli.options import make_request

    settings = wiring.Settings(
        headers_only=True,
        cache_dir=given.pop("cache_dir", None),
        use_cache=not given.pop("no_cache", False),
        cache=take_cache_options(given),
        on_warning=_warn,
    )
    request = make_request(given.pop("request_file", None), **given)
    planned = pipeline.plan(request, wiring.tools_for(settings))
    if not planned.recipe.steps:
        raise UsageError(
            "a build of this would ask the cache for nothing: no step is planned",
            hint="add what shall be done, such as --quantize awq",
        )
    opened = wiring.artifact_cache_for(settings)
    documents = []
    for step, forecast in zip(planned.recipe.steps, planned.forecasts, strict=True):
        if step.key is None or opened is None:
            raise UsageError(
                f"step {step.name!r} cannot be looked up: {forecast.reason}",
                hint="build once: the digests of the weights are kept from then on",
            )
        found = explanation_document(opened.explain(step.key, limit))
        asked = {"step": step.name, "labels": dict(step.labels), "document": plain(step.key)}
        documents.append({**asked, **found})
    return documents


@cache.command()
@cache_place_options
@format_option
def failures(output_format: str, **given: Any) -> None:
    """List builds that failed, newest first; `show KEY` has their logs."""
    from packager.reports.cache import failures_text

    with _place(given) as (place, _):
        found = sorted(place.failures.list(), key=lambda one: -one.failed_at)
    if output_format == "json":
        click.echo(json_text([asdict(one) for one in found]))
    else:
        click.echo(failures_text(found, time.time()))


@cache.command("clear-negative")
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
    with _place(given) as (place, _):
        gone = place.clear_failures(keys)
    if output_format == "json":
        click.echo(json_text([f"{one.kind}/{one.key}" for one in gone]))
    else:
        click.echo("\n".join(f"{one.kind}/{one.key[:12]}" for one in gone) or "nothing had failed")


@cache.command()
@click.option(
    "--to",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where the private key goes; a file of your own, which builds then sign with.",
)
@click.option(
    "--algorithm",
    type=click.Choice(("ed25519", "ecdsa-p256")),
    default="ed25519",
    show_default=True,
    help="What kind of key.",
)
def keygen(path: Path | None, algorithm: Any) -> None:
    """Make a key to sign entries with; print its public half.

    \b
    packager cache keygen > builder.pub
    packager cache trust builder.pub          # on every machine that uses its entries
    """
    from artifact_cache.trust import generate_key
    from packager import wiring
    from packager.adapters.cache_errors import explained_cache_errors

    place = path or wiring.signing_key_place()
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with explained_cache_errors():
        public = generate_key(place, algorithm)
    click.echo(f"the private key is {place}", err=True)
    click.echo(public.decode(), nl=False)


@cache.command()
@click.argument("public_key", type=click.File("rb"), metavar="FILE")
@click.option("--comment", default="", metavar="TEXT", help="Whose key it is.")
@click.option(
    "--trusted-keys",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The list it goes to; a file of your own.",
)
def trust(public_key: Any, comment: str, trusted_keys: Path | None) -> None:
    """Add a public key to the trusted ones; print its id."""
    from artifact_cache.trust import trust_key
    from packager import wiring
    from packager.adapters.cache_errors import explained_cache_errors

    place = trusted_keys or wiring.trusted_keys_place()
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with explained_cache_errors():
        click.echo(trust_key(place, public_key.read(), comment))
