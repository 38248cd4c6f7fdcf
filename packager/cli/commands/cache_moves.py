"""`packager cache export` and `import`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packager.cli.commands.cache_options import cache_place_options
from packager.cli.commands.cache_place import opened_place
from packager.cli.plugins.tables import TREES
from packager.cli.progress import progress_options, shown_progress
from packager.cli.shared_options import format_option, registry_options
from packager.cli.terminal import note, print_json, print_line, print_value, warn
from packager.core.errors import NotFound, UsageError
from packager.core.events import working
from packager.core.files.pipes import open_waiting
from packager.core.references import LayoutTarget, RegistryTarget
from packager.core.trees import Stated
from packager.images.target import is_archive

if TYPE_CHECKING:
    from artifact_cache.entry import Entry
    from artifact_cache.stores.archive import Imported
    from packager.cli.wiring.settings import Settings
    from packager.core.ports import ImageSink
    from packager.optimize.cache.operations import CachePlace

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


@click.command("export")
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
        raise UsageError("no entries selected to export", hint="give keys, or --all")
    with (
        shown_progress(progress, quiet=quiet, as_json=output_format == "json") as on_event,
        opened_place(given, on_event) as (place, settings),
        working(on_event, "export", target),
    ):
        found = [place.find(key) for key in keys]
        found += [place.find(f"{one.kind}/{one.key}") for one in place.listed() if everything]
        if is_archive(target):
            size = place.export_to_archive(found, Path(target))
            written = [{"name": target, "entries": len(found), "bytes": size}]
        else:
            refs = place.export_to_images(found, _sink_of(target, len(found), settings))
            written = [{"name": ref.name, "digest": ref.digest} for ref in refs]
    if output_format == "json":
        print_json(written)
        return
    for one in written:
        print_value(f"{one['name']}@{one['digest']}" if "digest" in one else str(one["name"]))


def _sink_of(target: str, count: int, settings: Settings) -> Callable[[Entry], ImageSink]:
    from packager.cli.plugins.tables import SINKS
    from packager.cli.wiring.caches import entry_sink
    from packager.cli.wiring.settings import parse_output
    from packager.optimize.cache.oci import tag_of

    named = parse_output(target)
    if not SINKS.of_target(named).traits.takes_artifacts:
        raise UsageError(
            f"{target!r} is an engine, and an entry is not an image",
            hint="give FILE.tar, oci:DIR or REGISTRY/REPOSITORY",
        )
    if isinstance(named, LayoutTarget | RegistryTarget) and not named.is_tagged:
        return lambda entry: entry_sink(named.with_tag(tag_of(entry)), settings)
    if count > 1:
        raise UsageError(
            f"{target!r} names one tag for {count} entries",
            hint="leave the tag out: each gets one of its kind and key",
        )
    return lambda _: entry_sink(named, settings)


@click.command("import")
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@click.option(
    "--from",
    "layout",
    type=click.Choice(tuple(TREES)),
    help="SOURCE is a directory of compiled graphs of this tool.",
)
@click.option(
    "--instance", metavar="TYPE", help="Instance type that the graphs were compiled for: ml.inf2.…"
)
@click.option(
    "--logical-core-size",
    type=click.IntRange(1, 8),
    metavar="N",
    help="Physical NeuronCores per logical core, where neither flags nor files state it.",
)
@click.option("--model", metavar="NAME", help="Import only graphs of this model.")
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
@click.option("--all-modules", is_flag=True, help="Import all possible graphs for every model.")
@click.option(
    "--config", type=click.Path(path_type=Path), metavar="FILE", help="The model's config.json."
)
@click.option(
    "--state",
    "stated",
    multiple=True,
    metavar="/POINTER=JSON",
    help="Key value that the tree does not state, such as /shape/max_batch=8. Repeatable.",
)
@click.option(
    "--as",
    "document",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Key document of the entry; values that the tree states must agree.",
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
    """Import entries from archives, OCI layouts, registries, or other tools' caches.

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
    stated = Stated(**said)
    reader = TREES.find(layout).make() if layout is not None else None
    published: list[Entry] = []
    known: list[Entry] = []
    with (
        shown_progress(progress, quiet=quiet, as_json=output_format == "json") as on_event,
        opened_place(given, on_event) as (place, settings),
    ):
        for source in sources:
            with working(on_event, "import", source):
                if reader is not None:
                    from packager.optimize.cache.trees import import_tree

                    taken, notes = import_tree(reader, Path(source), place, stated)
                    for text in notes:
                        warn(text)
                else:
                    taken = _import(source, place, settings)
                published += taken.published
                known += taken.known
    if output_format == "json":
        print_json(
            {
                "published": [f"{one.kind}/{one.key}" for one in published],
                "known": [f"{one.kind}/{one.key}" for one in known],
            }
        )
        return
    for one in published:
        print_line(f"{one.kind}/{one.key}")
    if not quiet:
        from packager.optimize.cache.report import entries

        already = f", {len(known)} here already" if known else ""
        note(f"{entries(len(published))} imported{already}")


def _import(source: str, place: CachePlace, settings: Settings) -> Imported:
    from packager.cli.wiring.caches import import_entries
    from packager.cli.wiring.settings import parse_output

    if source == "-":
        return place.import_from_archive(sys.stdin.buffer)
    if is_archive(source):
        try:
            with open_waiting(Path(source)) as reader:
                return place.import_from_archive(reader)
        except FileNotFoundError as error:
            raise NotFound(
                f"there is no archive {source!r}", hint="`packager cache export` writes one"
            ) from error
    return import_entries(parse_output(source), place.cache.store, place.scratch, settings)
