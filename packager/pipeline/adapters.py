"""Adapters that a request names: found, pinned, read by their headers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

from packager.core.adapters import Adapter, check_adapter_name
from packager.core.errors import ModelRefused, NotFound, UsageError
from packager.core.facts import Facts
from packager.core.model import ModelFiles
from packager.core.references import ModelReference
from packager.core.request import BuildRequest
from packager.models.adapters.read import adapter_of
from packager.models.adapters.rewriting import rewrite_adapter
from packager.optimize.merge.files import merged_files
from packager.optimize.steps.services import RunStep
from packager.pipeline.services import BuildServices
from packager.pipeline.stages import Finished

STREAMED = "hf://"  # a source whose files are proven only when they are read in order, once


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedAdapters:
    """Adapters in the order of their names, and the request's fields that name each of them."""

    found: tuple[Adapter, ...] = ()  # that are served beside the model
    merged: Adapter | None = None
    fields: Mapping[str, Any]


def find_adapters(request: BuildRequest, services: BuildServices) -> RequestedAdapters:
    """Find and read every adapter; of one that a build would download, the headers alone."""
    named = _named(request, services)
    merged = request.merge_adapter
    if merged is not None and merged not in named:
        given = ", ".join(sorted(named)) or "none"
        raise UsageError(
            f"--merge-adapter names {merged[:80]!r}; the adapters are: {given}",
            hint=f"add --adapter {merged[:80]}=REF",
        )
    if not named:
        return RequestedAdapters(fields={})

    def look(reference: ModelReference) -> ModelFiles:
        return services.peek_adapter(reference) or services.find_adapter(reference)

    found = _read(named, look, services)
    fields = {"adapters": named, "adapters_dir": None}
    return RequestedAdapters(**_parted(found, request), fields=fields)


def take_adapters(facts: Facts, services: BuildServices) -> Facts:
    """Return facts with the adapters' files, where only their headers were read before."""
    named = facts.request.adapters or {}
    taken = _read(named, services.find_adapter, services)
    known = {one.name: one for one in (*facts.adapters, facts.merged) if one is not None}
    found = tuple(known[one.name] if one == known.get(one.name) else one for one in taken)
    parts = _parted(found, facts.request)
    return replace(facts, adapters=parts["found"], merged=parts["merged"])


def with_merged(model: ModelFiles, adapter: Adapter | None, services: BuildServices) -> ModelFiles:
    """Describe the model with an adapter folded in; itself without one."""
    if adapter is None:
        return model
    if find_spec("numpy") is None:
        raise UsageError(
            "merging an adapter needs NumPy, which is not installed",
            hint="`pip install 'numpy>=2.0'`",
        )
    try:
        return merged_files(model, adapter, services.read_header)
    except ModelRefused as error:
        said = f"adapter {adapter.name!r}: {error.message}"
        raise ModelRefused(said, hint=error.hint, code=error.code) from error


def merged_name(model: ModelFiles, adapter: Adapter) -> str:
    """Return the name that clients send where the request gives none."""
    return f"{model.ref.name}-{adapter.name}"


def _parted(found: tuple[Adapter, ...], request: BuildRequest) -> dict[str, Any]:
    """Return the adapters that are served, and the one that is merged."""
    merged = next((one for one in found if one.name == request.merge_adapter), None)
    return {"found": tuple(one for one in found if one is not merged), "merged": merged}


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
    named = {**listed, **one_by_one}
    if (merged := request.merge_adapter) in named:
        named[merged] = named[merged].removeprefix(STREAMED)  # read more than once: downloaded
    return named
