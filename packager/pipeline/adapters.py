"""Adapters that a request names: found, pinned, read by their headers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from packager.core.adapters import Adapter, check_adapter_name
from packager.core.errors import ModelRefused, NotFound, UsageError
from packager.core.facts import Facts
from packager.core.model import ModelFiles
from packager.core.references import ModelReference
from packager.core.request import BuildRequest
from packager.models.adapters.read import adapter_of
from packager.models.adapters.rewriting import rewrite_adapter
from packager.optimize.steps.services import RunStep
from packager.pipeline.services import BuildServices
from packager.pipeline.stages import Finished


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedAdapters:
    """Adapters in the order of their names, and the request's fields that name each of them."""

    found: tuple[Adapter, ...] = ()
    fields: Mapping[str, Any]


def find_adapters(request: BuildRequest, services: BuildServices) -> RequestedAdapters:
    """Find and read every adapter; of one that a build would download, the headers alone."""
    named = _named(request, services)
    if not named:
        return RequestedAdapters(fields={})

    def look(reference: ModelReference) -> ModelFiles:
        return services.peek_adapter(reference) or services.find_adapter(reference)

    found = _read(named, look, services)
    return RequestedAdapters(found=found, fields={"adapters": named, "adapters_dir": None})


def take_adapters(facts: Facts, services: BuildServices) -> tuple[Adapter, ...]:
    """Return the adapters with their files, where only their headers were read before."""
    named = facts.request.adapters or {}
    taken = _read(named, services.find_adapter, services)
    known = {adapter.name: adapter for adapter in facts.adapters}
    return tuple(known[one.name] if one == known.get(one.name) else one for one in taken)


def with_adapters(
    finished: Finished,
    services: BuildServices,
    run_step: RunStep | None,  # noqa: ARG001
) -> Finished:
    """Add the adapters' files, described anew where the engine would read them wrongly."""
    planned = finished.planned
    assert planned.plan.adapters is not None, "the recipe says so"
    by_name = {adapter.name: adapter for adapter in planned.facts.adapters}
    files = {
        served.directory: by_name[served.name].files
        if served.rewrite is None
        else rewrite_adapter(by_name[served.name], served.rewrite, services.read_header)
        for served in planned.plan.adapters.adapters
    }
    return replace(finished, artifacts=replace(finished.artifacts, adapters=files))


def _read(
    named: Mapping[str, str],
    find: Callable[[ModelReference], ModelFiles],
    services: BuildServices,
) -> tuple[Adapter, ...]:
    return tuple(_adapter(name, named[name], find, services) for name in sorted(named))


def _adapter(
    name: str,
    text: str,
    find: Callable[[ModelReference], ModelFiles],
    services: BuildServices,
) -> Adapter:
    check_adapter_name(name)
    try:
        return adapter_of(name, find(services.parse_model_reference(text)))
    except (ModelRefused, NotFound) as error:
        kind = ModelRefused if isinstance(error, ModelRefused) else NotFound
        said = f"adapter {name!r}: {error.message}"
        raise kind(said, hint=error.hint, code=error.code) from error


def _named(request: BuildRequest, services: BuildServices) -> dict[str, str]:
    """Return the references by name, those of a directory among them."""
    one_by_one = request.adapters or {}
    listed = services.list_adapters(request.adapters_dir) if request.adapters_dir else {}
    if twice := sorted(listed.keys() & one_by_one.keys()):
        raise UsageError(
            f"the adapter {twice[0]!r} is given by name and is in {request.adapters_dir!r}",
            hint="give each adapter a name of its own",
        )
    return {**listed, **one_by_one}
