"""The cache that a command of `packager cache` is about."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from packager.cli.commands.cache_options import take_cache_options
from packager.cli.terminal import warn
from packager.core.events import EventSink, ignore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from packager.cli.wiring.settings import Settings
    from packager.optimize.cache.operations import CachePlace


@contextmanager
def opened_place(
    given: dict[str, Any], on_event: EventSink = ignore
) -> Iterator[tuple[CachePlace, Settings]]:
    """Open the cache that the options name; remove those options from `given`."""
    from packager.cli.wiring.caches import artifacts_dir, open_artifact_cache, signer_for
    from packager.cli.wiring.settings import Settings
    from packager.optimize.cache.errors import explained_cache_errors
    from packager.optimize.cache.operations import CachePlace

    settings = Settings(
        cache_dir=given.pop("cache_dir", None),
        cache=take_cache_options(given),
        insecure_registries=given.pop("insecure_registries", ()),
        ca_file=given.pop("ca_file", None),
        on_event=on_event,
        on_warning=warn,
    )
    opened = open_artifact_cache(settings)
    with explained_cache_errors():
        yield (
            CachePlace(artifacts_dir(settings), opened, signer_for(settings)),
            settings,
        )
