"""What an endpoint served before: AWS keeps no order of configurations, and failed ones stay there.

When an update is sent, what is in service then is tagged with the moment until which it served.
Whatever an update that failed has left was never in service, and never has that tag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packager.addons.deploy.sagemaker.requests import OWNER_TAG, Request
from packager.core.deployment import Change
from packager.core.errors import NotFound

SERVED_TAG = "packager:served-until"  # of configurations and models: UTC, in an order of its own
NEEDS_TAG = "packager:component"  # of a model: requirements of its inference component

# What an inference component says of the model it had; numbers, by the names of the API.
_NEEDS = {
    "StartupParameters": (
        "ModelDataDownloadTimeoutInSeconds",
        "ContainerStartupHealthCheckTimeoutInSeconds",
    ),
    "ComputeResourceRequirements": (
        "NumberOfCpuCoresRequired",
        "NumberOfAcceleratorDevicesRequired",
        "MinMemoryRequiredInMb",
        "MaxMemoryRequiredInMb",
    ),
}
_SHORT = {  # a tag's value has 256 characters
    "ModelDataDownloadTimeoutInSeconds": "download",
    "ContainerStartupHealthCheckTimeoutInSeconds": "startup",
    "NumberOfCpuCoresRequired": "cpus",
    "NumberOfAcceleratorDevicesRequired": "devices",
    "MinMemoryRequiredInMb": "memory",
    "MaxMemoryRequiredInMb": "most-memory",
}
_WHOLE = ("cpus", "devices")  # AWS returns them as floats only


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A configuration or model that was in service once."""

    name: str
    until: str
    needs: str = ""  # of the component that had it


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Earlier states of an account's endpoints, read from AWS by injected functions."""

    describe: Callable[[str, str], Mapping[str, Any] | None]  # by kind and name
    call: Callable[..., None]  # an operation with its body
    tags: Callable[[str], Mapping[str, str]]  # by ARN
    owned: Callable[[str, str], Sequence[tuple[str, Mapping[str, str]]]]  # by kind and deployment
    moment: str  # of the change that is under way

    def note_before(self, request: Request) -> None:
        """Tag what an update is about to replace, if it is in service."""
        there = self.describe(request.resource, request.name) or {}
        if there.get(f"{request.resource}Status") != "InService":
            return
        if request.resource == "Endpoint":
            self._note("EndpointConfig", str(there["EndpointConfigName"]))
            return
        has = specification(there)
        if has.get("ModelName") != request.body["Specification"]["ModelName"]:
            self._note("Model", str(has.get("ModelName")), needs_text(has))

    def roll_back(
        self,
        name: str,
        there: Mapping[str, Any],
        component: Mapping[str, Any] | None,
        *,
        settle: Callable[[], None],
    ) -> tuple[Change, ...]:
        """Move an endpoint, or its component, to its last state in service; return the changes.

        Of an update that changed both, both go back.  Raises `NotFound` where nothing was before.
        """
        now = str(there["EndpointConfigName"])
        config = last_served(self.owned("EndpointConfig", name), now)
        has = str(specification(component).get("ModelName") or "")
        model = last_served(self.owned("Model", name), has) if component is not None else None
        latest = max((one.until for one in (config, model) if one is not None), default="")
        changes = []
        if config is not None and config.until == latest:
            self._note("EndpointConfig", now)
            self.call("UpdateEndpoint", EndpointName=name, EndpointConfigName=config.name)
            changes.append(_moved("Endpoint", name, "EndpointConfigName", now, config.name))
        if component is not None and model is not None and model.until == latest:
            if changes:
                settle()
            changes.append(self._put_back(component, model))
        if not changes:
            raise NotFound(
                f"endpoint {name!r} has served nothing else so far",
                hint="apply the image instead",
            )
        return tuple(changes)

    def _put_back(self, component: Mapping[str, Any], model: Served) -> Change:
        """Update a component with the model that it had."""
        name, now = str(component["InferenceComponentName"]), specification(component)
        self._note("Model", str(now["ModelName"]), needs_text(now))
        wanted = specification_of(model.name, model.needs, now)
        self.call("UpdateInferenceComponent", InferenceComponentName=name, Specification=wanted)
        path = "Specification.ModelName"
        return _moved("InferenceComponent", name, path, str(now["ModelName"]), model.name)

    def _note(self, kind: str, name: str, needs: str = "") -> None:
        """Add the tags of what is in service and will not be from now on."""
        found = self.describe(kind, name)
        if found is None:
            return
        arn = str(found[f"{kind}Arn"])
        if OWNER_TAG not in self.tags(arn):  # another's: it is not ours to go back to
            return
        tags = [{"Key": SERVED_TAG, "Value": self.moment}]
        tags += [{"Key": NEEDS_TAG, "Value": needs}] if needs else []
        self.call("AddTags", ResourceArn=arn, Tags=tags)


def last_served(found: Iterable[tuple[str, Mapping[str, str]]], now: str) -> Served | None:
    """Return what was in service last of names with their tags, without what is there now."""
    served = (
        Served(name=name, until=tags[SERVED_TAG], needs=tags.get(NEEDS_TAG, ""))
        for name, tags in found
        if name != now and tags.get(SERVED_TAG)
    )
    return max(served, key=lambda one: one.until, default=None)


def specification(component: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return a component's described requirements; empty if unknown."""
    found = (component or {}).get("Specification")
    return found if isinstance(found, Mapping) else {}


def needs_text(asked: Mapping[str, Any]) -> str:
    """Return a component's requirements as the value of a tag."""
    words = []
    for group, names in _NEEDS.items():
        there = asked.get(group) or {}
        words += [f"{_SHORT[name]}={there[name]}" for name in names if there.get(name) is not None]
    return " ".join(words)


def specification_of(model: str, needs: str, now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the specification of a component with a model that it had; the cache stays as it is.

    What is not known of it is as it is now.
    """
    values = dict(part.partition("=")[::2] for part in needs.split())
    made: dict[str, Any] = {"ModelName": model}
    for group, names in _NEEDS.items():
        known = {
            name: _number(values[_SHORT[name]], fraction=_SHORT[name] in _WHOLE)
            for name in names
            if _SHORT[name] in values
        }
        there = {name: value for name, value in (now.get(group) or {}).items() if name in names}
        if found := known or there:
            made[group] = found
    if cached := now.get("DataCacheConfig"):
        made["DataCacheConfig"] = {"EnableCaching": bool(cached.get("EnableCaching"))}
    return made


def _moved(resource: str, name: str, path: str, now: str, then: str) -> Change:
    return Change(kind="update", resource=resource, name=name, differences=((path, now, then),))


def _number(text: str, *, fraction: bool) -> float | int:
    """Return a number of our own tag; 0, which AWS refuses, if the tag was changed."""
    try:
        return float(text) if fraction else int(text)
    except ValueError:
        return 0
