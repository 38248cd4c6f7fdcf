"""Differences between present and desired state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from packager.addons.deploy.sagemaker.requests import Request

Difference = tuple[str, Any, Any]  # path, present value, desired value


def differences(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Return the desired fields with other present values; further present fields are ignored."""
    return tuple(_differences(there, wanted, ""))


def copies_difference(
    there: Mapping[str, Any], wanted: Mapping[str, Any]
) -> tuple[Difference, ...]:
    """Return the difference of a component's copies, which AWS reports in another field."""
    if "RuntimeConfig" not in wanted:
        return ()  # an adapter has the copies of its base
    now = (there.get("RuntimeConfig") or {}).get("DesiredCopyCount")
    then = wanted["RuntimeConfig"]["CopyCount"]
    return () if now == then else (("RuntimeConfig.CopyCount", now, then),)


def update_body(request: Request, keeps_scale: bool) -> dict[str, Any]:
    """Return the body that changes what is there."""
    body = {key: value for key, value in request.body.items() if key != "Tags"}
    if request.resource == "Endpoint":
        return {**body, "RetainAllVariantProperties": keeps_scale}
    copies = () if keeps_scale else ("RuntimeConfig",)
    kept = ("InferenceComponentName", "Specification", *copies)
    return {key: body[key] for key in kept if key in body}


def _differences(there: Any, wanted: Any, path: str) -> Iterator[Difference]:
    if isinstance(wanted, Mapping) and isinstance(there, Mapping):
        for name, value in wanted.items():
            yield from _differences(there.get(name), value, f"{path}.{name}" if path else name)
    elif isinstance(wanted, list | tuple) and isinstance(there, list | tuple):
        if len(wanted) != len(there):
            yield path, there, wanted
            return
        for number, (now, then) in enumerate(zip(there, wanted, strict=True)):
            yield from _differences(now, then, f"{path}[{number}]")
    elif there != wanted:
        yield path, there, wanted
