"""Keywords of the API as requests and options; what is wrong with them is a `UsageError`."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields as fields_of
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from packager.cli.wiring.settings import Settings, settings_for
from packager.core.errors import UsageError
from packager.core.events import EventSink, harmless, ignore
from packager.core.request import BuildRequest, parse_request, unknown_fields
from packager.core.validation import all_faults

log = logging.getLogger("packager")

PathOrName = str | os.PathLike[str]
Options = TypeVar("Options")
Made = TypeVar("Made")


def make_api_request(
    model: PathOrName, instance: str, given: Mapping[str, Any], outputs: tuple[str, ...] = ()
) -> BuildRequest:
    """Return the request of a call; raise `UsageError` that names every field that is wrong."""
    if "outputs" in given:
        raise UsageError("invalid field 'outputs'", hint="name one place or several as output=…")
    stated = {name: value for name, value in given.items() if value is not None}
    places = {"outputs": outputs} if outputs else {}
    return parse_request({"model": reference_text(model), "instance": instance, **stated, **places})


def reference_text(model: PathOrName) -> str:
    """Return text as it is; a path is a directory, also where a hub's model has that name."""
    if isinstance(model, str):
        return model
    path = os.fspath(model)
    return path if os.path.isabs(path) else os.path.join(os.curdir, path)  # noqa: PTH117, PTH118


def texts_of(places: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return one place or several as a tuple."""
    return (places,) if isinstance(places, str) else tuple(places or ())


def api_settings(request: BuildRequest, progress: EventSink | None = None) -> Settings:
    """Return the settings of a request, with warnings for the logger."""
    return replace(settings_for(request), on_warning=log.warning, on_event=events_to(progress))


def events_to(progress: EventSink | None) -> EventSink:
    """Return a receiver of events that never fails."""
    return ignore if progress is None else harmless(progress)


def outside_loop(work: Callable[[], Made], interrupt: Callable[[], None] = ignore) -> Made:
    """Do work that runs an event loop of its own, also where one runs already, as in a notebook.

    Ctrl-C calls `interrupt`, and the work is waited for.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(work)
        try:
            return done.result()
        except KeyboardInterrupt:
            interrupt()
            raise


def take_options(owner: type[Options], given: dict[str, Any]) -> Options:
    """Return options made from keywords, which are removed; their bounds are checked."""
    names = {field.name for field in fields_of(owner)}  # type: ignore[arg-type]
    stated = {
        name: given.pop(name) for name in [*given] if name in names and given[name] is not None
    }
    try:
        return TypeAdapter(owner).validate_python(stated)
    except ValidationError as error:
        raise UsageError(
            "; ".join(all_faults(error, "the call")), hint="correct these keywords"
        ) from error


def refuse_rest(given: Mapping[str, Any], *owners: type) -> None:
    """Raise `UsageError` for keywords that no options took."""
    if left := [name for name, value in given.items() if value is not None]:
        known = [field.name for owner in owners for field in fields_of(owner)]
        raise unknown_fields(left, "the call", known)


def container_variables(env: Mapping[str, str] | None) -> dict[str, str]:
    """Return a container's environment; refuse what lets a server run code of a model's files."""
    from packager.cli.options import container_environment

    return container_environment(tuple(f"{name}={value}" for name, value in (env or {}).items()))
