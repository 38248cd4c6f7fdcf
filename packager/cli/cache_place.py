"""The cache that a command of `packager cache` is about."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from packager.cli.cache_options import take_cache_options
from packager.cli.terminal import warn
from packager.core.events import EventSink, StepEvent, ignore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from packager import wiring
    from packager.jobs.cache import CachePlace


@contextmanager
def opened_place(
    given: dict[str, Any], on_event: EventSink = ignore
) -> Iterator[tuple[CachePlace, wiring.Settings]]:
    """Open the cache that options name, with what they say of it taken out of `given`."""
    from packager import wiring
    from packager.adapters.cache_errors import explained_cache_errors
    from packager.jobs.cache import CachePlace

    settings = wiring.Settings(
        cache_dir=given.pop("cache_dir", None),
        cache=take_cache_options(given),
        insecure_registries=given.pop("insecure_registries", ()),
        ca_file=given.pop("ca_file", None),
        on_event=on_event,
        on_warning=warn,
    )
    opened = wiring.artifact_cache_for(settings)
    assert opened is not None  # `use_cache` is true
    with explained_cache_errors():
        yield (
            CachePlace(wiring.artifacts_dir(settings), opened, wiring.signer_for(settings)),
            settings,
        )


@contextmanager
def working(on_event: EventSink, step: str, detail: str) -> Iterator[None]:
    """Show one piece of work from its start to its end."""
    on_event(StepEvent(step=step, detail=detail, state="started"))
    yield
    on_event(StepEvent(step=step, detail=detail, state="finished"))
